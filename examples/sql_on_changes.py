"""SQL that is kept up to date: sales by region and the best products, as orders come, are corrected and are cancelled.

    python examples/sql_on_changes.py                # in this process
    python examples/sql_on_changes.py --ray          # on Ray

Orders are inserted and removed, one epoch for each day; `flow.sql` follows them (pip install 'rayad[sql]'). What is printed are changes of
two results: totals by region, through a join, and the two products that sell best. The last result is compared with one that is computed
anew from the orders that are left.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pyarrow as pa

import rayad as rd

ORDERS = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("product", pa.string()), ("amount", pa.int64())])
SHOPS = pa.table({"shop": ["Aston", "Bray", "Corby"], "region": ["north", "north", "south"]})
BY_REGION = """select region, sum(amount) as total, count(*) as orders
               from orders join shops on orders.shop = shops.shop group by region"""
BEST = "select product, sum(amount) as total from orders group by product order by total desc, product limit 2"
Order = tuple[int, str, str, int]
DAYS: list[tuple[list[Order], list[Order]]] = [
    ([(1, "Aston", "tea", 30), (2, "Bray", "rice", 20), (3, "Corby", "tea", 15)], []),
    ([(4, "Corby", "salt", 40)], [(2, "Bray", "rice", 20)]),
    ([(4, "Corby", "salt", 4)], [(4, "Corby", "salt", 40)]),
]
"""By day: orders that come, and orders that are cancelled. A correction is both."""


def flow() -> rd.Dataflow:
    """Orders in, changes of two results out."""
    dataflow = rd.Dataflow("sales")
    orders = dataflow.collection("orders", schema=ORDERS)
    shops = dataflow.from_arrow(SHOPS).as_collection()
    dataflow.sql(BY_REGION, orders=orders, shops=shops).changes().probe("regions").collect("by region")
    dataflow.sql(BEST, orders=orders).changes().probe("best").collect("best")
    return dataflow


def rows(orders: list[Order]) -> list[dict[str, Any]]:
    """Orders as records."""
    return [dict(zip(ORDERS.names, order, strict=True)) for order in orders]


def main() -> None:
    """Insert and remove orders, and print what has changed each day."""
    job = flow().submit(parallelism=2, runtime="ray" if "--ray" in sys.argv[1:] else "local")
    with job.collection("orders") as live:
        for day, (new, cancelled) in enumerate(DAYS):
            live.insert(rows(new))
            live.remove(rows(cancelled))
            live.advance_to(day + 1)
            assert job.probe("regions").wait(day, timeout_s=60)
            assert job.probe("best").wait(day, timeout_s=60)
    result = job.wait(timeout_s=60)
    table: Counter[tuple[Any, ...]] = Counter()
    for name in ("by region", "best"):
        for time, (record, weight) in sorted(result[name], key=lambda change: (change[0].epoch, change[1][1])):
            print(f"day {time.epoch}: {name} {weight:+d} {tuple(record.values())}")
            table[tuple(record.values())] += weight
    left = Counter(order for new, _ in DAYS for order in new) - Counter(order for _, cancelled in DAYS for order in cancelled)
    regions = dict(zip(SHOPS.column("shop").to_pylist(), SHOPS.column("region").to_pylist(), strict=True))
    totals, counts, products = Counter[str](), Counter[str](), Counter[str]()
    for _, shop, product, amount in left.elements():
        totals[regions[shop]] += amount
        counts[regions[shop]] += 1
        products[product] += amount
    wanted = [(region, totals[region], counts[region]) for region in totals] + products.most_common(2)
    assert sorted((+table).elements(), key=str) == sorted(wanted, key=str)


if __name__ == "__main__":
    main()
