"""PyFlink's Table API in batch mode on a local mini cluster: raw lines, a Python table function that splits, GROUP BY.

The counts go to CSV files, which are read back: ``collect()`` fetches each row by a py4j call, a millisecond a row. A first
job over one line loads the mini cluster's classes, so that this does not count; each job still starts Python workers, which counts.
"""

import csv
import importlib.metadata
import json
import os
import sys
import time
import zlib
from pathlib import Path

from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udtf


@udtf(result_types=[DataTypes.STRING()])
def split_words(line: str):
    """The words of a line."""
    yield from line.split()


arguments = json.loads(sys.argv[1])
tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
tables.get_config().set("parallelism.default", str(arguments["workers"]))
tables.get_config().set("python.executable", sys.executable)
tables.get_config().set("python.client.executable", sys.executable)
tables.create_temporary_system_function("split_words", split_words)
options = "'connector' = 'filesystem', 'path' = 'file://{}', 'format' = '{}'"
words = "SELECT word, COUNT(*) FROM {}, LATERAL TABLE(split_words(line)) AS t(word) GROUP BY word"


def count(folder: str, out: str) -> list[tuple[str, int]]:
    """One job: the words of the ``*.txt`` of a folder."""
    files = options.format(folder, "raw") + ", 'source.path.regex-pattern' = '.*[.]txt'"
    tables.execute_sql(f"CREATE TABLE {out}_texts (line STRING) WITH ({files})")
    tables.execute_sql(f"CREATE TABLE {out} (word STRING, number BIGINT) WITH ({options.format(os.path.abspath(out), 'csv')})")
    tables.execute_sql(f"INSERT INTO {out} {words.format(f'{out}_texts')}").wait()
    paths = [path for path in Path(out).iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
    return [(row[0], int(row[1])) for path in paths for row in csv.reader(path.open(encoding="utf-8", newline=""))]


Path("first").mkdir()
Path("first", "line.txt").write_text("a b\n", encoding="utf-8")
count(os.path.abspath("first"), "few")
began = time.perf_counter()
counts = dict(count(arguments["folder"], "counts"))
seconds = time.perf_counter() - began
digest = [len(counts), sum(zlib.crc32(f"{word} {count}".encode()) for word, count in counts.items())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pyflink {importlib.metadata.version('apache-flink')}"}))
