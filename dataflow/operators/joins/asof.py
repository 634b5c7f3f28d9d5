"""As-of joins: each left record meets one right record of its key, by event time: the last that is not later, the first that is not
earlier, or the nearer of these two.

A left record is *settled* when no right record can come any more that it would rather meet: ones behind the watermark are late, and late
ones are passed over. Looking backward that is when the watermark has passed its event time, looking forward when it has passed that of the
first right record known; of the nearest one, when it has passed the event time that is as far ahead as the nearest one known is away. The
tolerance ends all waiting. So each left record is answered once, and nothing has to be taken back. Of the right records of a key those stay
that left records still may meet: of those behind the watermark at most the last, but for left records that wait for the nearest. Names are
those of Polars (``join_asof``) and pandas (``merge_asof``); SQL: ``ASOF JOIN`` (DuckDB).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rayad.dataflow.operators.joins.asof_rows import AsOfHow, AsOfRows
from rayad.dataflow.operators.joins.asof_runs import AsOfColumns
from rayad.dataflow.operators.joins.in_time import JoinInTwoForms
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.windows import AsOf
from rayad.progress import Timestamp


class AsOfJoin(JoinInTwoForms[AsOfRows, AsOfColumns]):
    """``(key, (left, right))`` for each left record, when it is settled by the watermarks of both sides. What comes behind these goes to
    output port 1, as of the other joins over event time."""

    state_version = 3
    """2: what is known of each record was stored without a name."""

    def __init__(self, rule: AsOf, delays: tuple[Any, ...], how: AsOfHow = "inner") -> None:
        super().__init__(delays, TwoForms(AsOfRows(rule, how), partial(AsOfColumns, rule, how)))

    def told(self, mark: Any, time: Timestamp) -> tuple[Any, ...]:
        return (mark, time.epoch)


__all__ = ["AsOfHow", "AsOfJoin"]
