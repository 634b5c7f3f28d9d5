"""Strongly connected components and topological orders of small directed graphs with vertices 0 .. n-1."""

from __future__ import annotations

from rayad.progress.errors import DataflowError


def components_in_order(successors: list[list[int]]) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan 1972, without recursion).

    >>> components_in_order([[1], [2], [1, 3], []])
    [[0], [1, 2], [3]]
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in range(len(successors)):
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            vertex, position = work.pop()
            if position == 0:
                index[vertex] = low[vertex] = len(index)
                stack.append(vertex)
                on_stack.add(vertex)
            else:
                low[vertex] = min(low[vertex], low[successors[vertex][position - 1]])
            while position < len(successors[vertex]):
                successor = successors[vertex][position]
                position += 1
                if successor not in index:
                    work += [(vertex, position), (successor, 0)]
                    break
                if successor in on_stack:
                    low[vertex] = min(low[vertex], index[successor])
            else:
                if low[vertex] == index[vertex]:
                    members = stack[stack.index(vertex) :]
                    del stack[-len(members) :]
                    on_stack.difference_update(members)
                    found.append(sorted(members))
    found.reverse()
    return found


def order_without(size: int, edges: list[tuple[int, int]]) -> list[int]:
    """The rank of each vertex in a topological order of `edges`, which must have no cycle.

    >>> order_without(3, [(2, 0), (0, 1)])
    [1, 2, 0]
    """
    successors: list[list[int]] = [[] for _ in range(size)]
    for source, target in edges:
        successors[source].append(target)
    ranks = [0] * size
    for rank, members in enumerate(components_in_order(successors)):
        if len(members) > 1 or members[0] in successors[members[0]]:
            raise DataflowError(f"the locations {members} lie on a cycle that does not advance time; every cycle needs a feedback")
        ranks[members[0]] = rank
    return ranks
