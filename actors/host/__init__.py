"""The event loops around a replica core and around the progress core: data plane in, data plane out. Nothing of Ray in here."""
