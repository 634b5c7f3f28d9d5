"""Progress tracking: what can still happen, and when (Naiad, SOSP 2013; hierarchical as in McSherry's "core concepts").

Read in this order: `timestamp` and `summary` (the algebra), `antichain` (frontiers; `chain` and `staircase` for the orders that our
times have), `graph` (what is tracked), `reachability` (what could result in what), `tracker` (one scope, incrementally), `scope` (scopes
in scopes), `job_tracker` (reports in, views out), `notifications` (what a replica does with a view). `pointstamps` is Naiad's simple
version: the oracle. Everything here is pure: no I/O, threads, clock or chance.
"""

from rayad.progress import arguments
from rayad.progress.antichain import Antichain, MutableAntichain, PartiallyOrdered
from rayad.progress.counted.chain import Chain
from rayad.progress.counted.change_batch import ChangeBatch
from rayad.progress.counted.least_index import LeastIndex
from rayad.progress.counted.staircase import Staircase
from rayad.progress.errors import (
    ConfigError,
    DataflowError,
    DepthError,
    InternalError,
    ProtocolError,
    RayadError,
    RescaleRefused,
    SnapshotError,
    say,
    show,
    without_secrets,
)
from rayad.progress.job_tracker import JobTracker, Report, View
from rayad.progress.notifications import Notification, Notificator
from rayad.progress.pointstamps import PointstampCounter
from rayad.progress.progress_graph import (
    ChildPort,
    EdgeSpec,
    Location,
    LocationKind,
    NodeKind,
    NodePort,
    NodeSpec,
    ProgressGraph,
    ScopeInput,
    ScopeOutput,
    ScopeSpec,
)
from rayad.progress.reachability import FlatReachability, PathGraph
from rayad.progress.scope import Scope, ScopeProgress, ScopeTracker
from rayad.progress.shown_texts import mask, masks_repr, presentable, visible
from rayad.progress.summary import PathSummary
from rayad.progress.timestamp import Timestamp
from rayad.progress.tracker import ReachabilityTracker
from rayad.progress.waiting_times import WaitingTimes

__all__ = [
    "Antichain",
    "ChangeBatch",
    "ChildPort",
    "ConfigError",
    "DataflowError",
    "DepthError",
    "EdgeSpec",
    "FlatReachability",
    "InternalError",
    "JobTracker",
    "Location",
    "LocationKind",
    "MutableAntichain",
    "Chain",
    "LeastIndex",
    "Notificator",
    "PointstampCounter",
    "ReachabilityTracker",
    "Staircase",
    "WaitingTimes",
    "NodeKind",
    "NodePort",
    "NodeSpec",
    "Notification",
    "PartiallyOrdered",
    "PathGraph",
    "PathSummary",
    "ProgressGraph",
    "ProtocolError",
    "RayadError",
    "RescaleRefused",
    "Report",
    "Scope",
    "ScopeInput",
    "ScopeOutput",
    "ScopeProgress",
    "ScopeSpec",
    "ScopeTracker",
    "SnapshotError",
    "Timestamp",
    "View",
    "arguments",
    "mask",
    "masks_repr",
    "presentable",
    "say",
    "show",
    "visible",
    "without_secrets",
]

if __name__ != "rayad.progress":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.progress, but it was imported as {__name__!r}; "
        "install the project (pip install -e .) and import rayad.progress"
    )
