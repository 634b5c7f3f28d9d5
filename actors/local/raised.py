"""Errors of a local job as failures, which the coordinator decides about: the user gets the very exception that was raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rayad.actors.lead.failure import Failure, damaged_by
from rayad.actors.replica.user_errors import raise_located, sign_of
from rayad.progress import RayadError, say

ERRORS_MOST = 16
"""So many errors are kept before those that nobody may raise any more are forgotten."""


class RaisedErrors:
    """The exceptions of one job that may still be raised, by the details of the failures that they are.

    Args:
        told: gives the failures that the leader may still tell.
        seen: called with each error.
    """

    def __init__(self, told: Callable[[], Iterable[Failure]], seen: Callable[[BaseException], None]) -> None:
        self._told, self._seen = told, seen
        self._errors: dict[str, BaseException] = {}
        self._count = 0

    def failure_of(self, who: str, error: BaseException) -> Failure:
        """An error as a value; it can be raised as it is while the leader may still tell it."""
        self._seen(error)
        self._count += 1
        facts: dict[str, Any] = {"is_raised": True, "damaged": damaged_by(error)}
        failure = Failure(who, f"{type(error).__name__}: {say(error)}", str(self._count), None, False, sign_of(error), **facts)
        self._errors[failure.details] = error
        if len(self._errors) > ERRORS_MOST:
            told = {failure.details, *(one.details for one in self._told())}
            self._errors = {details: one for details, one in self._errors.items() if details in told}
        return failure

    def of_coordinator(self, who: str, error: BaseException) -> Failure:
        """An error of the coordinator, or of a sink, which says where it happened."""
        try:
            if who.startswith("sink ") and isinstance(error, Exception) and not isinstance(error, RayadError):
                raise_located(who, error)
        except RayadError as located:
            error = located
        return self.failure_of(who, error)

    def of(self, failure: Failure) -> BaseException | None:
        """The exception that a failure is."""
        return self._errors.get(failure.details)


__all__ = ["RaisedErrors"]
