"""Tables as TPC-H has them, small and made here, that come and go; and its 22 queries, with the parameters of its validation.

Values are drawn from the few that the queries ask for, so that they find something in some hundred rows.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.sql.against_duckdb import Row, Table, coming_and_going

MONEY = pa.decimal128(15, 2)
SCHEMAS = {
    "region": {"r_regionkey": pa.int64(), "r_name": pa.string()},
    "nation": {"n_nationkey": pa.int64(), "n_name": pa.string(), "n_regionkey": pa.int64()},
    "supplier": {
        "s_suppkey": pa.int64(), "s_name": pa.string(), "s_address": pa.string(), "s_nationkey": pa.int64(), "s_phone": pa.string(),
        "s_acctbal": MONEY, "s_comment": pa.string(),
    },
    "customer": {
        "c_custkey": pa.int64(), "c_name": pa.string(), "c_address": pa.string(), "c_nationkey": pa.int64(), "c_phone": pa.string(),
        "c_acctbal": MONEY, "c_mktsegment": pa.string(), "c_comment": pa.string(),
    },
    "part": {
        "p_partkey": pa.int64(), "p_name": pa.string(), "p_mfgr": pa.string(), "p_brand": pa.string(), "p_type": pa.string(),
        "p_size": pa.int32(), "p_container": pa.string(),
    },
    "partsupp": {"ps_partkey": pa.int64(), "ps_suppkey": pa.int64(), "ps_availqty": pa.int32(), "ps_supplycost": MONEY},
    "orders": {
        "o_orderkey": pa.int64(), "o_custkey": pa.int64(), "o_orderstatus": pa.string(), "o_totalprice": MONEY, "o_orderdate": pa.date32(),
        "o_orderpriority": pa.string(), "o_shippriority": pa.int32(), "o_comment": pa.string(),
    },
    "lineitem": {
        "l_orderkey": pa.int64(), "l_partkey": pa.int64(), "l_suppkey": pa.int64(), "l_linenumber": pa.int32(), "l_quantity": MONEY,
        "l_extendedprice": MONEY, "l_discount": MONEY, "l_tax": MONEY, "l_returnflag": pa.string(), "l_linestatus": pa.string(),
        "l_shipdate": pa.date32(), "l_commitdate": pa.date32(), "l_receiptdate": pa.date32(), "l_shipinstruct": pa.string(),
        "l_shipmode": pa.string(),
    },
}  # fmt: skip
NATIONS = (("FRANCE", 3), ("GERMANY", 3), ("BRAZIL", 1), ("CANADA", 1), ("SAUDI ARABIA", 4), ("CHINA", 2))
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")


def _money(chance: random.Random, low: int, high: int) -> Decimal:
    return Decimal(chance.randrange(low * 100, high * 100)) / 100


def tables(seed: int, scale: int = 1) -> dict[str, Table]:
    """All eight, some hundred rows of the largest."""
    chance = random.Random(seed)
    parts, suppliers, customers, orders = 12 * scale, 10 * scale, 14 * scale, 45 * scale
    rows: dict[str, list[Row]] = {
        "region": [(at, name) for at, name in enumerate(REGIONS)],
        "nation": [(at, name, region) for at, (name, region) in enumerate(NATIONS)],
        "supplier": [
            (
                at, f"Supplier#{at:09}", f"street {at}", chance.randrange(len(NATIONS)), f"{10 + at}-555", _money(chance, -900, 9000),
                chance.choice(["quick", "Customer has many Complaints", "ironic"]),
            )
            for at in range(suppliers)
        ],
        "customer": [
            (
                at, f"Customer#{at:09}", f"road {at}", chance.randrange(len(NATIONS)),
                f"{chance.choice([13, 31, 23, 29, 30, 18, 17, 11])}-{at}", _money(chance, -900, 9000),
                chance.choice(["BUILDING", "AUTOMOBILE"]), "none",
            )
            for at in range(customers)
        ],
        "part": [
            (
                at, chance.choice(["forest green lace", "green blush", "ivory snow"]), f"Manufacturer#{at % 3}",
                chance.choice(["Brand#12", "Brand#23", "Brand#34", "Brand#45"]),
                chance.choice(["PROMO BURNISHED COPPER", "ECONOMY ANODIZED STEEL", "LARGE POLISHED BRASS", "MEDIUM POLISHED TIN"]),
                chance.choice([1, 3, 15, 15]), chance.choice(["SM CASE", "MED BAG", "LG BOX", "MED BOX"]),
            )
            for at in range(parts)
        ],
        "partsupp": [
            (part, supplier, chance.randrange(1, 200), _money(chance, 1, 20))
            for part in range(parts)
            for supplier in chance.sample(range(suppliers), 3)
        ],
        "orders": [],
        "lineitem": [],
    }  # fmt: skip
    for at in range(orders):
        day = dt.date(1993, 7, 1) + dt.timedelta(chance.randrange(1000))
        rows["orders"].append(
            (
                at, chance.randrange(customers - 3), chance.choice("FFO"), _money(chance, 100, 9000), day,
                chance.choice(["1-URGENT", "2-HIGH", "5-LOW"]), 0, chance.choice(["fine", "special packages requests"]),
            )
        )  # fmt: skip
        for line in range(chance.randrange(1, 6)):
            shipped = day + dt.timedelta(chance.randrange(1, 120))
            rows["lineitem"].append(
                (
                    at, chance.randrange(parts), chance.randrange(suppliers), line, Decimal(chance.choice([1, 5, 12, 24, 30, 90])),
                    _money(chance, 100, 9000), Decimal(chance.randrange(11)) / 100, Decimal(chance.randrange(9)) / 100,
                    chance.choice("RAN"), chance.choice("OF"), shipped, day + dt.timedelta(chance.randrange(10, 100)),
                    shipped + dt.timedelta(chance.randrange(1, 30)), chance.choice(["DELIVER IN PERSON", "NONE"]),
                    chance.choice(["MAIL", "SHIP", "AIR", "AIR REG"]),
                )
            )  # fmt: skip
    made: dict[str, Any] = {}
    for name, fields in SCHEMAS.items():
        chance.shuffle(rows[name])
        made[name] = coming_and_going(pa.schema(list(fields.items())), rows[name], chance)
    return made


QUERIES = {
    1: """select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) as sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
        round(avg(l_quantity), 4) as avg_qty, round(avg(l_extendedprice), 4) as avg_price, round(avg(l_discount), 4) as avg_disc,
        count(*) as count_order
        from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    2: """select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        from part, supplier, partsupp, nation, region
        where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like '%BRASS' and s_nationkey = n_nationkey
        and n_regionkey = r_regionkey and r_name = 'EUROPE' and ps_supplycost = (
            select min(ps_supplycost) from partsupp, supplier, nation, region
            where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
            and r_name = 'EUROPE')
        order by s_acctbal desc, n_name, s_name, p_partkey limit 100""",
    3: """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate < date '1995-03-15'
        and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10""",
    4: """select o_orderpriority, count(*) as order_count from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval '3' month
        and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority order by o_orderpriority""",
    5: """select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
        and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
        and o_orderdate < date '1994-01-01' + interval '1' year group by n_name order by revenue desc""",
    6: """select sum(l_extendedprice * l_discount) as revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
        and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24""",
    7: """select supp_nation, cust_nation, l_year, sum(volume) as revenue from (
            select n1.n_name as supp_nation, n2.n_name as cust_nation, extract(year from l_shipdate) as l_year,
            l_extendedprice * (1 - l_discount) as volume
            from supplier, lineitem, orders, customer, nation n1, nation n2
            where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey and s_nationkey = n1.n_nationkey
            and c_nationkey = n2.n_nationkey and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY')
            or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE')) and l_shipdate between date '1993-01-01' and date '1996-12-31') as shipping
        group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year""",
    8: """select o_year, round(cast(sum(case when nation = 'BRAZIL' then volume else 0 end) as double) / cast(sum(volume) as double), 6)
        as mkt_share from (
            select extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume, n2.n_name as nation
            from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
            where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey and o_custkey = c_custkey
            and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey
            and o_orderdate between date '1993-01-01' and date '1996-12-31' and p_type = 'ECONOMY ANODIZED STEEL') as all_nations
        group by o_year order by o_year""",
    9: """select nation, o_year, sum(amount) as sum_profit from (
            select n_name as nation, extract(year from o_orderdate) as o_year,
            l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
            from part, supplier, lineitem, partsupp, orders, nation
            where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey
            and o_orderkey = l_orderkey and s_nationkey = n_nationkey and p_name like '%green%') as profit
        group by nation, o_year order by nation, o_year desc""",
    10: """select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address, c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
        and o_orderdate < date '1993-10-01' + interval '3' month and l_returnflag = 'R' and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment order by revenue desc limit 20""",
    11: """select ps_partkey, sum(ps_supplycost * ps_availqty) as value from partsupp, supplier, nation
        where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
        group by ps_partkey having sum(ps_supplycost * ps_availqty) > (
            select sum(ps_supplycost * ps_availqty) * 0.1 from partsupp, supplier, nation
            where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')
        order by value desc""",
    12: """select l_shipmode,
        sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end) as high_line_count,
        sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end) as low_line_count
        from orders, lineitem where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
        and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1994-01-01' + interval '1' year
        group by l_shipmode order by l_shipmode""",
    13: """select c_count, count(*) as custdist from (
            select c_custkey, count(o_orderkey) from customer left outer join orders on c_custkey = o_custkey
            and o_comment not like '%special%requests%' group by c_custkey) as c_orders (c_custkey, c_count)
        group by c_count order by custdist desc, c_count desc""",
    14: """select round(100.00 * cast(sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end) as double)
        / cast(sum(l_extendedprice * (1 - l_discount)) as double), 6) as promo_revenue from lineitem, part
        where l_partkey = p_partkey and l_shipdate >= date '1994-09-01' and l_shipdate < date '1994-09-01' + interval '1' month""",
    15: """with revenue (supplier_no, total_revenue) as (
            select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem
            where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '3' month group by l_suppkey)
        select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue
        where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue) order by s_suppkey""",
    16: """select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt from partsupp, part
        where p_partkey = ps_partkey and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%' and p_size in (1, 3, 9, 14, 15, 36)
        and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%Complaints%')
        group by p_brand, p_type, p_size order by supplier_cnt desc, p_brand, p_type, p_size""",
    17: """select round(cast(sum(l_extendedprice) as double) / 7.0, 6) as avg_yearly from lineitem, part
        where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container = 'MED BOX'
        and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey)""",
    18: """select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) as q from customer, orders, lineitem
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 150)
        and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice order by o_totalprice desc, o_orderdate limit 100""",
    19: """select sum(l_extendedprice * (1 - l_discount)) as revenue from lineitem, part where (
            p_partkey = l_partkey and p_brand = 'Brand#12' and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
            and l_quantity >= 1 and l_quantity <= 11 and p_size between 1 and 5 and l_shipmode in ('AIR', 'AIR REG')
            and l_shipinstruct = 'DELIVER IN PERSON')
        or (p_partkey = l_partkey and p_brand = 'Brand#23' and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
            and l_quantity >= 10 and l_quantity <= 30 and p_size between 1 and 10 and l_shipmode in ('AIR', 'AIR REG')
            and l_shipinstruct = 'DELIVER IN PERSON')
        or (p_partkey = l_partkey and p_brand = 'Brand#34' and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
            and l_quantity >= 20 and l_quantity <= 90 and p_size between 1 and 15 and l_shipmode in ('AIR', 'AIR REG')
            and l_shipinstruct = 'DELIVER IN PERSON')""",
    20: """select s_name, s_address from supplier, nation where s_suppkey in (
            select ps_suppkey from partsupp where ps_partkey in (select p_partkey from part where p_name like 'forest%')
            and ps_availqty > (select 0.5 * sum(l_quantity) from lineitem where l_partkey = ps_partkey and l_suppkey = ps_suppkey
            and l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year))
        and s_nationkey = n_nationkey and n_name = 'CANADA' order by s_name""",
    21: """select s_name, count(*) as numwait from supplier, lineitem l1, orders, nation
        where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F' and l1.l_receiptdate > l1.l_commitdate
        and exists (select * from lineitem l2 where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
        and not exists (select * from lineitem l3 where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
        and l3.l_receiptdate > l3.l_commitdate) and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
        group by s_name order by numwait desc, s_name limit 100""",
    22: """select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal from (
            select substring(c_phone from 1 for 2) as cntrycode, c_acctbal from customer
            where substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17') and c_acctbal > (
                select avg(c_acctbal) from customer where c_acctbal > 0.00
                and substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17'))
            and not exists (select * from orders where o_custkey = c_custkey)) as custsale
        group by cntrycode order by cntrycode""",
}

__all__ = ["QUERIES", "SCHEMAS", "tables"]
