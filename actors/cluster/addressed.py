"""A coordinator, asked about one of the jobs that it runs one after the other.

The handle of a job may outlive the job. Its calls must not reach the next job in the same process: a late ``cancel`` would end that. So
each call carries the token of the job that it is about (:mod:`rayad.actors.cluster.names`); to the handle of another job the coordinator is
as dead as one whose process has ended (:func:`rayad.actors.cluster.ray_calls.get`).
"""

from __future__ import annotations

from typing import Any

from rayad.progress import RayadError


class NotThisJob(RayadError):
    """The job has ended, and its coordinator runs another one."""


class Addressed:
    """The coordinator of one job. Its attributes are the actor's methods.

    Args:
        actor: its handle.
        token: of the job.
    """

    def __init__(self, actor: Any, token: str) -> None:
        self.actor = actor
        self.token = token

    def __getattr__(self, name: str) -> AddressedMethod:
        if name.startswith("__"):
            raise AttributeError(name)
        return AddressedMethod(getattr(self.actor, name), self.token)

    def __reduce__(self) -> tuple[Any, ...]:
        return Addressed, (self.actor, self.token)


class AddressedMethod:
    """A method of the coordinator, for one job."""

    def __init__(self, method: Any, token: str) -> None:
        self.method = method
        self.token = token

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """As Ray's, where this process is connected for certain."""
        return self.method.remote(self.token, *args, **kwargs)


__all__ = ["Addressed", "AddressedMethod", "NotThisJob"]
