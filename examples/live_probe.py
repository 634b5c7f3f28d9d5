"""Live input and probes: send orders while the job runs, and read a total as soon as it is final.

    python examples/live_probe.py                # in this process
    python examples/live_probe.py --ray          # on Ray

An order belongs to its sender's current epoch. ``advance_to`` promises that no more of an earlier epoch will come. When that promise has
passed through the dataflow, the probe says that the epoch is complete; only then are its totals final. No timers, no waiting "long enough".
"""

from __future__ import annotations

import sys
import time

import rayad as rd

ORDERS = [
    [("apples", 3), ("pears", 1), ("apples", 2)],
    [("plums", 7)],
    [("apples", 1), ("plums", 1), ("pears", 4)],
]


def flow() -> rd.Dataflow:
    """Orders in, running totals by fruit out."""
    dataflow = rd.Dataflow("orders")
    orders = dataflow.input("orders")
    totals = orders.key_by(lambda order: order[0]).sum(lambda order: order[1], name="totals")
    totals.probe("totals-done").collect("totals")
    return dataflow


def main() -> None:
    """Send the orders, epoch by epoch, and print how long each epoch took to be complete."""
    job = flow().submit(parallelism=2, runtime="ray" if "--ray" in sys.argv[1:] else "local")
    orders, done = job.input("orders"), job.probe("totals-done")
    for epoch, batch in enumerate(ORDERS):
        for order in batch:
            orders.send([order])
        print(f"epoch {epoch}: sent {len(batch)} orders, complete: {done.complete(epoch)}")
        began_s = time.perf_counter()
        orders.advance_to(epoch + 1)
        assert done.wait(epoch, timeout_s=60)
        print(f"epoch {epoch}: complete: {done.complete(epoch)}")
        print(f"epoch {epoch}: {1000 * (time.perf_counter() - began_s):.1f} ms from the promise to that", file=sys.stderr)
    orders.close()
    for at, (fruit, total) in sorted(job.wait(timeout_s=60)["totals"]):
        print(f"epoch {at.epoch}: {fruit} {total}")


if __name__ == "__main__":
    main()
