"""The coordinator that ships, its workers that ship, and processes that die: one thread, a seeded bus, a clock that passes when all wait."""
