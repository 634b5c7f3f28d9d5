"""Credits for what a replica has consumed, granted to its senders, with how long it took: on-demand senders size their batches by that.

Pure: the time and the carrier of the grants are arguments. Both runtimes drive it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rayad.actors.plane.carrier import Carrier
from rayad.actors.plane.credits import Grant, ReceiveWindow
from rayad.actors.plane.protocol import DRIVER
from rayad.actors.plane.send_windows import window_of
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import PlanEdge

Token = tuple[int, str, int]
"""A batch that was sent with credit: its edge, its sender, its bytes. A batch from the driver belongs to no edge."""


class CreditGrants:
    """The receiving side of one replica's channels.

    Args:
        carrier: what carries grants.
        edges: the edges of the plan, by id.
        config: of the run.
    """

    def __init__(self, carrier: Carrier, edges: Mapping[int, PlanEdge], config: RunConfig) -> None:
        self._carrier = carrier
        self._edges = edges
        self._config = self._drivers = config
        self.windows: dict[tuple[int, str], ReceiveWindow] = {}
        """The windows of the channels on which something has arrived, by edge and peer."""
        self._busy_s: dict[tuple[int, str], float] = {}
        self._since_s = 0.0

    def begin(self, now_s: float) -> None:
        """Activations begin."""
        self._since_s = now_s

    def forget(self, peers: Collection[str]) -> None:
        """Drop the windows of these senders: they are gone, with everything they had in flight."""
        for key in [key for key in self.windows if key[1] in peers]:
            del self.windows[key]
            self._busy_s.pop(key, None)

    def configure(self, config: RunConfig) -> None:
        """Change the windows of the channels between replicas, and send the grants that are then due."""
        self._config = config
        for key, window in self.windows.items():
            edge, peer = key
            if peer == DRIVER:
                continue
            grant = window.resize(window_of(self._edges[edge], config), int(config.window_bytes))
            if grant is not None:
                self._send(key, grant, self._busy_s.get(key, 0.0))

    def grant(self, tokens: Sequence[Token], now_s: float) -> None:
        """Take the batches consumed since :meth:`begin` or the last call, and send the grants that are due."""
        busy_s, self._since_s = (now_s - self._since_s) / len(tokens), now_s
        for edge, peer, size in tokens:
            key = (edge, peer)
            window = self.windows.get(key) or self._open(key)
            grant = window.on_consumed(size)
            busy_s_of_all = self._busy_s.get(key, 0.0) + busy_s
            if grant is None:
                self._busy_s[key] = busy_s_of_all
            else:
                self._send(key, grant, busy_s_of_all)

    def _open(self, key: tuple[int, str]) -> ReceiveWindow:
        edge, peer = key
        is_drivers = peer == DRIVER
        config = self._drivers if is_drivers else self._config
        batches = window_of(None if is_drivers else self._edges[edge], config)
        window = self.windows[key] = ReceiveWindow(batches, int(config.window_bytes))
        return window

    def _send(self, key: tuple[int, str], grant: Grant, busy_s: float) -> None:
        self._busy_s[key] = 0.0
        self._carrier.grant(key[1], key[0], grant, busy_s)
