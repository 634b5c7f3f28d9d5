"""Credits for what a replica has consumed, granted to its senders, with how long it took: on-demand senders size their batches by that.

Pure: the time and the carrier of the grants are arguments. Both runtimes drive it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rayad.actors.plane.carrier import Carrier
from rayad.actors.plane.credits import Grant, ReceiveWindow
from rayad.actors.plane.send_windows import window_of
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import PlanEdge

Token = tuple[int, int, int]
"""A batch that was sent with credit: its edge, the replica that sent it, its bytes."""
FROM_DRIVER = (-1, 0)
"""The channel on which a live input is fed: it belongs to no edge."""


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
        self.windows: dict[tuple[int, int], ReceiveWindow] = {}
        """The windows of the channels on which something has arrived, by edge and sending replica."""
        self._busy_s: dict[tuple[int, int], float] = {}
        self._since_s = 0.0

    def begin(self, now_s: float) -> None:
        """Activations begin."""
        self._since_s = now_s

    def forget(self, senders: Collection[tuple[int, int]]) -> None:
        """Drop the windows of these senders, by stage and replica: they are gone, with everything they had in flight."""
        self.drop([key for key in self.windows if key != FROM_DRIVER and (self._edges[key[0]].source, key[1]) in senders])

    def drop(self, channels: Collection[tuple[int, int]]) -> None:
        """Drop these windows: their channels begin anew."""
        for key in channels:
            self.windows.pop(key, None)
            self._busy_s.pop(key, None)

    def configure(self, config: RunConfig) -> None:
        """Change the windows of the channels between replicas, and send the grants that are then due."""
        self._config = config
        for key, window in self.windows.items():
            if key == FROM_DRIVER:
                continue
            grant = window.resize(window_of(self._edges[key[0]], config), int(config.window_bytes))
            if grant is not None:
                self._send(key, grant, self._busy_s.get(key, 0.0))

    def grant(self, tokens: Sequence[Token], now_s: float) -> None:
        """Take the batches consumed since :meth:`begin` or the last call, and send the grants that are due."""
        busy_s, self._since_s = (now_s - self._since_s) / len(tokens), now_s
        for edge, replica, size in tokens:
            key = (edge, replica)
            window = self.windows.get(key) or self._open(key)
            grant = window.on_consumed(size)
            busy_s_of_all = self._busy_s.get(key, 0.0) + busy_s
            if grant is None:
                self._busy_s[key] = busy_s_of_all
            else:
                self._send(key, grant, busy_s_of_all)

    def _open(self, key: tuple[int, int]) -> ReceiveWindow:
        is_drivers = key == FROM_DRIVER
        config = self._drivers if is_drivers else self._config
        batches = window_of(None if is_drivers else self._edges[key[0]], config)
        window = self.windows[key] = ReceiveWindow(batches, int(config.window_bytes))
        return window

    def _send(self, key: tuple[int, int], grant: Grant, busy_s: float) -> None:
        self._busy_s[key] = 0.0
        self._carrier.grant(*key, grant, busy_s)
