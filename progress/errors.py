"""The error classes of Rayad.

Rule: an error says who broke what. `DataflowError` is the user's program, `ProtocolError` a peer or a channel that broke the
protocol, `SnapshotError` a snapshot that cannot be taken or restored, `ConfigError` a setting, `InternalError` a bug of ours.
Every one travels between processes: it pickles with its class, its message, its details and its notes.

Messages and notes are texts for people: they are made without secrets, and without characters that a terminal obeys
(`rayad.progress.shown_texts`), whatever they quote. Details are data, and stay as they are.
"""

from __future__ import annotations

from typing import TypeVar

from rayad.progress.shown_texts import mask, presentable

E = TypeVar("E", bound=BaseException)


class RayadError(Exception):
    """Base of all errors of Rayad; keyword arguments become attributes and survive pickling.

    >>> error = ProtocolError("sequence 5 after 3 on channel 7", channel=7)
    >>> error.channel, str(error)
    (7, 'sequence 5 after 3 on channel 7')
    >>> import pickle
    >>> pickle.loads(pickle.dumps(error)).channel
    7
    """

    def __init__(self, message: str = "", **details: object) -> None:
        super().__init__(presentable(message))
        self.__dict__.update(details)

    def add_note(self, note: str) -> None:
        """Add a note, which is a text for people, too."""
        super().add_note(presentable(note))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_error, (type(self), self.args, dict(self.__dict__)))

    def __getattr__(self, name: str) -> object:  # only called for what is not there; it tells mypy that details are attributes
        raise AttributeError(f"{type(self).__name__} has no detail {name!r}; it has {sorted(self.__dict__)}")


class DataflowError(RayadError):
    """The user's program breaks a rule of timely dataflow (a graph, a time, a call)."""


class DepthError(DataflowError, TypeError):
    """Two times or summaries of different loop depth were compared or combined."""


class ProtocolError(RayadError):
    """A message between parts of the job is missing, repeated, reordered, or from another incarnation."""


class SnapshotError(RayadError):
    """A snapshot cannot be taken, verified or restored."""


class ConfigError(RayadError):
    """A setting has a value that cannot work."""


class RescaleRefused(ConfigError):
    """The replicas of a running job stay as they are; the message says why."""


class InternalError(RayadError):
    """A broken invariant: a bug in Rayad."""


def show(value: object, limit: int = 80) -> str:
    """A value of a user's in an error: its ``repr`` without secrets, at most ``limit`` characters of it; where that raises, its class and
    what it raised.

    >>> show("abcdef", 4)
    "'abc"
    """
    try:
        return mask(repr(value)[: limit + _LOOKED_AT])[:limit]  # a secret that is cut is recognised by what is behind it
    except Exception as error:
        return f"<a {type(value).__name__} whose repr() raises {type(error).__name__}>"


_LOOKED_AT = 4_000


def say(error: BaseException, *given: object) -> str:
    """What an error of a user's or of a library says, for people; where its ``str()`` raises, that it does.

    ``given``: what the library was given that may have secrets, as of :func:`rayad.progress.shown_texts.mask`.
    """
    try:
        return presentable(str(error), *given)
    except Exception as again:
        return f"<its str() raises {type(again).__name__}>"


def without_secrets(error: E, *given: object) -> E:
    """An error of a library or of the user's, whose own text, and those of its causes, now show no secrets: for ``raise ... from``, since
    tracebacks show it. One without secrets stays as it is."""
    one: BaseException | None = error
    while one is not None:
        texts = {part: mask(part, *given) for part in one.args if isinstance(part, str)}
        if any(shown != text for text, shown in texts.items()):
            one.args = tuple(texts[part] if isinstance(part, str) else part for part in one.args)
        if isinstance(one, OSError) and isinstance(one.strerror, str):
            one.strerror = mask(one.strerror, *given)
        one = one.__cause__ or one.__context__
    return error


def _rebuild_error(cls: type[RayadError], args: tuple[object, ...], state: dict[str, object]) -> RayadError:
    """Unpickle without calling `__init__`, so that subclasses may ask for arguments of their own."""
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error
