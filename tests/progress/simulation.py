"""A simulated job for the proofs: replicas that act, reports that travel late, and the truth to compare the tracker with.

The truth is modelled apart from the code under test: `model_frontiers` walks the graph step by step with `enter`, `leave` and `next_round`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rayad.progress import (
    ChildPort,
    JobTracker,
    LocationKind,
    NodeKind,
    NodePort,
    ProgressGraph,
    ScopeInput,
    ScopeOutput,
    Timestamp,
)

Point = tuple[int, Timestamp]
Entries = tuple[tuple[int, Timestamp, int], ...]


def minimal(times: Iterable[Timestamp]) -> set[Timestamp]:
    """The minimal elements, the slow and obvious way."""
    distinct = set(times)
    return {time for time in distinct if not any(other <= time and other != time for other in distinct)}


def model_frontiers(graph: ProgressGraph, points: Iterable[Point]) -> dict[tuple[int, int], set[Timestamp]]:
    """The frontier at every input port of every node, if `points` are the active pointstamps."""
    seen: defaultdict[object, list[Timestamp]] = defaultdict(list)
    work: list[tuple[int, object, Timestamp]] = []  # (scope, endpoint, time): at a target if the endpoint was reached, else leaving

    def arrive(scope: int, target: object, time: Timestamp) -> None:
        key = ("arrive", scope, target)
        if any(old <= time for old in seen[key]):
            return
        seen[key].append(time)
        match target:
            case NodePort(node, _):
                leave_node(node, time)
            case ChildPort(child, port):
                leave(child, ScopeInput(port), time.enter())
            case ScopeOutput(port):
                parent = graph.scope_by_id[scope].parent
                assert parent is not None
                leave(parent, ChildPort(scope, port), time.leave())

    def leave_node(node: int, time: Timestamp) -> None:
        after = pass_node(graph, node, time)
        if after is None and len(time.counters) > 1 and graph.node_by_id[node].max_rounds != 1:
            after = time.next_round()  # a later time may have a smaller inner counter, and pass: the bound says nothing
        if after is not None:
            for port in range(graph.node_by_id[node].outputs):
                leave(graph.node_by_id[node].scope, NodePort(node, port), after)

    def leave(scope: int, source: object, time: Timestamp) -> None:
        work.append((scope, source, time))

    for identifier, time in points:
        location = graph.locations[identifier]
        if location.kind is LocationKind.TARGET:
            arrive(location.scope, NodePort(location.owner, location.port), time)
        elif location.kind is LocationKind.CHILD_INPUT:
            arrive(location.scope, ChildPort(location.owner, location.port), time)
        else:
            leave_node(location.owner, time)
    while work:
        scope, source, time = work.pop()
        for edge in graph.edges:
            if edge.scope == scope and edge.source == source:
                arrive(scope, edge.target, time)
    return {
        (node.id, port): minimal(seen["arrive", node.scope, NodePort(node.id, port)]) for node in graph.nodes for port in range(node.inputs)
    }


def pass_node(graph: ProgressGraph, node: int, time: Timestamp) -> Timestamp | None:
    """What comes out of a node when `time` goes in."""
    spec = graph.node_by_id[node]
    if spec.kind is not NodeKind.FEEDBACK:
        return time
    if not time.counters:
        return Timestamp(time.epoch + 1)
    after = time.next_round()
    return None if spec.max_rounds is not None and after.counters[-1] >= spec.max_rounds else after


@dataclass(frozen=True)
class Event:
    """Something pending at an operator: it is counted at `counted`, and its handler runs at `time`."""

    node: int
    time: Timestamp
    counted: Point
    kind: str  # message, notification or capability
    worker: int
    guarantee: Timestamp | None = None  # of a notification with a capability of its own


def deliveries(graph: ProgressGraph, node: int, time: Timestamp, steps: int = 12) -> Iterator[tuple[int, Timestamp, Point]]:
    """Where a message sent by `node` at `time` can physically go: (receiving operator, its time there, where it is counted)."""
    spec = graph.node_by_id[node]
    work: deque[tuple[int, object, Timestamp, Point | None, int]] = deque(
        (spec.scope, NodePort(node, port), time, None, steps) for port in range(spec.outputs)
    )
    while work:
        scope, source, now, entry, left = work.popleft()
        for edge in graph.edges:
            if edge.scope != scope or edge.source != source or left == 0:
                continue
            match edge.target:
                case NodePort(target, port) if graph.node_by_id[target].kind is NodeKind.OPERATOR:
                    yield target, now, entry or (graph.target_location(target, port), now)
                case NodePort(target, _):
                    after = pass_node(graph, target, now)
                    if after is not None:
                        outputs = range(graph.node_by_id[target].outputs)
                        work.extend((scope, NodePort(target, out), after, None, left - 1) for out in outputs)
                case ChildPort(child, port):
                    entered = entry or (graph.child_input_location(child, port), now)
                    work.append((child, ScopeInput(port), now.enter(), entered, left - 1))
                case ScopeOutput(port):
                    parent = graph.scope_by_id[scope].parent
                    assert parent is not None
                    work.append((parent, ChildPort(scope, port), now.leave(), None, left - 1))


class SimulatedJob:
    """Replicas, their reports on the way, the tracker, and a ledger of what was delivered.

    `corrupt` may replace a report by others (a planted bug); by default it travels as it is.
    """

    def __init__(
        self,
        graph: ProgressGraph,
        workers: int = 2,
        tracker: JobTracker | None = None,
        corrupt: Callable[[Entries], list[Entries]] = lambda report: [report],
    ) -> None:
        self.graph = graph
        self.workers = workers
        self.tracker = tracker or JobTracker(graph)
        self.corrupt = corrupt
        self.queues: list[deque[Entries]] = [deque() for _ in range(workers)]
        self.ledger: Counter[Point] = Counter()  # what the tracker was told
        self.live: list[Event] = []
        for node in graph.nodes:
            for time, count in node.initial:
                point = (graph.notify_location(node.id), time)
                self.ledger[point] += count
                self.live += [Event(node.id, time, point, "notification", replica % workers) for replica in range(count)]

    def runnable(self) -> list[Event]:
        """Live events whose handler may run now: messages always; notifications as the tracker's views allow."""
        return [event for event in self.live if event.kind == "message" or self.is_deliverable(event)]

    def is_deliverable(self, event: Event) -> bool:
        view = self.tracker.view(event.node)
        time = event.guarantee or event.time
        return not any(f <= time for f in view.input_frontier) and not any(p <= time and p != time for p in view.notify_frontier)

    def act(self, event: Event, sends: Iterable[tuple[int, Timestamp, Point, int]], requests: Iterable[Event] = ()) -> None:
        """Run the handler of `event`: it sends (node, time, counted, worker) and makes requests; queue one atomic report."""
        self.live.remove(event)
        changes: Counter[Point] = Counter()
        changes[event.counted] -= 1
        for node, time, counted, worker in sends:
            self.live.append(Event(node, time, counted, "message", worker))
            changes[counted] += 1
        for request in requests:
            self.live.append(request)
            changes[request.counted] += 1
        report = tuple((location, time, delta) for (location, time), delta in changes.items() if delta)
        if report:
            self.queues[event.worker].extend(self.corrupt(report))

    def deliver(self, worker: int) -> None:
        """The oldest report of `worker` reaches the tracker."""
        report = self.queues[worker].popleft()
        self.tracker.apply(report)
        for location, time, delta in report:
            self.ledger[location, time] += delta

    def counted(self) -> list[Point]:
        """What the tracker should consider active."""
        return [point for point, count in self.ledger.items() if count > 0]

    def check_frontiers(self) -> None:
        """The tracker shows exactly the frontiers that the delivered counts imply."""
        expected = model_frontiers(self.graph, self.counted())
        shown = {port: set(self.tracker.frontier_at(*port)) for port in expected}
        assert shown == expected, f"the tracker shows {shown}, but the counts imply {expected}"

    def check_safety(self) -> None:
        """No frontier has passed a time that a live event could still result in."""
        for (node, port), times in model_frontiers(self.graph, [event.counted for event in self.live]).items():
            frontier = self.tracker.frontier_at(node, port)
            for time in times:
                assert any(front <= time for front in frontier), f"{frontier} at input {port} of node {node} has passed {time}"

    def check_notifications(self) -> None:
        """No deliverable notification is preceded by a live event that could still put something at or before its time."""
        for event in self.live:
            if event.kind != "message" and self.is_deliverable(event):
                time = event.guarantee or event.time
                others = [other.counted for other in self.live if other is not event]
                truth = model_frontiers(self.graph, others)
                ahead = [t for port in range(self.graph.node_by_id[event.node].inputs) for t in truth[event.node, port] if t <= time]
                assert not ahead, f"{event} may run, but {ahead} can still arrive"

    def finish(self) -> None:
        """Deliver everything and run every handler without output; then the job is complete."""
        while True:
            for worker in range(self.workers):
                while self.queues[worker]:
                    self.deliver(worker)
            runnable = self.runnable()
            if not runnable:
                break
            for event in runnable:
                self.act(event, ())
        assert not self.live, f"everything was delivered, but these cannot run: {self.live}"
        assert self.tracker.is_complete()
        assert self.tracker.counts() == []
        for node in self.graph.nodes:
            assert all(self.tracker.frontier_at(node.id, port) == () for port in range(node.inputs))
