"""Real processes are killed and stopped while jobs run on real Ray: ``make chaos``, see ``__main__.py``."""
