"""Rules by which moments could be chosen, each of which is wrong; tests show that they are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

from rayad.dataflow.operators.state.waiting_forms import PairsOnce
from rayad.incremental import reducing, traces
from rayad.incremental.columns import grouped, kept, linear, weighted_runs
from rayad.incremental.columns import reducing as column_reducing
from rayad.incremental.joins import join as joining
from rayad.incremental.moment_vertex import Epochs, MomentVertex
from rayad.incremental.moments import counts_at, join
from rayad.progress import Timestamp

Plant = Callable[[ExitStack], None]


def pairs_only(stack: ExitStack) -> None:
    """Joins of joins are not looked at: a key is looked at again only for what arrives."""
    real = reducing.Reduce.on_moment

    def on_moment(self: Any, time: Timestamp, arrived: Any, scheduled: set[Any]) -> None:
        here = {key for key, _ in arrived[0]}
        schedule = self._schedule_joins
        self._schedule_joins = lambda at, key: schedule(at, key) if key in here else None
        try:
            real(self, time, arrived, scheduled)
        finally:
            del self._schedule_joins

    stack.enter_context(patch.object(reducing.Reduce, "on_moment", on_moment))


def nearest_only(stack: ExitStack) -> None:
    """Only the join that comes first is looked at; it is looked at which is next when that has happened."""

    def schedule(self: Any, time: Timestamp, key: Any) -> None:
        moment = time.counters
        joins = {join(at, moment) for at in self.input.moments(key) if not counts_at(at, moment)}
        if joins:
            self.schedule(time, min(joins), key)

    stack.enter_context(patch.object(reducing.Reduce, "_schedule_joins", schedule))


def lexicographic_counting(stack: ExitStack) -> None:
    """What has happened has accumulated."""
    for module in (reducing, traces):
        stack.enter_context(patch.object(module, "counts_at", lambda change, moment: change <= moment))


def lexicographic_joins(stack: ExitStack) -> None:
    """As ``Timestamp.join`` does."""
    for module in (reducing, joining):
        stack.enter_context(patch.object(module, "join", max))


def former_epochs_whole(stack: ExitStack) -> None:
    """Of former epochs all counts at each moment."""
    real = traces.Trace.accumulated

    def accumulated(self: Any, key: Any, moment: Any) -> Any:
        whole = {value: {(): sum(weights.values())} for value, weights in self.before.kept.get(key, {}).items()}
        kept, self.before.kept = self.before.kept, {key: whole}
        try:
            return real(self, key, moment)
        finally:
            self.before.kept = kept

    stack.enter_context(patch.object(traces.Trace, "accumulated", accumulated))


def results_of_an_epoch_forgotten(stack: ExitStack) -> None:
    """What the moments before have given in an epoch is given again."""
    real = reducing.Reduce.on_moment

    def on_moment(self: Any, *arguments: Any) -> None:
        self.given.clear()
        real(self, *arguments)

    stack.enter_context(patch.object(reducing.Reduce, "on_moment", on_moment))


def epochs_mixed(stack: ExitStack) -> None:
    """What a join is given is handled as it comes, whatever epoch it is of."""

    def on_recv(self: Any, edge: int, batch: Any, time: Timestamp) -> None:
        self._handle(time, [[batch] if port == edge else [] for port in range(self.inputs)], [], {})

    stack.enter_context(patch.object(joining.Join, "on_recv", on_recv))


def scheduled_moments_stay(stack: ExitStack) -> None:
    """Moments that are scheduled do not move with their keys."""
    stack.enter_context(patch.object(PairsOnce, "give", lambda self, kept, known, groups: []))


def notes_forgotten(stack: ExitStack) -> None:
    """What an epoch has changed is not noted for the next snapshot."""
    real = traces.Kept.settle

    def settle(self: Any) -> None:
        with patch.object(self.before, "note", lambda *_: None):
            real(self)

    stack.enter_context(patch.object(traces.Kept, "settle", settle))


# -- in columns ----------------------------------------------------------------------------------------------
def columns_nearest_only(stack: ExitStack) -> None:
    """See :func:`nearest_only`."""
    real = column_reducing.Gathered.due
    stack.enter_context(patch.object(column_reducing.Gathered, "due", lambda self, epoch: real(self, epoch)[:1]))


def columns_pairs_only(stack: ExitStack) -> None:
    """See :func:`pairs_only`."""
    real = column_reducing.keys_of

    def keys_of(runs: Any, run: Any, *rest: Any) -> Any:
        gathered = real(runs, run, *rest)
        arrived = np.isin(gathered.places, [] if run is None else run.place)
        due = gathered.due

        def due_of_arrived(epoch: int) -> Any:
            both = [(which[arrived[which]], joins[arrived[which]]) for which, joins in gathered._later]
            gathered._later = [part for part in both if len(part[0])]
            return due(epoch)

        gathered.due = due_of_arrived
        return gathered

    for module in (column_reducing, grouped):
        stack.enter_context(patch.object(module, "keys_of", keys_of))


def _comes_after(run: Any, rows: Any, moment: Any, counters: Any) -> Any:
    """Which of these rows are of a moment after another in lexicographic order."""
    return np.array([tuple(at) > tuple(moment) for at in counters(run, rows).tolist()], np.bool_)


def columns_lexicographic_counting(stack: ExitStack) -> None:
    """See :func:`lexicographic_counting`."""
    wrong = lambda self, run, rows, moment: ~_comes_after(run, rows, moment, self.counters_of)  # noqa: E731
    stack.enter_context(patch.object(weighted_runs.WeightedRuns, "count_at", wrong))


def columns_lexicographic_joins(stack: ExitStack) -> None:
    """See :func:`lexicographic_joins`."""

    def joins_at(self: Any, run: Any, rows: Any, moment: Any) -> Any:
        return np.where(_comes_after(run, rows, moment, self.counters_of)[:, None], self.counters_of(run, rows), moment)

    stack.enter_context(patch.object(weighted_runs.WeightedRuns, "joins_at", joins_at))


def columns_never_again(stack: ExitStack) -> None:
    """A key is looked at only when something arrives."""
    stack.enter_context(patch.object(column_reducing.Gathered, "due", lambda self, epoch: []))


def columns_forget_results(stack: ExitStack) -> None:
    """See :func:`results_of_an_epoch_forgotten`."""
    real = column_reducing.LinearColumns.on_moment

    def on_moment(self: Any, *arguments: Any) -> Any:
        self.given["given"].end_epoch(keep=False)
        return real(self, *arguments)

    stack.enter_context(patch.object(column_reducing.LinearColumns, "on_moment", on_moment))


def columns_lose_counters(stack: ExitStack) -> None:
    """Of former epochs all counts at each moment."""
    real = kept.Part.end_epoch

    def end_epoch(self: Any, *, keep: bool) -> None:
        for runs in self.there()[1:]:
            for run in runs.all():
                run.beside.update({name: run.beside[name] * 0 for name in runs.counters})
        real(self, keep=keep)

    stack.enter_context(patch.object(kept.Part, "end_epoch", end_epoch))


def columns_moves_lose_the_epoch(stack: ExitStack) -> None:
    """What belongs to the epoch under way does not move."""
    real = kept.ColumnForm.take

    def take(self: Any, given: Any) -> None:
        time, parts = given
        real(self, (time, {name: some and (*some[:3], []) for name, some in parts.items()}))

    stack.enter_context(patch.object(kept.ColumnForm, "take", take))


def columns_round_floats(stack: ExitStack) -> None:
    """The lowest limb of each float is dropped."""
    real = linear.limbs_of

    def limbs_of(values: Any, weights: Any) -> dict[int, Any]:
        found = real(values, weights)
        return {place: limb for place, limb in found.items() if place > min(found)}

    stack.enter_context(patch.object(linear, "limbs_of", limbs_of))


def behind_stays_behind(stack: ExitStack) -> None:
    """A replica that gets keys from one in a later epoch does not end its own."""
    stack.enter_context(patch.object(MomentVertex, "end_epochs_before", lambda self, state: None))


def ahead_unknown(stack: ExitStack) -> None:
    """A replica that had nothing of an epoch, and is in a later one, does not know that it is over."""
    stack.enter_context(patch.object(Epochs, "is_over", lambda self, epoch: epoch <= self.ended))


WRONG_COLUMNS: dict[str, tuple[Plant, bool]] = {
    "joins of pairs only": (columns_pairs_only, False),
    "only the nearest join": (columns_nearest_only, False),
    "moments count in lexicographic order": (columns_lexicographic_counting, False),
    "changes meet at the lexicographic join": (columns_lexicographic_joins, False),
    "keys are never looked at again": (columns_never_again, False),
    "results of an epoch are forgotten": (columns_forget_results, False),
    "former epochs count whole": (columns_lose_counters, False),
    "the epoch under way does not move": (columns_moves_lose_the_epoch, True),
    "floats are rounded before they are added": (columns_round_floats, False),
}
"""In columns, and whether the vertex has to be disturbed for it to be found."""
OF_WHOLE_NUMBERS: dict[str, Plant] = {
    name: plant for name, (plant, disturbed) in WRONG_COLUMNS.items() if not disturbed and plant is not columns_round_floats
}
"""Those that programs without floats find, undisturbed."""
WRONG_RULES: dict[str, Plant] = {
    "joins of pairs only": pairs_only,
    "only the nearest join": nearest_only,
    "moments count in lexicographic order": lexicographic_counting,
    "changes meet at the lexicographic join": lexicographic_joins,
    "former epochs count whole": former_epochs_whole,
    "results of an epoch are forgotten": results_of_an_epoch_forgotten,
    "a join handles epochs as they come": epochs_mixed,
}
WRONG_MOVES: dict[str, Plant] = {"scheduled moments do not move": scheduled_moments_stay, "notes are forgotten": notes_forgotten}
WRONG_ENDS: dict[str, Plant] = {"who is behind stays behind": behind_stays_behind, "who is ahead does not know": ahead_unknown}
"""Of moves between replicas that are in different epochs."""

__all__ = ["OF_WHOLE_NUMBERS", "WRONG_COLUMNS", "WRONG_ENDS", "WRONG_MOVES", "WRONG_RULES"]
