"""Programs for changes of layout: users' vertices that give their state away, with every kind of state that a vertex can have.

Here the result of a key depends on the order of its records, so a record that overtakes another one is found.
"""

from __future__ import annotations

from typing import Any

import rayad as rd
from tests.programs import loops
from tests.programs import model as m
from tests.programs.program import Expected, Program
from tests.programs.totals import first, second

T = rd.Timestamp


class Keyed(rd.Vertex):
    """State by key, ``self.kept``, and values that wait for a notification by time and key, ``self.waiting``."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}
        self.waiting: dict[T, dict[Any, Any]] = {}

    def ask(self, time: T) -> None:
        """Ask for the notification that handles the values of a time."""
        self.notify_at(time)

    def give(self, groups: frozenset[int]) -> Any:
        kept = {key: self.kept.pop(key) for key in self._of(self.kept, groups)}
        waiting = {}
        for time, by_key in self.waiting.items():
            mine = {key: by_key.pop(key) for key in self._of(by_key, groups)}
            if mine:
                waiting[time] = mine
        return (kept, waiting) if kept or waiting else None

    def _of(self, keys: Any, groups: frozenset[int]) -> list[Any]:
        return [key for key in keys if rd.key_group(key, self.key_groups) in groups]

    def take(self, state: Any) -> None:
        kept, waiting = state
        if set(kept) & set(self.kept):
            raise AssertionError(f"two replicas had state of {set(kept) & set(self.kept)}")
        self.kept.update(kept)
        for time, by_key in waiting.items():
            mine = self.waiting.setdefault(time, {})
            if set(by_key) & set(mine):
                raise AssertionError(f"two replicas had {set(by_key) & set(mine)} waiting for {time}")
            mine.update(by_key)
            self.ask(time)


# -- order per key and sender --------------------------------------------------------------------------------------------------

SENT = {name: [[((5 * e + 3 * i + shift) % 7, name, 10 * e + i) for i in range(7)] for e in range(5)] for shift, name in enumerate("ab")}


class Log(Keyed):
    """Emits for each record the one before it, of the same key and sender, and their number."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        out = []
        for key, sender, number in rd.to_rows(batch):
            before = self.kept.setdefault(key, {}).get(sender, (None, 0))
            out.append((key, sender, number, *before))
            self.kept[key][sender] = number, before[1] + 1
        self.send_by(0, out, time)


def log(flow: rd.Dataflow) -> None:
    a, b = (flow.from_epochs(epochs, batch_rows=2, name=name) for name, epochs in SENT.items())
    a.union(b).key_by(first).vertex(Log, name="log").collect("log")


def logged() -> m.Timed:
    out: m.Timed = []
    for epochs in SENT.values():
        before: dict[int, tuple[Any, int]] = {}
        for time, (key, sender, number) in m.epochs(epochs):
            out.append((time, (key, sender, number, *before.get(key, (None, 0)))))
            before[key] = number, before.get(key, (None, 0))[1] + 1
    return out


def log_in_columns(flow: rd.Dataflow) -> None:
    """The same in columns, keyed by a column."""

    def columns(records: Any) -> Any:
        rows = rd.to_rows(records)
        return rd.to_record_batch([{"key": key, "sender": sender, "number": number} for key, sender, number in rows])

    def rows_of(batch: Any) -> Any:
        return [(row["key"], row["sender"], row["number"]) for row in rd.to_rows(batch)]

    a, b = (flow.from_epochs(epochs, batch_rows=3, name=name).map_batches(columns) for name, epochs in SENT.items())
    keyed = a.union(b).key_by("key")
    keyed.vertex(LogOfColumns, name="log").collect("log")
    keyed.sum("number", name="sums").collect("sums")


