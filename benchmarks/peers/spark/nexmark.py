"""Spark SQL, local mode: one Nexmark query over Parquet files as a batch, the result to the driver; a shuffle partition a thread.

The time begins when the session is up and has run a query over two rows.
"""

import json
import time
import zlib

from _session import ARROW, VERSION, arguments, session

WINDOW = "unix_millis(date_time) div 10000 * 10000"
QUERIES = {
    1: "SELECT count(*), sum(auction), sum(bidder), sum(price * 908 div 1000) FROM bids",
    2: "SELECT count(*), sum(auction), sum(price) FROM bids WHERE auction % 123 = 0",
    3: """SELECT a.seller, a.id, p.name, p.city, p.state FROM auctions a JOIN persons p ON a.seller = p.id
          WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    4: """SELECT category, avg(final) FROM (
            SELECT a.id, a.category, max(b.price) AS final FROM auctions a JOIN bids b ON a.id = b.auction
            WHERE b.date_time >= a.date_time AND b.date_time < a.expires GROUP BY a.id, a.category)
          GROUP BY category""",
    5: """WITH panes AS (SELECT auction, unix_millis(date_time) div 2000 * 2000 AS pane, count(*) AS bids FROM bids GROUP BY 1, 2),
               windows AS (SELECT pane - 2000 * back AS start, auction, sum(bids) AS bids
                           FROM panes LATERAL VIEW explode(sequence(0, 4)) AS back GROUP BY 1, 2),
               most AS (SELECT start, max(bids) AS bids FROM windows GROUP BY start)
          SELECT start, auction, bids FROM windows JOIN most USING (start, bids)""",
    7: f"""WITH timed AS (SELECT {WINDOW} AS start, auction, bidder, price FROM bids),
                best AS (SELECT start, max(price) AS price FROM timed GROUP BY start)
           SELECT start, auction, bidder, price FROM timed JOIN best USING (start, price)""",
    8: f"""WITH new AS (SELECT DISTINCT {WINDOW} AS start, id, name FROM persons),
                sellers AS (SELECT DISTINCT {WINDOW} AS start, seller AS id FROM auctions)
           SELECT start, id, name FROM new JOIN sellers USING (start, id)""",
}

query, workers = arguments["query"], arguments["workers"]
spark = session(workers, settings={**ARROW, "spark.sql.session.timeZone": "UTC", "spark.sql.parquet.inferTimestampNTZ.enabled": "false"})
began = time.perf_counter()
for kind in ("persons", "auctions", "bids"):
    spark.read.parquet(f"{arguments['folder']}/{kind}").createOrReplaceTempView(kind)
found = spark.sql(QUERIES[query]).toPandas()
seconds = time.perf_counter() - began
rows = list(zip(*(found.iloc[:, i].tolist() for i in range(found.shape[1])), strict=True))
if query in (1, 2):
    digest = [int(number) & (2**63 - 1) for number in rows[0]]
elif query == 4:
    digest = [len(rows), sorted([category, round(mean, 3)] for category, mean in rows)]
else:
    digest = [len(rows), sum(zlib.crc32(repr(row).encode()) for row in rows)]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
spark.stop()
