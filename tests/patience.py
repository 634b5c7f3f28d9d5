"""How long tests wait for what has to come.

It ends what hangs and says nothing of speed: a machine a tenth as fast passes too. pytest's own timeout (pyproject.toml) is
longer than two such waits: a test and its fixtures may have one each.
"""

PATIENCE_S = 240.0