class LogOfColumns(Log):
    """:class:`Log` of rows with names."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        super().on_recv(edge, [(row["key"], row["sender"], row["number"]) for row in rd.to_rows(batch)], time)


def log_in_columns_expected() -> Expected:
    stream = [entry for epochs in SENT.values() for entry in m.epochs(epochs)]
    return {"log": logged(), "sums": m.collected(stream, first, lambda record: record[2], sum)}


def forward(flow: rd.Dataflow) -> None:
    """The vertex that is rescaled has a forward edge: its consumer at first gets the batches of the replica of the same number."""
    a, b = (flow.from_epochs(epochs, batch_rows=2, name=name) for name, epochs in SENT.items())
    a.union(b).key_by(first).vertex(Log, name="log").vertex(Relay, name="relay").collect("log")


class Relay(rd.Vertex):
    """Sends records on."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        self.send_by(0, batch, time)


# -- notifications -------------------------------------------------------------------------------------------------------------

PAIRS = [[((3 * e + i) % 8, 10 * e + i) for i in range(8)] for e in range(6)]


class Closing(Keyed):
    """By key, the records of each complete epoch, and how many earlier epochs had records."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        if time not in self.waiting:
            self.waiting[time] = {}
            self.ask(time)
        for key, value in batch:
            self.waiting[time].setdefault(key, []).append(value)

    def on_notify(self, time: T) -> None:
        out = []
        for key, values in self.waiting.pop(time, {}).items():
            out.append((key, tuple(sorted(values)), self.kept.get(key, 0)))
            self.kept[key] = self.kept.get(key, 0) + 1
        if out:
            self.answer(out, time)

    def answer(self, out: list[Any], time: T) -> None:
        """Emit the state."""
        self.send_by(0, out, time)


def closing(flow: rd.Dataflow) -> None:
    """Two inputs, one of them ahead; behind it another keyed vertex, and a stage without state."""
    left, right = flow.from_epochs(PAIRS[:4], parts=2, batch_rows=2), flow.from_epochs(PAIRS[1:], batch_rows=1, name="right")
    closed = flow.vertex(Closing, inputs=[left.key_by(first), right.key_by(first)], name="closing")
    closed.key_by(lambda r: r[0] % 3).vertex(Closing2, name="again").rebalance().map(lambda r: r, name="out").collect("out")


class Closing2(Closing):
    """:class:`Closing` for the results of another one."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        super().on_recv(edge, [(record[0] % 3, record) for record in batch], time)


def closed(stream: m.Timed) -> m.Timed:
    counts: dict[Any, int] = {}
    out: m.Timed = []
    for time, records in m.by_time(stream):
        for key in {first(record) for record in records}:
            out.append((time, (key, tuple(sorted(second(r) for r in records if first(r) == key)), counts.get(key, 0))))
            counts[key] = counts.get(key, 0) + 1
    return out


def closing_expected() -> Expected:
    once = closed(m.epochs(PAIRS[:4]) + m.epochs(PAIRS[1:]))
    return {"out": closed([(time, (record[0] % 3, record)) for time, record in once])}


class Later(Closing):
    """Waits for one time and answers at another."""

    def ask(self, time: T) -> None:
        self.notify_at(time, capability=T(time.epoch + 2))

    def answer(self, out: list[Any], time: T) -> None:
        self.send_by(0, out, T(time.epoch + 2))


