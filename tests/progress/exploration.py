"""Every schedule of a tiny job: handlers run in any order, and reports of different workers reach the tracker in any order.

A state is what is pending, what is on the way and what the tracker was told. All states that can be reached are visited once, and checked.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from rayad.progress import JobTracker, ProgressGraph, Timestamp
from tests.progress.simulation import Entries, Event, Point, SimulatedJob, deliveries

Behaviour = Callable[[ProgressGraph, Event], tuple[list[tuple[int, Timestamp, Point, int]], list[Event]]]
State = tuple[tuple[Event, ...], tuple[Entries, ...], frozenset[tuple[Point, int]]]


def explore(
    graph: ProgressGraph,
    behaviour: Behaviour,
    workers: int = 2,
    corrupt: Callable[[Entries], list[Entries]] = lambda report: [report],
    tracker: JobTracker | None = None,
    states_max: int = 20_000,
) -> tuple[int, int]:
    """Visit every reachable state, check safety in each and completion in the last ones.

    Returns the number of states, and of those in which a -1 has overtaken its +1.
    """
    overtaken = 0
    job = SimulatedJob(graph, workers, tracker, corrupt)
    told = Counter(job.ledger)  # what the one tracker of this exploration knows
    start = freeze(job)
    seen = {start}
    work = deque([start])
    while work:
        state = work.popleft()
        thaw(job, state)
        tell(job, told)
        overtaken += any(count < 0 for count in job.ledger.values())
        job.check_frontiers()
        job.check_safety()
        job.check_notifications()
        moves: list[Callable[[], None]] = [
            lambda event=event: job.act(event, *behaviour(graph, event)) for event in distinct(job.runnable())
        ]
        moves += [lambda worker=worker: job.queues[worker].popleft() and None for worker in range(workers) if job.queues[worker]]
        if not moves:
            assert not job.live, f"everything was delivered, but these cannot run: {job.live}"
            assert job.tracker.is_complete(), f"nothing is left to do, but these counts are: {job.tracker.counts()}"
        for move in moves:
            thaw(job, state)
            before = [list(queue) for queue in job.queues]
            move()
            for was, now in zip(before, job.queues, strict=True):
                if len(now) < len(was):
                    for location, time, delta in was[0]:
                        job.ledger[location, time] += delta
            following = freeze(job)
            if following not in seen:
                assert len(seen) < states_max, f"more than {states_max} states: make the job smaller"
                seen.add(following)
                work.append(following)
    return len(seen), overtaken


def freeze(job: SimulatedJob) -> State:
    live = tuple(sorted(job.live, key=repr))
    ledger = frozenset((point, count) for point, count in job.ledger.items() if count)
    return live, tuple(tuple(queue) for queue in job.queues), ledger  # type: ignore[return-value]


def thaw(job: SimulatedJob, state: State) -> None:
    live, queues, ledger = state
    job.live = list(live)
    job.queues = [deque(queue) for queue in queues]  # type: ignore[arg-type]
    job.ledger = Counter(dict(ledger))


def tell(job: SimulatedJob, told: Counter[Point]) -> None:
    """Bring the tracker from what it knows to the state's ledger: counts are sums, so the difference is one report."""
    points = {*told, *job.ledger}
    job.tracker.apply([(*point, job.ledger[point] - told[point]) for point in points if job.ledger[point] != told[point]])
    told.clear()
    told.update(job.ledger)


def distinct(events: Iterable[Event]) -> list[Event]:
    return list(dict.fromkeys(events))


def notification(graph: ProgressGraph, event: Event) -> Event:
    """A request of the handler of `event` for a notification at its own time."""
    return Event(event.node, event.time, (graph.notify_location(event.node), event.time), "notification", event.worker)


def first_routes(graph: ProgressGraph, event: Event, receiver: int) -> list[tuple[int, Timestamp, Point]]:
    """Where a message of `event`'s handler at its own time can reach `receiver`."""
    return [route for route in deliveries(graph, event.node, event.time) if route[0] == receiver]


Actions = tuple[list[tuple[int, Timestamp, Point, int]], list[Event]]


def crossing(graph: ProgressGraph, event: Event, workers: int = 2) -> Actions:
    """The `loop` graph: messages go three rounds, each from one worker to the next, and leave in round 2; they ask for notifications."""
    following = (event.worker + 1) % workers
    if event.node == 0:
        return [(*route, following) for route in first_routes(graph, event, 1)], []
    if event.node == 3:
        return [], [notification(graph, event)] if event.kind == "message" else []
    if event.kind == "notification":
        return [], []
    if event.time.counters[0] < 2:
        return [(*route, following) for route in first_routes(graph, event, 1)], [notification(graph, event)] if event.time.counters[
            0
        ] else []
    return [(*route, following) for route in first_routes(graph, event, 3)], []


def aggregating(graph: ProgressGraph, event: Event) -> Actions:
    """The `loop` graph with an aggregation in the loop: messages only ask for a notification, and that sends, once round or out."""
    other = 1 - event.worker
    if event.node == 0:
        return [(*route, worker) for route in first_routes(graph, event, 1) for worker in (0, 1)], []
    if event.kind == "message":
        return [], [notification(graph, event)]
    if event.node == 3:
        return [], []
    receiver = 1 if event.time.counters[0] < 1 else 3
    return [(*route, other) for route in first_routes(graph, event, receiver)], []


def two_epochs(graph: ProgressGraph, event: Event) -> Actions:
    """As `crossing`, from a source that sends in epoch 0 and again in epoch 1."""
    sends, requests = crossing(graph, event)
    if event.node == 0 and event.time.epoch == 0:
        later = Timestamp(1)
        requests = [Event(0, later, (graph.notify_location(0), later), "notification", event.worker)]
    return sends, requests


def inner_and_outer(graph: ProgressGraph, event: Event) -> Actions:
    """The `nested_loops` graph: one inner round in each of two outer rounds, to the other worker; the sink asks for notifications."""
    other = 1 - event.worker
    receiver = {0: 1, 1: 2, 2: 2 if event.time.counters[-1:] == (0,) else 4, 4: 1 if event.time.counters == (0,) else 6}.get(event.node)
    if receiver is None or (event.node != 0 and event.kind == "notification"):
        return [], [notification(graph, event)] if event.kind == "message" else []
    requests = [notification(graph, event)] if event.node == 4 else []
    return [(*route, other) for route in first_routes(graph, event, receiver)[:1]], requests
