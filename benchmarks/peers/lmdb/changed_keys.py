"""lmdb keeps a count for each key: a transaction an epoch, which reads and writes each key that has come. Seconds are of what comes once
all keys are there, without interpreter, import and the load, which is told beside it."""

import json
import shutil
import struct
import sys
import tempfile
import time

import lmdb
import numpy as np

arguments = json.loads(sys.argv[1])
number = struct.Struct("<q")


def names(numbers):
    return [b"key-%036d" % each for each in numbers.tolist()]


def epoch(store, numbers):
    digest = 0
    with store.begin(write=True, buffers=False) as transaction:
        for key in names(numbers):
            found = transaction.get(key)
            count = number.unpack(found)[0] + 1 if found else 1
            transaction.put(key, number.pack(count))
            digest += count
    return digest


folder = tempfile.mkdtemp(dir=arguments["folder"])
store = lmdb.open(folder, map_size=16 << 30, sync=False, metasync=False, writemap=False)
began = time.perf_counter()
keys, size = arguments["keys"], arguments["batch"]
digest = sum(epoch(store, np.arange(at, min(at + size, keys)) * arguments["stride"] % keys) for at in range(0, keys, size))
loaded = time.perf_counter()
for each in range(arguments["epochs"]):
    chance = np.random.default_rng(1 + each)
    digest += epoch(store, chance.permutation(np.unique(chance.integers(0, keys, arguments["changed"]))))
seconds = time.perf_counter() - loaded
store.close()
shutil.rmtree(folder)
print(json.dumps({"seconds": seconds, "load_s": loaded - began, "digest": digest, "version": f"lmdb {lmdb.__version__}"}))
