"""DataFusion as parser, binder and optimizer: a query becomes a logical plan, of which nothing is executed there.

Tables are registered by schema, without rows: no data goes to DataFusion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rayad.progress import DataflowError, show

_SETTINGS = {
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.sql_parser.parse_float_as_decimal": "true",  # 0.06 + 0.01 is 0.07, as in the standard
    "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery": "false",  # joins instead
    "datafusion.optimizer.enable_leaf_expression_pushdown": "false",
    "datafusion.optimizer.max_passes": "3",
    "datafusion.execution.collect_statistics": "false",
}
_OF_THE_CLOCK = re.compile(r"\b(now|current_date|current_time|current_timestamp|today|random|uuid)\(\)")
_OF_BAGS = re.compile(r"\b(intersect|except)\s+all\b", re.IGNORECASE)
_IGNORED = re.compile(r"\b(tablesample|with\s+(rollup|cube|totals))\b", re.IGNORECASE)
"""What DataFusion reads, and then leaves out of its plan."""
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_TEXTS = re.compile(r'Utf8\("(?:[^"\\]|\\.)*"\)')


def datafusion() -> Any:
    """The package. Raises DataflowError where it is not installed."""
    try:
        import datafusion as package
    except ImportError as error:
        raise DataflowError(f"flow.sql() needs the package datafusion: pip install 'rayad[sql]' ({error})") from error
    return package


def context() -> Any:
    """A session of DataFusion with the settings under which queries are read."""
    package = datafusion()
    config = package.SessionConfig()
    for name, value in _SETTINGS.items():
        config = config.set(name, value)
    return package.SessionContext(config)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column of this one is handled: texts in one form, no dictionaries."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    return kind


class Planner:
    """Plans of one query.

    Args:
        query: in SQL.
        schemas: of its tables, by name.
    """

    def __init__(self, query: str, schemas: Mapping[str, pa.Schema]) -> None:
        self.query = query
        package = datafusion()
        self.context = context()
        self.expression_of = package.Expr
        self._tables = list(schemas)
        for name, schema in schemas.items():
            plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
            self.context.register_record_batches(f'"{name}"', [[pa.RecordBatch.from_pylist([], plain)]])
        self.subqueries: dict[str, Any] = {}
        """By the name of the function that stands for each."""
        self.written: Any = None
        """The plan as it is written."""
        self.plan: Any = None
        """The plan as it is translated."""
        self.names: tuple[str, ...] = ()
        """Of the columns of the result."""

    def sets_of_bags(self, text: str) -> int:
        """How often a query has INTERSECT ALL or EXCEPT ALL."""
        return len(_OF_BAGS.findall(_QUOTED.sub(" ", text)))

    def logical(self, text: str) -> Any:
        """The plan of a query as it is written. Raises DataflowError."""
        package = datafusion()
        ignored = _IGNORED.search(_QUOTED.sub("", text))
        if ignored is not None:
            raise self.refusal(f"{ignored[0].upper()} is not supported: DataFusion would leave it out")
        options = package.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
        try:
            plan = self.context.sql_with_options(text, options).logical_plan()
        except Exception as error:  # DataFusion raises Exception itself
            raise self.refusal(self._told(error)) from error
        clock = _OF_THE_CLOCK.search(_TEXTS.sub("", plan.display_indent()))
        if clock is not None:
            raise self.refusal(
                f"{clock[0]} gives something else each time, so that the result would not follow from the records that are there: give the "
                "time as a column, or as a literal"
            )
        return plan

    def optimized(self, plan: Any) -> Any:
        """What the optimizer makes of a plan. Raises DataflowError."""
        try:
            return self.context.create_dataframe_from_logical_plan(plan).optimized_logical_plan()
        except Exception as error:
            raise self.refusal(self._told(error)) from error

    def optimized_once(self, plan: Any) -> Any:
        """What the first pass of the optimizer makes of a plan. Raises DataflowError."""
        try:
            self.context.sql("set datafusion.optimizer.max_passes = 1")
            return self.optimized(plan)
        finally:
            self.context.sql(f"set datafusion.optimizer.max_passes = {_SETTINGS['datafusion.optimizer.max_passes']}")

    def _told(self, error: Exception) -> str:
        told = told_by(error)
        if "table '" in told and "not found" in told:
            told = f"{told}; the tables that were given are {sorted(self._tables)}"
        return told

    def wrapped(self, expression: Any) -> Any:
        """An expression as DataFusion's public class."""
        return expression if isinstance(expression, self.expression_of) else self.expression_of(expression)

    def of_bytes(self, message: bytes) -> Any:
        """An expression, of what DataFusion writes for it."""
        return self.expression_of.from_bytes(message, self.context)

    def refusal(self, why: str) -> DataflowError:
        """The error for this query."""
        return DataflowError(f"flow.sql({show(' '.join(self.query.split()), 200)}): {why}")

    def fields(self, plan: Any) -> tuple[tuple[str, ...], tuple[pa.DataType, ...]]:
        """The columns of what a plan gives: names with their relations, as columns of expressions have them, and types."""
        schema = self.frame(plan).schema()
        variant = plan.to_variant()
        names = variant.schema().field_names() if hasattr(variant, "schema") else None
        if names is None or len(names) != len(schema):
            names = schema.names
        return tuple(names), tuple(plain_type(field.type) for field in schema)

    def frame(self, *plans: Any) -> Any:
        """The rows of a plan, or of the product of two, or one row: for types of expressions over them."""
        if not plans:
            return self.context.sql("select 1")
        first, *others = (self.context.create_dataframe_from_logical_plan(plan) for plan in plans)
        for other in others:
            first = first.join_on(other, self.expression_of.literal(True), how="inner")
        return first

    def types(self, frame: Any, expressions: Sequence[Any]) -> list[pa.DataType]:
        """What expressions over a frame give."""
        if not expressions:
            return []
        named = [expression.alias(f"x{at}") for at, expression in enumerate(expressions)]
        return [plain_type(field.type) for field in frame.select(*named).schema()]


