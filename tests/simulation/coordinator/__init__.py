"""The coordinator and the workers that ship, in processes that die: one thread, a seeded bus, a clock that passes when all wait."""
