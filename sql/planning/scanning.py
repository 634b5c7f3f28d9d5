"""Where the queries are inside a query: its text, cut into tokens, queries in parentheses, and the clauses of each SELECT.

This is no parser. It knows strings, names in quotes, comments, parentheses, and the few words that begin a clause; what names mean, and
whether the query is right, DataFusion says. A SELECT in parentheses is a table (in FROM), an operand of UNION and its like, the body of a
WITH, or a value inside an expression: what stands before it says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\"|`[^`]*`)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|<>|!=|\|\||::|!~|.)",
    re.DOTALL,
)
SET_OPERATORS = ("UNION", "INTERSECT", "EXCEPT")
_QUERIES = ("SELECT", "WITH", "VALUES")
_BEHIND = ("ORDER", "LIMIT", "OFFSET", "FETCH")
_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", *_BEHIND)
# fmt: off
_BEFORE_OPERANDS = frozenset((
    "AND", "OR", "NOT", "WHERE", "HAVING", "ON", "WHEN", "THEN", "ELSE", "CASE", "SELECT", "DISTINCT", "ALL", "BY", "QUALIFY", "LIKE",
    "ILIKE", "IS", "FROM", ",", "(",
))
_BEFORE_QUERIES = _BEFORE_OPERANDS | {
    "IN", "ANY", "SOME", "EXISTS", "JOIN", "LATERAL", "AS", "UNION", "INTERSECT", "EXCEPT", "USING", "VALUES", "OVER", "BETWEEN",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a name in quotes, a literal or a sign.

    Args:
        kind: "word", "quoted", "text", "number" or "sign".
        text: as it is written; of words in upper case.
        start, end: where it is.
    """

    kind: str
    text: str
    start: int
    end: int


def tokens_of(query: str) -> list[Token]:
    """The tokens of a query, without blanks and comments.

    >>> [token.text for token in tokens_of("select 'a b' -- x")]
    ['SELECT', "'a b'"]
    """
    found = []
    for match in _TOKEN.finditer(query):
        kind = match.lastgroup or "sign"
        if kind != "blank":
            found.append(Token(kind, match[0].upper() if kind == "word" else match[0], match.start(), match.end()))
    return found


class Role(Enum):
    """What a query in parentheses is."""

    WHOLE = "the whole"
    BODY = "a WITH"
    OPERAND = "an operand of UNION and its like"
    TABLE = "a table"
    EXISTS = "EXISTS"
    IN = "IN"
    ANY = "a comparison with ANY or ALL"
    VALUE = "a value"


@dataclass(slots=True, eq=False)
class Query:
    """A query, in parentheses or as a whole.

    Args:
        role: of it.
        start, end: its tokens, without the parentheses.
        core: the SELECT that it stands in; None: of the whole, of bodies of WITH, of operands.
        around: the query that it stands in.
        span: the tokens that it and its operator are, where it is a part of an expression.
        bodies: of its WITH.
        cores: its SELECTs, and operands in parentheses, in order.
        operators: between them: the token and the last one (ALL, DISTINCT) of each.
        tail: where its ORDER BY, LIMIT and OFFSET begin, behind several cores.
    """

    role: Role
    start: int
    end: int
    core: Core | None = None
    around: Query | None = None
    span: tuple[int, int] = (0, 0)
    bodies: list[Body] = field(default_factory=list)
    body_start: int = 0
    cores: list[Core] = field(default_factory=list)
    operators: list[tuple[int, int]] = field(default_factory=list)
    tail: int = 0

    @property
    def is_value(self) -> bool:
        """Whether it is a part of an expression."""
        return self.role in (Role.EXISTS, Role.IN, Role.ANY, Role.VALUE)


@dataclass(slots=True, eq=False)
class Body:
    """One table of a WITH.

    Args:
        name: its token.
        start, end: its tokens, the name and the closing parenthesis among them.
        query: of it.
    """

    name: int
    start: int
    end: int
    query: Query


@dataclass(slots=True, eq=False)
class Core:
    """One SELECT, or an operand in parentheses.

    Args:
        query: that it is in.
        start, end: its tokens.
        clauses: where each clause begins, behind its word, and ends.
        inner: queries in it.
    """

    query: Query
    start: int
    end: int = 0
    clauses: dict[str, tuple[int, int]] = field(default_factory=dict)
    inner: list[Query] = field(default_factory=list)

    def is_in(self, clause: str, query: Query) -> bool:
        """Whether a query in it stands in this clause."""
        start, end = self.clauses.get(clause, (0, 0))
        return start <= query.start < end


