"""Where a page is served: the address to listen on, and the one that a browser opens. Pure."""

from __future__ import annotations

import ipaddress
from typing import Any

from rayad.progress import ConfigError, arguments, show

PORT_MOST = 65535


def check_place(host: Any, port: Any) -> tuple[str, int]:
    """The address and the port that a page is asked for at. Raises ConfigError."""
    if not isinstance(host, str) or not host:
        raise ConfigError(f"page(host) is {show(host)}: it must be an address of this machine, as '127.0.0.1' or '0.0.0.0'")
    return host, arguments.whole(port, "page(port)", least=0, most=PORT_MOST, error=ConfigError, more="; 0 takes any that is free")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.7", "head-node")]
    [True, True, True, False, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(host: str, port: int, token: str | None) -> str:
    """What a browser opens.

    >>> url_of("::1", 8080, None), url_of("10.0.0.7", 8080, "t")
    ('http://[::1]:8080/', 'http://10.0.0.7:8080/?token=t')
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{f'?token={token}' if token is not None else ''}"


__all__ = ["PORT_MOST", "check_place", "is_loopback", "url_of"]
