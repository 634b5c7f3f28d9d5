"""The logical graph that the user's calls build, before it is planned.

Mutable while the program is written (`Dataflow` adds to it), read-only afterwards. A node lives in one scope: the root or a
loop context. ``where`` is the user's line that made it, for error messages.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rayad.dataflow.records.selectors import KeySelector
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.resources import Resources
from rayad.progress import DataflowError, RayadError, arguments, show


class NodeKind(enum.Enum):
    """What a logical node is."""

    SOURCE = "source"
    INPUT = "input"
    VERTEX = "vertex"
    STATELESS = "stateless"
    UNION = "union"
    EXCHANGE = "exchange"
    INGRESS = "ingress"
    EGRESS = "egress"
    FEEDBACK = "feedback"
    PROBE = "probe"
    SINK = "sink"


class PartitionKind(enum.Enum):
    """How the batches of an edge are distributed over the replicas of the receiver."""

    FORWARD = "forward"
    KEYS = "keys"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class Partition:
    """The partitioning of one edge."""

    kind: PartitionKind = PartitionKind.FORWARD
    key: KeySelector | None = None
    buffer: int | None = None
    """Of ``rebalance``: how many batches a receiver may have at once."""
    keeps_batches: bool = False
    """Of ``rebalance``: whether batches are neither cut nor joined on their way."""
    name: str | None = None
    """Of ``rebalance``: the name of the vertex that stateless operators behind it make."""

    def describe(self) -> str:
        """For graphs and messages."""
        return f"keys({self.key.describe()})" if self.key is not None else self.kind.value


FORWARD = Partition()


@dataclass(frozen=True, slots=True)
class LogicalEdge:
    """From an output port of ``source`` to the next input port of the node whose ``inputs`` it is in."""

    source: int
    port: int
    partition: Partition = FORWARD


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """The root (id 0) or a loop context."""

    id: int
    parent: int | None
    name: str
    depth: int
    where: str


@dataclass(slots=True)
class Node:
    """A logical node. ``op`` is what it does: a Source, a vertex factory, a stateless operator, a Sink, a round limit ..."""

    id: int
    name: str
    kind: NodeKind
    scope: int
    where: str
    outputs: int = 1
    inputs: list[LogicalEdge] = field(default_factory=list)
    op: Any = None
    parallelism: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    resources: Resources | None = None
    """What each replica asks for, where the program says so; such a node begins a stage."""


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\- ]*")

_NOT_NAME = re.compile(r"[^A-Za-z0-9_.\- ]")


def check_name(name: Any, what: str) -> str:
    """A name for a node, flow or job: it may become part of a path, so it holds letters, digits, ``_ . - `` and blanks and no ``..``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name or len(name) > 100:
        raise DataflowError(
            f"{what} {show(name, 120)} is not a name: use 1 to 100 letters, digits, '_', '-', '.' or blanks, "
            "beginning with a letter, digit or '_' and without '..'"
        )
    return name


class Program(Protocol):
    """What is compiled: :class:`rayad.Dataflow` is one."""

    @property
    def name(self) -> str: ...

    @property
    def graph(self) -> LogicalGraph: ...