class Earlier(Closing):
    """Waits for two more epochs and answers at the time of the question."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        super().on_recv(edge, [(key, value) for key, value in batch], T(time.epoch + 2))

    def ask(self, time: T) -> None:
        self.notify_at(time, capability=T(time.epoch - 2))

    def answer(self, out: list[Any], time: T) -> None:
        self.send_by(0, out, T(time.epoch - 2))


class Silent(Closing):
    """Also waits without a capability, of which the progress actor does not know."""

    def ask(self, time: T) -> None:
        self.notify_at(time)
        self.notify_at(T(time.epoch + 100), capability=None)

    def on_notify(self, time: T) -> None:
        if time.epoch < 100:
            super().on_notify(time)
        elif T(time.epoch - 100) in self.waiting:
            raise AssertionError(f"{time} is complete here, and something of {T(time.epoch - 100)} is not")


def capabilities(flow: rd.Dataflow) -> None:
    pairs = flow.from_epochs(PAIRS, parts=2, batch_rows=2).key_by(first)
    pairs.vertex(Later, name="later").collect("later")
    pairs.vertex(Earlier, name="earlier").collect("earlier")
    pairs.vertex(Silent, name="silent").collect("silent")


def capabilities_expected() -> Expected:
    once = closed(m.epochs(PAIRS))
    return {"later": [(T(time.epoch + 2), record) for time, record in once], "earlier": once, "silent": once}


# -- increments ----------------------------------------------------------------------------------------------------------------


class Changed(Keyed):
    """Counts whose snapshots are increments."""

    def __init__(self) -> None:
        super().__init__()
        self.ballast = bytes(4096)
        self.changed: set[Any] = set()
        self.is_whole = True

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        for key, _, number in batch:
            self.kept[key] = self.kept.get(key, 0) + number
            self.changed.add(key)
            self.send_by(0, [(key, self.kept[key])], time)

    def give(self, groups: frozenset[int]) -> Any:
        self.is_whole = True
        return super().give(groups)

    def take(self, state: Any) -> None:
        self.is_whole = True
        super().take(state)

    def take_changes(self) -> Any:
        changed, self.changed = sorted(self.changed), set()
        was_whole, self.is_whole = self.is_whole, False
        return None if was_whole else lambda: {key: self.kept[key] for key in changed}

    def restore_changes(self, changes: Any) -> None:
        self.kept.update(changes)


def increments(flow: rd.Dataflow) -> None:
    flow.from_epochs(SENT["a"], batch_rows=1).key_by(first).vertex(Changed, name="changed").collect("sums")


def increments_expected() -> Expected:
    sums: dict[int, int] = {}
    out: m.Timed = []
    for time, (key, _, number) in m.epochs(SENT["a"]):
        sums[key] = sums.get(key, 0) + number
        out.append((time, (key, sums[key])))
    return {"sums": out}


# -- loops ---------------------------------------------------------------------------------------------------------------------

STARTS = [[(i, (7 * e + 13 * i) % 30 + 1, 0) for i in range(6)] for e in range(3)]


class Collatz(Keyed):
    """Rounds in order; a record that has reached 1 leaves with the history of its key."""

    in_order = True

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        again, done = [], []
        for key, n, steps in batch:
            seen = self.kept[key] = (*self.kept.get(key, ()), (time.epoch, steps))
            if n == 1:
                done.append((key, steps, seen))
            else:
                again.append((key, loops.collatz(n), steps + 1))
        self.send_by(0, again, time)
        self.send_by(1, done, time)


def collatz(flow: rd.Dataflow) -> None:
    begun = flow.from_epochs(STARTS, parts=2, batch_rows=2)
    loop = flow.loop("collatz")
    into, back = loop.enter(begun), loop.feedback()
    again, done = flow.vertex(Collatz, inputs=[into.union(back).key_by(first)], outputs=2, name="step")
    back.connect(again)
    loop.leave(done).map(lambda r: (r[0], r[1:])).key_by(first).vertex(Closing, name="closing").rebalance().map(lambda r: r).collect("out")


def collatz_expected() -> Expected:
    seen: dict[int, tuple[Any, ...]] = {}
    out: m.Timed = []
    for time, record in m.epochs(STARTS):
        key, n, steps = record
        while True:
            seen[key] = (*seen.get(key, ()), (time.epoch, steps))
            if n == 1:
                break
            n, steps = loops.collatz(n), steps + 1
        out.append((time, (key, (steps, seen[key]))))
    return {"out": closed(out)}


class Rounds(Keyed):
    """Emits each record once for each time at which it came, when that time is complete."""

    def on_recv(self, edge: int, batch: Any, time: T) -> None:
        if time not in self.waiting:
            self.waiting[time] = {}
            self.ask(time)
        for record in batch:
            self.waiting[time][record] = True

    def on_notify(self, time: T) -> None:
        out = list(self.waiting.pop(time, {}))
        for record in out:
            self.kept[record] = self.kept.get(record, 0) + 1
        self.send_by(0, out, time)


STAIRS = [[(2, 2)], [(1, 2), (2, 0)], [(0, 1), (1, 1)]]


def stairs(flow: rd.Dataflow) -> None:
    """A loop in a loop, each with a vertex that waits for every round to be complete."""

    def outer(stream: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        def inner(each: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
            once = each.key_by(lambda r: r).vertex(Rounds, name="inner rounds")
            return once.filter(lambda r: loops._left(1, r)).map(lambda r: loops._less(1, 2, r)), once

        worked = stream.iterate(inner, name="inner").key_by(lambda r: r).vertex(Rounds, name="outer rounds")
        return worked.filter(lambda r: loops._left(0, r)).map(lambda r: loops._less(0, 2, r)), worked

    flow.from_epochs(STAIRS, parts=2, batch_rows=1).iterate(outer, name="outer").collect("out")


def stairs_expected() -> Expected:
    def once(stream: m.Timed) -> m.Timed:
        return m.mapped(m.per_epoch(stream, lambda r: r, len), first)

    def outer(stream: m.Timed) -> tuple[m.Timed, m.Timed]:
        def inner(each: m.Timed) -> tuple[m.Timed, m.Timed]:
            worked = once(each)
            return m.mapped(m.filtered(worked, lambda r: loops._left(1, r)), lambda r: loops._less(1, 2, r)), worked

        worked = once(m.iterated(stream, inner))
        return m.mapped(m.filtered(worked, lambda r: loops._left(0, r)), lambda r: loops._less(0, 2, r)), worked

    return {"out": m.iterated(m.epochs(STAIRS), outer)}


# -- chains, and live inputs ---------------------------------------------------------------------------------------------------


def chain(flow: rd.Dataflow) -> None:
    """Exchange after exchange: several vertices change at once."""
    spread = flow.from_epochs(PAIRS, parts=3, batch_rows=1).rebalance().map(lambda r: (r[0], r[1] % 10), name="spread")
    sums = spread.key_by(first).window(rd.windows.per_epoch()).sum(second, name="sums")
    sums.key_by(second).fold(0, lambda total, record: total + record[0], name="folds").collect("folds")
    spread.key_by(second).distinct(name="once").rebalance().map(second, name="after").collect("once")


def chain_expected() -> Expected:
    stream = [(time, (key, value % 10)) for time, (key, value) in m.epochs(PAIRS)]
    sums = m.per_epoch([(t, r) for t, r in stream], first, lambda records: sum(map(second, records)))
    return {
        "folds": m.folded(sums, second, lambda: 0, lambda total, record: total + record[0]),
        "once": m.mapped(m.distinct(stream, second), second),
    }


def live_log(flow: rd.Dataflow) -> None:
    flow.input("pairs").key_by(first).vertex(Log, name="log").probe("seen").collect("log")


def feed_live_log(job: Any) -> None:
    pairs = job.input("pairs")
    for epoch, records in enumerate(SENT["a"]):
        for record in records:
            pairs.send([record])
        pairs.advance_to(epoch + 1)
        if epoch == 2:
            assert job.probe("seen").wait(1, timeout_s=60)
    pairs.close()


MOVING = [
    Program("sim log", log, lambda: {"log": logged()}),
    Program("sim log in columns", log_in_columns, log_in_columns_expected),
    Program("sim forward", forward, lambda: {"log": logged()}),
    Program("sim closing", closing, closing_expected),
    Program("sim moving capabilities", capabilities, capabilities_expected),
    Program("sim moving increments", increments, increments_expected),
    Program("sim collatz loop", collatz, collatz_expected),
    Program("sim stairs loop", stairs, stairs_expected),
    Program("sim chain", chain, chain_expected),
    Program("sim live log", live_log, lambda: {"log": [entry for entry in logged() if entry[1][1] == "a"]}, feed=feed_live_log),
]