class Scanned:
    """The structure of a query. Raises ValueError where parentheses do not match."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        while self.tokens and self.tokens[-1].text == ";":
            self.tokens.pop()
        self._closes = self._matched()
        self.whole = Query(Role.WHOLE, 0, len(self.tokens))
        self._read(self.whole)

    def _matched(self) -> dict[int, int]:
        closes, opened = {}, []
        for at, token in enumerate(self.tokens):
            if token.text == "(":
                opened.append(at)
            elif token.text == ")":
                if not opened:
                    raise ValueError("a parenthesis is closed that is not open")
                closes[opened.pop()] = at
        if opened:
            raise ValueError("a parenthesis is not closed")
        return closes

    def word(self, at: int) -> str:
        """A token, in upper case; nothing beyond the ends."""
        return self.tokens[at].text if 0 <= at < len(self.tokens) and self.tokens[at].kind in ("word", "sign") else ""

    def queries(self, within: Query | None = None) -> Iterator[Query]:
        """All queries inside one, from the outside in."""
        query = within or self.whole
        for one in (*(body.query for body in query.bodies), *(inner for core in query.cores for inner in core.inner)):
            yield one
            yield from self.queries(one)

    def close_of(self, opening: int) -> int:
        """Where a parenthesis is closed."""
        return self._closes[opening]

    def _is_query(self, at: int, end: int) -> bool:
        if self.word(at) in _QUERIES:
            return True
        if at >= end or self.word(at) != "(":
            return False
        close = self._closes[at]
        return self._is_query(at + 1, close) and (close + 1 >= end or self.word(close + 1) in (*SET_OPERATORS, *_BEHIND))

    def _read(self, query: Query) -> None:
        at = self._bodies(query) if self.word(query.start) == "WITH" else query.start
        query.body_start = at
        query.tail = query.end
        while at < query.end:
            core = Core(query, at)
            query.cores.append(core)
            at = self._core(core, query.end)
            if self.word(at) in SET_OPERATORS and at < query.end:
                last = at + 1 if self.word(at + 1) in ("ALL", "DISTINCT") else at
                query.operators.append((at, last))
                at = last + 1
        if query.operators:
            ends = [core.clauses[word][0] - 1 for core in query.cores[-1:] for word in _BEHIND if word in core.clauses]
            query.tail = min(ends, default=query.end)

    def _bodies(self, query: Query) -> int:
        at = query.start + (2 if self.word(query.start + 1) == "RECURSIVE" else 1)
        while True:
            start = at
            while self.word(at) != "AS":
                at = self._closes[at] + 1 if self.word(at) == "(" else at + 1
                if at >= query.end:
                    raise ValueError("a WITH has no AS")
            while self.word(at) != "(":
                at += 1
                if at >= query.end:
                    raise ValueError("a WITH has no parentheses")
            close = self._closes[at]
            body = Query(Role.BODY, at + 1, close, None, query)
            query.bodies.append(Body(start, start, close + 1, body))
            self._read(body)
            at = close + 1
            if self.word(at) != ",":
                return at
            at += 1

    def _core(self, core: Core, end: int) -> int:
        """Read one SELECT. Returns where it ends."""
        clause, begun, at = "", core.start, core.start

        def ended(until: int) -> None:
            if clause:
                core.clauses.setdefault(clause, (begun, until))

        while at < end:
            word = self.word(at)
            if word == "(":
                at = self._parenthesis(core, at, clause, is_table=clause == "FROM") + 1
                continue
            before = self.word(at - 1)
            if word in SET_OPERATORS and not (word == "EXCEPT" and before == "*"):
                break
            is_clause = (word in _CLAUSES and before not in ("WITHIN", ".")) or (word == "VALUES" and not clause)
            if is_clause and not (word == "FROM" and before == "DISTINCT" and self.word(at - 2) in ("IS", "NOT")):
                ended(at)
                clause, begun = word, at + 1
            at += 1
        ended(at)
        core.end = at
        return at

    def _parenthesis(self, core: Core, opening: int, clause: str, *, is_table: bool) -> int:
        """Read what is in parentheses. ``is_table``: tables may stand here. Returns where they are closed."""
        close = self._closes[opening]
        before = self.word(opening - 1)
        at_table = is_table and (before in ("FROM", "JOIN", "LATERAL", ",", "("))
        is_call = self.tokens[opening - 1].kind in ("word", "quoted") and before not in _BEFORE_QUERIES if opening else False
        if not is_call and self._is_query(opening + 1, close):
            query = self._inner(core, opening, close, clause, at_table=at_table)
            core.inner.append(query)
            self._read(query)
            return close
        at = opening + 1
        while at < close:
            at = self._parenthesis(core, at, clause, is_table=at_table) + 1 if self.word(at) == "(" else at + 1
        return close

    def _inner(self, core: Core, opening: int, close: int, clause: str, *, at_table: bool) -> Query:
        around, before = core.query, self.word(opening - 1)
        if not clause:
            return Query(Role.OPERAND, opening + 1, close, core, around)
        if at_table:
            return Query(Role.TABLE, opening + 1, close, core, around)
        role, start = Role.VALUE, opening
        if before == "EXISTS":
            role, start = Role.EXISTS, opening - 1
        elif before == "IN":
            role, start = Role.IN, self.operand_before(opening - (2 if self.word(opening - 2) == "NOT" else 1))
        elif before in ("ANY", "SOME", "ALL") and self.word(opening - 2) in ("=", "<>", "!=", "<", "<=", ">", ">="):
            role, start = Role.ANY, self.operand_before(opening - 2)
        return Query(role, opening + 1, close, core, around, (start, close + 1))

    def operand_before(self, end: int) -> int:
        """Where the left side of an operator begins."""
        at, depth = end, 0
        while at > 0:
            word = self.word(at - 1)
            if word in (")", "END"):
                depth += 1
            elif word in ("(", "CASE") and depth:
                depth -= 1
            elif not depth and (word in _BEFORE_OPERANDS or word in ("INTERVAL", "BETWEEN")):
                return at
            at -= 1
        return at


__all__ = ["SET_OPERATORS", "Body", "Core", "Query", "Role", "Scanned", "Token", "tokens_of"]