class LogicalGraph:
    """The nodes and scopes of one dataflow, in the order in which they were made."""

    def __init__(self, epochs_together: int = 1) -> None:
        self.epochs_together = epochs_together
        """How many epochs collections take together."""
        self.nodes: list[Node] = []
        self.scopes: list[ScopeInfo] = [ScopeInfo(0, None, "root", 0, "")]
        self.sinks: dict[str, Node] = {}
        """The nodes of sinks by the name of their result."""
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        """By base of unnamed nodes: the highest number that was taken at the last search."""
        self._grown: list[tuple[Node, int, int, Any]] = []
        """Nodes that have got another input, with the numbers of their inputs and outputs and the operator before."""
        self._taken_sinks: dict[str, int] = {}
        """By base of unnamed results: the highest number that was taken at the last search."""

    def before(self, node: int) -> Iterator[Node]:
        """A node, and those from which it gets something, as far as the program is written."""
        found, queue = {node}, [node]
        while queue:
            here = self.nodes[queue.pop()]
            yield here
            fresh = {edge.source for edge in here.inputs} - found
            found |= fresh
            queue += fresh

    def add_scope(self, parent: int, name: str | None) -> ScopeInfo:
        """A new loop context inside ``parent``; an unnamed one is called ``loop`` with a number."""
        if name is not None:
            check_name(name, "the loop name")
        claimed = self._claim(name or self._free_name("loop"))
        scope = ScopeInfo(len(self.scopes), parent, claimed, self.scopes[parent].depth + 1, users_line())
        self.scopes.append(scope)
        return scope

    def add(
        self,
        kind: NodeKind,
        scope: int,
        *,
        name: str | None,
        base: str,
        op: Any = None,
        inputs: list[LogicalEdge] | None = None,
        outputs: int = 1,
        parallelism: int | None = None,
        resources: Resources | None = None,
        **options: Any,
    ) -> Node:
        """A new node; an unnamed one is called after ``base`` with a number. Nothing is added when something is wrong."""
        where = users_line()
        if name is not None:
            check_name(name, "the operator's name")
        called = self._free_name(base) if name is None else name
        if parallelism is not None:
            parallelism = check_count(parallelism, f"parallelism of {called!r}")
        node = Node(len(self.nodes), called, kind, scope, where, outputs, list(inputs or ()), op, parallelism, options, resources)
        for edge in node.inputs:
            source = self.nodes[edge.source]
            if self.scope_of_output(source) != scope:
                raise DataflowError(
                    f"{called!r} ({where}) is in {self.scopes[scope].name!r} but its input {source.name!r} ({source.where}) is in "
                    f"{self.scopes[self.scope_of_output(source)].name!r}: an edge may not cross scopes; use loop.enter(stream) or "
                    "loop.leave(stream)"
                )
        self._claim(called)
        self.nodes.append(node)
        return node

    def grow(self, node: Node, edge: LogicalEdge, op: Any) -> int:
        """Give a node one more input and one more output, and another operator for them. Returns the number of the output."""
        self._grown.append((node, len(node.inputs), node.outputs, node.op))
        node.inputs.append(edge)
        node.op = op
        node.outputs += 1
        return node.outputs - 1

    def scope_of_output(self, node: Node) -> int:
        """The scope in which a node's output is: an ingress' is inside, an egress' outside."""
        if node.kind is NodeKind.INGRESS:
            return int(node.options["inner"])
        if node.kind is NodeKind.EGRESS:
            parent = self.scopes[node.scope].parent
            assert parent is not None
            return parent
        return node.scope

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Take back every node, scope, name and input that was added inside, if it ends in an error."""
        nodes, scopes, names = len(self.nodes), len(self.scopes), len(self._names)
        sinks, grown = len(self.sinks), len(self._grown)
        try:
            yield
        except BaseException:
            for node, inputs, outputs, op in reversed(self._grown[grown:]):
                del node.inputs[inputs:]
                node.outputs, node.op = outputs, op
            del self._grown[grown:]
            del self.nodes[nodes:], self.scopes[scopes:]
            for sink in list(self.sinks)[sinks:]:
                del self.sinks[sink]
            for name in list(self._names)[names:]:
                del self._names[name]
            self._taken.clear()  # names are free again
            self._taken_sinks.clear()
            raise

    def free_sink(self, base: str) -> str:
        """A name for a result without one: ``base``, or ``base`` with a number."""
        number = self._taken_sinks.get(base, 1)
        while (name := base if number == 1 else f"{base}-{number}") in self.sinks:
            number += 1
        self._taken_sinks[base] = number
        return name

    def is_free(self, name: str) -> bool:
        """Whether no node and no loop has this name yet."""
        return name not in self._names

    def require_free(self, name: str | None) -> None:
        """Raise DataflowError if a node of this name could not be added; for operators that add several nodes, before the first."""
        if name is not None:
            check_name(name, "the operator's name")
            self._refuse_taken(name)

    def _refuse_taken(self, name: str) -> None:
        if name in self._names:
            raise DataflowError(
                f"the name {name!r} is used twice: at {self._names[name]} and at {users_line()}; names in one dataflow are unique"
            )

    def _claim(self, name: str) -> str:
        self._refuse_taken(name)
        self._names[name] = users_line()
        return name

    def _free_name(self, base: str) -> str:
        base = _NOT_NAME.sub("_", base)
        number = self._taken.get(base, 1)
        name = base if number == 1 else f"{base}-{number}"
        while name in self._names:
            number += 1
            name = f"{base}-{number}"
        self._taken[base] = number
        return name

    def consumers(self) -> dict[tuple[int, int], list[tuple[Node, int]]]:
        """(node id, output port) -> the nodes and input ports that it feeds."""
        out: dict[tuple[int, int], list[tuple[Node, int]]] = {}
        for node in self.nodes:
            for index, edge in enumerate(node.inputs):
                out.setdefault((edge.source, edge.port), []).append((node, index))
        return out


COUNT_MOST = 1 << 20
"""More replicas, rounds of a built-in algorithm, parts or outputs than this are a mistake; lists of them would be made."""


def check_count(value: Any, what: str, *, least: int = 1, more: str = "", error: type[RayadError] = DataflowError) -> int:
    """A number of replicas, rounds, parts or outputs: an int of at least 1, and not absurdly large."""
    count = arguments.whole(value, what, least=least, more=more, error=error)
    if count > COUNT_MOST:
        raise error(f"{what} is {show(value)}: more than {COUNT_MOST} are not possible")
    return count
