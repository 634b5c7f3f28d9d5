"""The simulation inside the steps of what is kept in files: stores, outputs, retention, keepers.

Several coordinators of one job live at once, as when one is taken for dead and is not. Each runs what ships (:class:`JobStore`, the sinks,
:class:`KeeperFiles`) in a thread of its own, but only one moves at a time: at every call of a :class:`Port` it stops, and the seed says who
goes on, and whether the call is made, fails, takes effect without an answer, or is the last one of its process.
"""
