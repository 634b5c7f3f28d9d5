"""How long tests wait for what has to come.

It ends what hangs and says nothing of speed: a machine a tenth as fast passes too. pytest's own timeout (pyproject.toml) is a
little longer.
"""

PATIENCE_S = 240.0
