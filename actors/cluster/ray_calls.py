"""Calls of Ray for a driver's threads, which never start a Ray.

Ray's own functions, and a call of an actor's method, start a Ray, or join any that they find, when the process is connected to none. So a
thread that made one after ``ray.shutdown()``, or while the process was ending, was connected to Ray again; to check for a connection
first is a race. Here they raise RayadError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

import ray
from ray.actor import ActorClass, ActorMethod
from ray.exceptions import RayActorError, RaySystemError, RayTaskError

from rayad.actors.cluster.addressed import Addressed, AddressedMethod, NotThisJob
from rayad.progress import RayadError

F = TypeVar("F", bound=Callable[..., Any])
_get, _wait, _kill, _put = (inspect.unwrap(call) for call in (ray.get, ray.wait, ray.kill, ray.put))
_get_actor, _list_named_actors, _context = map(inspect.unwrap, (ray.get_actor, ray.util.list_named_actors, ray.get_runtime_context))
_call, _create = (cast("Any", kind)._remote.__wrapped__ for kind in (ActorMethod, ActorClass))  # without what starts a Ray
GONE = "Ray has been shut down in this process, and with it the actors of its jobs: nothing can be asked any more"


def _tells_when_gone(function: F) -> F:
    @wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (RaySystemError, AttributeError) as error:  # Ray's worker has no core then
            if isinstance(error, AttributeError) and ray.is_initialized():
                raise
            raise RayadError(GONE) from error

    return cast("F", told)


@_tells_when_gone
def get(refs: Any, timeout: float | None = None) -> Any:
    """As ``ray.get``. Raises RayadError when Ray has been shut down; so do the others. A coordinator that runs another job now is dead for
    who asks about the one before."""
    try:
        return _get(refs, timeout=timeout)
    except RayTaskError as error:
        if isinstance(error.cause, NotThisJob):
            raise RayActorError(error_msg=str(error.cause)) from error
        raise


@_tells_when_gone
def wait(refs: Any, num_returns: int = 1, timeout: float | None = None) -> Any:
    """As ``ray.wait``."""
    return _wait(refs, num_returns=num_returns, timeout=timeout)


@_tells_when_gone
def put(value: Any) -> Any:
    """As ``ray.put``."""
    return _put(value)


@_tells_when_gone
def call(method: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``actor.method.remote(...)``, for ``actor.method``."""
    if isinstance(method, AddressedMethod):
        return _call(method.method, (method.token, *args), kwargs)
    return _call(method, args, kwargs)


@_tells_when_gone
def create(actor_class: Any, options: Mapping[str, Any], *args: Any) -> Any:
    """As ``ActorClass.options(...).remote(...)``."""
    return _create(actor_class, args, {}, **{**actor_class._default_options, **options})


@_tells_when_gone
def get_actor(name: str, namespace: str) -> Any:
    """As ``ray.get_actor``; raises ValueError where there is none."""
    return _get_actor(name, namespace=namespace)


@_tells_when_gone
def list_named_actors(all_namespaces: bool = False) -> Any:
    """As ``ray.util.list_named_actors``."""
    return _list_named_actors(all_namespaces)


def cluster() -> str | None:
    """The address of the cluster that this process is connected to; None: of none."""
    try:
        return str(_context().gcs_address) if ray.is_initialized() else None
    except (RaySystemError, AttributeError):  # it has just left
        return None


def kill(actor: Any) -> None:
    """As ``ray.kill``; an actor of a Ray that has been shut down is gone already."""
    try:
        _kill(actor.actor if isinstance(actor, Addressed) else actor, no_restart=True)
    except RaySystemError:
        pass


__all__ = ["GONE", "call", "cluster", "create", "get", "get_actor", "kill", "list_named_actors", "put", "wait"]
