"""The stateless steps behind a vertex, as they run in one replica: compiled, watched, and located when they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from rayad.actors.replica.output.actions import Emit
from rayad.actors.replica.user_errors import is_located, raise_located
from rayad.dataflow.compiling.sharing import RecordWatch, Shared
from rayad.dataflow.operators.bad_records import SetAside
from rayad.dataflow.operators.stateless import Element, Gatherer
from rayad.dataflow.plan import ApplyStep, ShiftStep
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.calling import Whole
from rayad.progress import RayadError, Timestamp, show


class Steps:
    """The steps of one replica, each made once however often the layout changes.

    Args:
        replica: its number.
        isolated: what runs a step in a process of its own; it gives None of a step that needs none.
        working: told the name of each step before it runs, and "" when it has; None: nobody asks.
    """

    def __init__(self, replica: int, isolated: Callable[[Element], Element | None] | None, working: Callable[[str], None] | None) -> None:
        self._replica = replica
        self._isolated = isolated
        self._working = working
        self._built: dict[str, tuple[type, Element]] = {}

    @property
    def are_told(self) -> bool:
        """Whether somebody is told of each step; then it runs alone."""
        return self._working is not None

    def compile(self, chain: list[ApplyStep], gatherer: Gatherer | None, shared: Shared | None) -> Emit:
        """The function of a step, or of several that run as one loop.

        Args:
            chain: the steps, in order.
            gatherer: of the last one, if it holds something back.
            shared: how the step shares its records with others; None: its records are not watched.
        """
        step = chain[0]
        if len(chain) > 1:
            run = self._row_steps(chain, gatherer)
        else:
            run = self._gather(step, gatherer) if gatherer is not None else self._apply(step)
        if self._working is not None:
            run = self._told(step.name, run)
        return run if shared is None else self._watched(step, run, shared)

    def _apply(self, step: ApplyStep) -> Emit:
        apply = self._element(step).apply

        def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
            try:
                out = apply(batch)
            except Exception as error:
                self._fail(step, time, batch, error)
            if isinstance(out, pa.Table):  # more than one batch can hold
                return [(time, part) for part in out.to_batches()]
            return ((time, out),) if (out.num_rows if isinstance(out, pa.RecordBatch) else len(out)) else ()

        return run

    def _gather(self, step: ApplyStep, gatherer: Gatherer) -> Emit:
        add = gatherer.add

        def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
            try:
                leaving = add(time, batch)
            except Exception as error:
                self._fail(step, time, batch, error)
            return [(time, out) for out in leaving]

        return run

    def _row_steps(self, chain: list[ApplyStep], gatherer: Gatherer | None) -> Emit:
        """Row steps as one loop over the records, without lists between them; the last of them may be a combiner."""
        lazies = [step.element.lazily for step in (chain if gatherer is None else chain[:-1])]

        def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
            whole = Whole(to_rows(batch))
            rows: Iterable[Any] = whole
            try:
                for lazily in lazies:
                    rows = lazily(rows)
                leaving = [list(rows)] if gatherer is None else gatherer.add_rows(time, rows)
                whole.check()
            except Exception as error:
                self._fail_row_steps(chain, time, batch, error)
            return [(time, out) for out in leaving if len(out)]

        return run

    def _element(self, step: ApplyStep) -> Element:
        """The step as it runs in this replica, made once however often the layout changes."""
        built = self._built.get(step.name)
        if built is None or built[0] is not type(step.element):
            try:
                apart = self._isolated(step.element) if self._isolated is not None else None
                built = self._built[step.name] = type(step.element), apart or step.element.for_replica()
            except Exception as error:
                raise_located(f"{self._title(step)} failed when it was made", error)
        return built[1]

    # -- who looks on ------------------------------------------------------------------------------
    def _watched(self, step: ApplyStep, run: Emit, shared: Shared) -> Emit:
        watch = RecordWatch(shared, step.element)

        def watched(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]] | None:
            before = watch.before(batch)
            leaving = run(time, batch)
            if before is not None:
                try:
                    watch.after(batch, before)
                except Exception as error:
                    raise_located(f"{self._title(step)} failed at {time}", error)
            return leaving

        return watched

    def _told(self, name: str, run: Emit) -> Emit:
        def told(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]] | None:
            working = self._working
            if working is None:
                return run(time, batch)
            working(name)
            leaving = run(time, batch)
            working("")
            return leaving

        return told

    def acquit(self) -> None:
        """The work during which processes ended lies behind: steps in processes of their own may return, and nothing more is told."""
        self._working = None
        for _, element in self._built.values():
            if (acquit := getattr(element, "acquit", None)) is not None:
                acquit()

    def bad_records(self) -> tuple[SetAside, ...]:
        """What the steps have set aside since they were made. Any thread may ask."""
        found = (getattr(element, "set_aside", None) for _, element in list(self._built.values()))
        return tuple(one for one in found if one is not None)

    def close(self) -> None:
        """Release what the steps hold. Never raises."""
        for _, element in self._built.values():
            try:
                element.close()
            except Exception:  # it must not hide the job's own outcome
                continue

    # -- errors ------------------------------------------------------------------------------------
    def _fail(self, step: ApplyStep, time: Timestamp, batch: Any, error: Exception) -> NoReturn:
        record = ""
        of_columns = isinstance(error, RayadError) and isinstance(batch, pa.RecordBatch)  # then no record is at fault
        if not is_located(error) and not of_columns:
            try:
                culprit = self._element(step).culprit(batch)
            except Exception:
                culprit = None
            record = f" on record {show(culprit, 120)}" if culprit is not None else ""
        raise_located(f"{self._title(step)} failed at {time}{record}", error)

    def _fail_row_steps(self, chain: list[ApplyStep], time: Timestamp, batch: Any, error: Exception) -> NoReturn:
        """Run the steps again one after another, to say which failed on which record."""
        rows = to_rows(batch)
        for step in chain:
            try:
                rows = step.element.apply(rows)
            except Exception as again:
                self._fail(step, time, rows, again)
        names = " or ".join(repr(step.name) for step in chain)
        raise_located(f"{names}[{self._replica}] ({chain[0].where}) failed at {time}, but not when they were run again", error)

    def fail_flush(self, step: ApplyStep, error: Exception) -> NoReturn:
        """Raise what a combiner has raised while it gave what it held back."""
        raise_located(f"{self._title(step)} failed", error)

    def _title(self, step: ApplyStep) -> str:
        return f"{step.name!r}[{self._replica}] ({step.where})"


def gatherer_of(chain: list[ApplyStep], bytes_max: int) -> Gatherer | None:
    """What holds back in the last of these steps, so much of a time, made anew; None: nothing does."""
    for step in chain:
        step.element.warm_up()
    gatherer: Gatherer | None = chain[-1].element.gatherer(bytes_max)
    return gatherer


def compile_shift(step: ShiftStep) -> Emit:
    """The function of a step into a loop, out of it, or round it."""
    kind, bound = step.kind, step.max_rounds

    def run(time: Timestamp, batch: Any) -> Sequence[tuple[Timestamp, Any]]:
        if kind == "enter":
            moved = Timestamp.of(time[0], (*time[1], 0))
        elif kind == "leave":
            moved = Timestamp.of(time[0], time[1][:-1])
        else:
            following = time[1][-1] + 1
            if bound is not None and following >= bound:
                return ()
            moved = Timestamp.of(time[0], (*time[1][:-1], following))
        return ((moved, batch),)

    return run
