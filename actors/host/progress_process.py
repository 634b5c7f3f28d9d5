"""What the process of the progress actor uses of these modules, in one import: its class is loaded without them."""

from rayad.actors.host.progress_host import progress_on_sockets
from rayad.actors.lead.failure import failure_of
from rayad.actors.replica.report import Pulse

__all__ = ["Pulse", "failure_of", "progress_on_sockets"]
