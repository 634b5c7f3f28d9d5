"""State by key that takes care of itself: snapshots, what has changed since the last one, and key-groups that move to other replicas.

An operator declares its state as attributes that are :class:`KeyedState`, and has nothing else to write: :class:`KeyedVertex` stores,
restores, gives and takes each of them by the name of its attribute. What there is to declare:

| module | state |
| --- | --- |
| ``by_key.dicts`` | dicts by key, perhaps above sorted runs |
| ``by_key.by_moment`` | dicts by key whose keys come to a moment, in its order |
| ``by_key.sets``, ``by_key.lists`` | sets and lists of what has come for each key |
| ``waiting`` | what waits for its time to be complete, and asks for the notification |
| ``waiting_in_pieces`` | the same, of which columns may be on disk: it is taken in a piece at a time |
| ``two_forms`` | columns as long as all batches are columns, rows from then on |

What each replica has whole is :class:`Everywhere`. Each says how it is a table (``tables``), for :func:`rayad.read_state` and its inverse.
An operator may have a state of its own; ``totals.columns`` and ``windows.panes`` are such.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from rayad.dataflow.operators.state.tables import Entries, Whole, dict_of_entries, entries_of_dict
from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError

if TYPE_CHECKING:
    from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
    from rayad.dataflow.operators.state.runs.disk import Bounded
    from rayad.dataflow.operators.state.runs.files import RunFile

VERSIONS = "former values"
"""Under this name former values move with key-groups; no attribute is called so."""


class KeyedState(ABC):
    """One collection of a vertex, divided by key-group only when groups move (docs/design/rescaling.md).

    Laws: what :meth:`restore` and :meth:`restore_changes` make of what was stored is what was there; what :meth:`give` gave is no longer
    here, and after :meth:`take` at a sibling it is there, whatever has come in between; what :meth:`put_entries` makes of
    :meth:`entries` is the same state. ``tests/dataflow/test_laws_of_keyed_vertices.py``.
    """

    always_whole: bool = False
    """Whether what has changed is all of it: small, and soon gone."""

    is_in_flight: ClassVar[bool] = False
    """Whether it is what waits for its time: to be looked at as a table, not to be written from one."""

    @property
    def inline(self) -> bool | None:
        """Whether what was just taken is pickled faster than a process is forked (:attr:`Vertex.checkpoint_inline`); None: no matter."""
        return False

    # -- snapshots -----------------------------------------------------------------
    @abstractmethod
    def checkpoint(self) -> Any:
        """All of it, picklable; it may refer to what goes on changing."""

    def restore(self, stored: Any) -> None:
        """Take back what :meth:`checkpoint` gave; nothing is here. By default of state that is given as it is stored."""
        self.take(stored)

    @abstractmethod
    def take_changes(self) -> Callable[[], Any] | None:
        """As :meth:`Vertex.take_changes`: a function that gives what has changed since the last call, or None when that is not known."""

    def restore_changes(self, changes: Any) -> None:
        """Apply what the function of :meth:`take_changes` gave. By default of state that only grows."""
        self.take(changes)

    @abstractmethod
    def forget_changes(self) -> None:
        """All may have changed: the next of :meth:`take_changes` gives None."""

    # -- beyond memory ---------------------------------------------------------------
    def runs(self) -> Iterable[Bounded]:
        """The sorted runs in it, which may go to disk and be files of snapshots; what changes beside their rows is in their marks."""
        return ()

    @property
    def noted_bytes(self) -> int:
        """Bytes of rows that are kept for the next increment alone."""
        return 0

    # -- of which keys end -----------------------------------------------------------
    def that_drops(self) -> KeyedState:
        """One like it, in which nothing is yet, that can :meth:`drop` keys; itself if it can."""
        raise DataflowError(f"{type(self).__name__} keeps its keys for ever: an operator with such a state takes no time-to-live")

    def drop(self, keys: list[Any]) -> None:
        """Forget these keys, of which some may not be here. Only of what :meth:`that_drops` gave."""
        raise NotImplementedError(f"{type(self).__name__} has no drop(self, keys)")

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        """Find out the key-groups of what is here, in slices of a few milliseconds: :meth:`give` then looks at no other keys."""
        yield from ()

    @abstractmethod
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """Take out what these of so many groups have, and give it, picklable; None: nothing."""

    @abstractmethod
    def take(self, given: Any) -> None:
        """Keep what :meth:`give` gave at a sibling: of keys that are not here."""

    def gave(self) -> None:
        """The change of layout is over: what :meth:`index` found out may be forgotten."""

    # -- to others, while it runs ------------------------------------------------------
    @property
    def parts_read(self) -> tuple[str, ...]:
        """The names of the parts into which its table can be divided for those who read it while it runs."""
        return ()

    @property
    def form_now(self) -> str:
        """What keeps it now, for errors."""
        return type(self).__name__

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        """Keep from now on what it was at each epoch that may still be read; None: it cannot."""
        return None

    # -- as tables -------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """What is here, for a table (""), or for several by their names. Asked of a copy that was made to be looked at: columns may
        become rows for it. By default of state whose :meth:`checkpoint` gives a dict by key."""
        stored = self.checkpoint()
        if not isinstance(stored, dict):
            raise DataflowError(
                f"{type(self).__name__} keeps a {type(stored).__name__}, not a dict by key: give it entries(self) and "
                "put_entries(self, name, entries) that say how it is a table"
            )
        return entries_of_dict(stored, Whole())

    def put_entries(self, name: str, entries: Entries) -> None:
        """Keep what :meth:`entries` gave under a name; nothing is here yet. Law: it gives the same again."""
        self.restore(dict_of_entries(entries, Whole()))


class Notes(Protocol):
    """What has changed, as far as it is known: ``touched_keys``, ``stored_rows``."""

    def take(self) -> Any:
        """What was noted since the last call; None: all may have changed."""

    def forget(self) -> None:
        """All may have changed."""


class NotedState(KeyedState):
    """State that notes what changes: an increment is made of what was noted since the last one."""

    _noted: Notes

    @abstractmethod
    def changed(self, noted: Any) -> Any:
        """What an increment has of what was noted, as things are now: asked at once, or in a forked copy of the process."""

    def take_changes(self) -> Callable[[], Any] | None:
        noted = self._noted.take()
        return None if noted is None else lambda: self.changed(noted)

    def forget_changes(self) -> None:
        self._noted.forget()


class WholeState(KeyedState):
    """Small state that is stored as a whole each time."""

    always_whole = True

    @property
    def inline(self) -> bool | None:
        return None

    def take_changes(self) -> Callable[[], Any] | None:
        return self.checkpoint

    def restore_changes(self, changes: Any) -> None:
        self.restore(changes)

    def forget_changes(self) -> None:
        """All of it is stored each time."""


class StateOfParts(KeyedState):
    """State that consists of others, which have what is here: each is asked what all are asked alike."""

    @property
    @abstractmethod
    def there(self) -> Iterable[KeyedState]:
        """The parts that there are now."""

    def runs(self) -> Iterable[Bounded]:
        return [runs for part in self.there for runs in part.runs()]

    @property
    def noted_bytes(self) -> int:
        return sum(part.noted_bytes for part in self.there)

    def forget_changes(self) -> None:
        for part in self.there:
            part.forget_changes()

    def index(self, key_groups: int) -> Iterator[None]:
        for part in self.there:
            yield from part.index(key_groups)

    def gave(self) -> None:
        for part in self.there:
            part.gave()


class Everywhere(WholeState):
    """Small state that each replica has whole, whatever key-groups it owns: a new replica has not been told what was told before.

    Laws: what :meth:`give` gave is still here; what was taken twice is there once, and in whatever order.
    """

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """All of it, as :meth:`checkpoint` gives it: so that is a copy."""
        return self.checkpoint()

    def entries(self) -> dict[str, Entries]:
        """None: it is of no key."""
        return {}


class TableOfOthers(Protocol):
    """What others can read of a vertex while it runs; each of its states is one."""

    @property
    def parts_read(self) -> tuple[str, ...]:
        """See :class:`KeyedState`, here and below."""

    @property
    def form_now(self) -> str:
        """What keeps it now, for errors."""

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        """Keep from now on what it was at each epoch that may still be read; None: it cannot."""


class ReadByOthers(Protocol):
    """State of a running vertex as others read it (:class:`rayad.dataflow.operators.state.live.LiveState`)."""

    @property
    def is_read(self) -> bool:
        """Whether somebody has read anything."""

    def give(self, groups: frozenset[int], key_groups: int) -> dict[str, Any]:
        """Take out the former values of these key-groups."""

    def take(self, given: Mapping[str, Any]) -> None:
        """Keep what a sibling gave."""


class KeyedVertex(Vertex):
    """A vertex whose state is its attributes that are :class:`KeyedState`."""

    state_version = 2
    """1: each operator had a shape of its own for what it stored."""

    gives_records: ClassVar[bool] = False
    """Whether results hold records, or values of them, as they came."""

    why_unreadable: ClassVar[str] = ""
    """Why others cannot read its states while it runs, as what the vertex is; "": they can."""

    live: ReadByOthers | None = None
    """What others read of it while it runs; None: it does not run."""

    def states(self) -> dict[str, KeyedState]:
        """What is stored and moves, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, KeyedState)}

    def tables_read(self) -> Mapping[str, TableOfOthers]:
        """What others can read of it while it runs, by name. Where there are several, a reader says which."""
        return {name: state for name, state in self.states().items() if not state.is_in_flight}

    def figures(self) -> dict[str, int]:
        """What it counts, by name, for the job's status: of all replicas the sums are shown. Asked every few seconds while it runs."""
        return {}

    def schemas_of(self, inputs: Sequence[pa.Schema | None]) -> Sequence[pa.Schema | None]:
        """The columns of what leaves by each output, as long as all that comes is columns of these schemas, one for each input; None, or
        nothing at all, where they are not known. Asked when the program is written, of a vertex that never runs: it makes results of no
        rows, so that nothing else says what they are."""
        return ()

    # -- snapshots -----------------------------------------------------------------
    def run_files(self) -> tuple[RunFile, ...]:
        """The files that a snapshot taken now has of sorted runs; :meth:`checkpoint` then refers to them."""
        return tuple(file for state in self.states().values() for runs in state.runs() for file in runs.files())

    @property
    def checkpoint_inline(self) -> bool:  # type: ignore[override]
        """Whether all that may be large is stored faster than a process is forked."""
        answers = [state.inline for state in self.states().values()]
        return True in answers and False not in answers

    def checkpoint(self) -> Any:
        return {name: state.checkpoint() for name, state in self.states().items()}

    def restore(self, state: Any) -> None:
        for name, mine in self.states().items():
            mine.restore(state[name])

    def take_changes(self) -> Callable[[], Any] | None:
        states = self.states()
        changes = {name: state.take_changes() for name, state in states.items()}
        if None in changes.values() or all(state.always_whole for state in states.values()):
            return None
        return lambda: {name: changed() for name, changed in changes.items() if changed is not None}

    def restore_changes(self, changes: Any) -> None:
        for name, state in self.states().items():
            state.restore_changes(changes[name])

    # -- to other replicas -----------------------------------------------------------
    def index_for_giving(self) -> Iterator[None]:
        for state in self.states().values():
            yield from state.index(self.key_groups)

    def give(self, groups: frozenset[int]) -> Any:
        states = self.states()
        for state in states.values():
            state.forget_changes()
        versions = self.live.give(groups, self.key_groups) if self.live is not None and self.live.is_read else None
        given = {name: state.give(groups, self.key_groups) for name, state in states.items()}
        return {name: part for name, part in {**given, VERSIONS: versions}.items() if part is not None} or None

    def take(self, state: Any) -> None:
        for name, mine in self.states().items():
            if name in state:
                mine.take(state[name])
            mine.forget_changes()
        if self.live is not None:
            self.live.take(state.get(VERSIONS, {}))

    def gave(self) -> None:
        for state in self.states().values():
            state.gave()


__all__ = ["Everywhere", "KeyedState", "KeyedVertex", "NotedState", "StateOfParts", "TableOfOthers", "WholeState"]
