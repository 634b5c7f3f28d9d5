"""What the process of the progress actor uses of these modules, in one import: its class is loaded without them."""

from rayad.actors.host.progress_host import ProgressHost
from rayad.actors.lead.failure import failure_of
from rayad.actors.replica.report import Pulse

__all__ = ["Pulse", "ProgressHost", "failure_of"]
