"""From the logical graph to the plan: checks, stages, fusion, explanations, and the fingerprints that a resumed run is compared by."""
