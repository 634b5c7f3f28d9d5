"""Spark Structured Streaming: single records at a fixed rate from a socket, a stateful step by key, to the driver.

The step is ``dropDuplicates``: each record goes through a shuffle and the state store, in the JVM. (``applyInPandasWithState`` of
Spark 3.5 fails with the project's pyarrow, and would add Python workers.)

Micro-batches follow one another without pause (no trigger interval). A thread of the driver makes the records, by the clock. Each
has the times when it was made and when it was due; both are subtracted when the micro-batch's result has come to the driver. The first
``warm`` records are not counted. "seconds" is the time of the records that count.
"""

import json
import socket
import tempfile
import threading
import time

from _session import VERSION, arguments, session
from pyspark.sql import functions as f

WORKERS = 2


def make_records(server: socket.socket) -> None:
    """Send lines ``key,number,made,due`` to the client that connects, each when it is due."""
    connection, _ = server.accept()
    begin_s = time.perf_counter() + 1.0
    for place in range(arguments["warm"] + arguments["records"]):
        due_s = begin_s + place / arguments["rate_per_s"]
        wait_s = due_s - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        number = place - arguments["warm"]
        connection.sendall(f"{number % arguments['keys']},{number},{time.perf_counter()!r},{due_s!r}\n".encode())
    done.wait()
    connection.close()


def note(frame, batch) -> None:
    """Note the result of one micro-batch."""
    rows = frame.collect()
    now = time.perf_counter()
    ages.extend((row.number, 1e6 * (now - row.made), 1e6 * (now - row.due)) for row in rows if row.number >= 0)
    if len(ages) >= arguments["records"]:
        done.set()


ages: list[tuple[int, float, float]] = []
done = threading.Event()
spark = session(WORKERS)
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=make_records, args=(server,), daemon=True).start()
lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", server.getsockname()[1]).load()
parts = f.split("value", ",")
records = lines.select(
    parts[0].cast("long").alias("key"),
    parts[1].cast("long").alias("number"),
    parts[2].cast("double").alias("made"),
    parts[3].cast("double").alias("due"),
)
counted = records.dropDuplicates(["key", "number"])
with tempfile.TemporaryDirectory() as checkpoints:
    query = counted.writeStream.outputMode("append").foreachBatch(note).option("checkpointLocation", checkpoints).start()
    while not done.wait(0.2) and query.isActive:
        pass
    progress = query.recentProgress
    if not done.is_set():
        query.awaitTermination()
    query.stop()
told = {
    "seconds": arguments["records"] / arguments["rate_per_s"],
    "digest": [len(ages), sum(number for number, _, _ in ages)],
    "version": VERSION,
    "made_us": [made for _, made, _ in ages],
    "due_us": [due for _, _, due in ages],
    "micro_batches": len(progress),
}
print(json.dumps(told))
spark.stop()
