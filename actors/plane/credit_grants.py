"""Credits for what a replica has consumed, granted to those who sent it, with how long it took: what on-demand senders go by."""

from __future__ import annotations

import time as clock
from collections.abc import Collection, Iterable, Mapping

from rayad.actors.plane.credits import ReceiveWindow
from rayad.actors.plane.plane import Plane
from rayad.actors.plane.protocol import DRIVER, Kind, pack_credit
from rayad.actors.plane.sender import window_of
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import PlanEdge


class CreditGrants:
    """The receiving side of one replica's channels.

    Args:
        edges: of the plan, by id; a channel that belongs to none is the driver's.
        received_bytes: counted here, by edge.
    """

    def __init__(self, plane: Plane, edges: Mapping[int, PlanEdge], received_bytes: dict[int, int], config: RunConfig) -> None:
        self._plane = plane
        self._edges = edges
        self._received_bytes = received_bytes
        self._config = self._drivers = config
        self._windows: dict[tuple[int, str], ReceiveWindow] = {}
        self._busy_s: dict[tuple[int, str], float] = {}
        self._since_s = 0.0

    def begin(self) -> float:
        """Activations begin; gives the time."""
        self._since_s = clock.perf_counter()
        return self._since_s

    def forget(self, peers: Collection[str]) -> None:
        """These senders are gone, with what was in flight."""
        for key in [key for key in self._windows if key[1] in peers]:
            del self._windows[key]
            self._busy_s.pop(key, None)

    def configure(self, config: RunConfig) -> None:
        """Other windows for the channels between replicas; grants that are due by them are sent."""
        self._config = config
        for (edge, peer), window in self._windows.items():
            if peer == DRIVER:
                continue
            grant = window.resize(window_of(self._edges[edge], config), int(config.window_bytes))
            if grant is not None:
                busy_s, self._busy_s[edge, peer] = self._busy_s.get((edge, peer), 0.0), 0.0
                self._plane.send(peer, Kind.CREDIT, edge, pack_credit(grant.batches, grant.bytes, busy_s))

    def grant(self, tokens: Iterable[tuple[int, str, int]], *, counts: bool = True) -> None:
        """Batches ``(edge, peer, bytes)`` have been consumed since :meth:`begin` or the last call: grant, where a grant is due."""
        tokens = list(tokens)
        now_s = clock.perf_counter()
        busy_s, self._since_s = (now_s - self._since_s) / len(tokens), now_s
        for edge, peer, size in tokens:
            key = (edge, peer)
            window = self._windows.get(key)
            if window is None:
                config = self._config if counts else self._drivers
                batches = window_of(self._edges[edge] if counts else None, config)
                window = self._windows[key] = ReceiveWindow(batches, int(config.window_bytes))
            if counts:
                self._received_bytes[edge] += size
            grant = window.on_consumed(size)
            busy_s_of_all = self._busy_s.get(key, 0.0) + busy_s
            if grant is None:
                self._busy_s[key] = busy_s_of_all
            else:
                self._busy_s[key] = 0.0
                self._plane.send(peer, Kind.CREDIT, edge, pack_credit(grant.batches, grant.bytes, busy_s_of_all))
