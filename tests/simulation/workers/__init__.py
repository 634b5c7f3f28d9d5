"""The workers that ship, on a seeded bus and a virtual clock: their loops, their frames, what they hand to each other."""
