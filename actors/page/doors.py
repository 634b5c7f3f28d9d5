"""The connections of a page's server: no more than a number, of which those that say nothing go first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from rayad.actors.process.doors import first_to_go

CONNECTIONS_MOST = 256
"""So many connections at once, those of browsers that look not counted; a further one takes the place of another."""


class Doors:
    """Makes the protocols of a server's connections. ``make``: that of aiohttp for one connection."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make
        self._there: dict[asyncio.Transport, str] = {}
        self._spoke: set[asyncio.Transport] = set()

    def __call__(self) -> asyncio.Protocol:
        return _Door(self, self._make())

    def enter(self, transport: asyncio.Transport) -> None:
        """A connection has come."""
        if len(self._there) >= CONNECTIONS_MOST:
            gone = first_to_go(self._there, lambda one: one not in self._spoke)
            self.leave(gone)
            gone.abort()
        self._there[transport] = source_of(transport)

    def spoke(self, transport: asyncio.Transport) -> None:
        """It has said something."""
        self._spoke.add(transport)

    def leave(self, transport: asyncio.Transport) -> None:
        """It has gone, or is counted elsewhere from now on."""
        self._there.pop(transport, None)
        self._spoke.discard(transport)


class _Door(asyncio.Protocol):
    """One connection: all that happens on it goes on to aiohttp's protocol."""

    def __init__(self, doors: Doors, inner: asyncio.Protocol) -> None:
        self._doors, self._inner = doors, inner
        self._transport: asyncio.Transport | None = None
        self.pause_writing, self.resume_writing = inner.pause_writing, inner.resume_writing  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._doors.enter(self._transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._doors.spoke(self._transport)
        self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._transport is not None
        self._doors.leave(self._transport)
        self._inner.connection_lost(exc)


def source_of(transport: asyncio.BaseTransport | None) -> str:
    """The address from which a connection comes."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if name else ""


__all__ = ["CONNECTIONS_MOST", "Doors", "source_of"]
