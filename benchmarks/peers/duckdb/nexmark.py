"""DuckDB runs one Nexmark query as SQL over the Parquet files, with as many threads as it likes. The time is
to an Arrow table, without import and interpreter."""

import json
import sys
import time
import zlib

import duckdb

WINDOW = "epoch_ms({}) // 10000 * 10000"
QUERIES = {
    1: "SELECT count(*), sum(auction), sum(bidder), sum(price * 908 // 1000) FROM bids",
    2: "SELECT count(*), sum(auction), sum(price) FROM bids WHERE auction % 123 = 0",
    3: """SELECT a.seller, a.id, p.name, p.city, p.state FROM auctions a JOIN persons p ON a.seller = p.id
          WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    4: """SELECT category, avg(final) FROM (
            SELECT a.id, a.category, max(b.price) AS final FROM auctions a JOIN bids b ON a.id = b.auction
            WHERE b.date_time >= a.date_time AND b.date_time < a.expires GROUP BY a.id, a.category)
          GROUP BY category""",
    5: """WITH panes AS (SELECT auction, epoch_ms(date_time) // 2000 * 2000 AS pane, count(*) AS bids FROM bids GROUP BY ALL),
               windows AS (SELECT pane - 2000 * back AS start, auction, sum(bids)::BIGINT AS bids
                           FROM panes, range(5) AS _(back) GROUP BY ALL),
               most AS (SELECT start, max(bids) AS bids FROM windows GROUP BY start)
          SELECT start, auction, bids FROM windows JOIN most USING (start, bids)""",
    7: f"""WITH timed AS (SELECT {WINDOW.format("date_time")} AS start, auction, bidder, price FROM bids),
                best AS (SELECT start, max(price) AS price FROM timed GROUP BY start)
           SELECT start, auction, bidder, price FROM timed JOIN best USING (start, price)""",
    8: f"""WITH new AS (SELECT DISTINCT {WINDOW.format("date_time")} AS start, id, name FROM persons),
                sellers AS (SELECT DISTINCT {WINDOW.format("date_time")} AS start, seller AS id FROM auctions)
           SELECT start, id, name FROM new JOIN sellers USING (start, id)""",
}

arguments = json.loads(sys.argv[1])
query = arguments["query"]
connection = duckdb.connect()
connection.sql("SELECT 1 AS key, sum(2) GROUP BY key").to_arrow_table()  # first use
for kind in ("persons", "auctions", "bids"):
    connection.execute(f"CREATE VIEW {kind} AS FROM read_parquet('{arguments['folder']}/{kind}/*/*.parquet')")
began = time.perf_counter()
table = connection.sql(QUERIES[query]).to_arrow_table()
seconds = time.perf_counter() - began
rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
if query in (1, 2):
    digest = [int(number) & (2**63 - 1) for number in rows[0]]
elif query == 4:
    digest = [len(rows), sorted([category, round(mean, 3)] for category, mean in rows)]
else:
    digest = [len(rows), sum(zlib.crc32(repr(row).encode()) for row in rows)]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"duckdb {duckdb.__version__}"}))