def told_by(error: Exception) -> str:
    """What DataFusion says, in words that hold here."""
    text = " ".join(str(error).strip().partition("\nbacktrace")[0].split())
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^(?:DataFusion error: )?(?:Optimizer rule '\w+' failed caused by |type_coercion caused by )*", ""),
        (r"^(?:\w+ caused by )?(?:Error during planning: |SQL error: |Schema error: |Execution error: |General error: )+", ""),
        (r"datafusion\.(?:public\.)?(?=\w+(?:\.\w+)*' not found)", ""),
        (r"(?:Internal error: )(.*?)\.? This issue was likely caused by a bug in DataFusion's code.*", r"\1"),
        (r"Error during planning: ", ""),
        (r"Column in SELECT must be in GROUP BY or an aggregate function: While expanding wildcard, column (\S+) must appear in .*",
         r"the column \1 must be in the GROUP BY, or in an aggregate"),
        (r"Ambiguous reference to unqualified field (\S+)", r"several tables have a column \1: say of which, as in x.\1"),
        (r"\.? ?Column names are case sensitive\. You can use double quotes to refer to the (.+?) column or disable the \S+ "
         r"configuration\.", r" Names are lower-case unless they are in double quotes: \1."),
        (r"Valid fields are ", "The columns there are: "),
        (r"Projections require unique expression names but the expression (\".*?\") at position \d+ and (\".*?\") at position \d+ have the "
         r"same name\. Consider aliasing \(\"AS\"\) one of them\.", r"two columns have one name, \1 and \2: give one another with AS"),
        (r"Schema contains qualified field name (\S+) and unqualified field name (\S+) which would be ambiguous",
         r"two columns are called \2, and one of them is \1: give one another name with AS"),
        (r"Schema contains duplicate (?:un)?qualified field name (\S+)", r"two columns are called \1: give one another name with AS"),
    )
)  # fmt: skip

__all__ = ["Planner", "context", "datafusion", "plain_type", "told_by"]
