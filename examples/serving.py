"""Features for a model that is served: Ray Serve answers from the state of a running job, which payments keep current.

    pip install 'rayad[serve]'
    python examples/serving.py             # each request as a call of the deployment
    python examples/serving.py --http      # over HTTP, at port 8000

The job keeps what each customer has paid so far. A deployment finds the job by its name, and compares a payment with the mean of its
customer's before: two numbers of one key, both of one epoch. Meanwhile a replica of the job is killed; answers are late then, not wrong.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import urllib.parse
import urllib.request
from typing import Any

from ray import serve

import rayad as rd

JOB = "payments"
URL = "http://127.0.0.1:8000/"
PAYMENTS = [
    [("ann", 20.0), ("bob", 5.0), ("ann", 22.0)],
    [("ann", 18.0), ("bob", 7.0), ("bob", 6.0)],
    [("eve", 900.0), ("ann", 20.0)],
]
QUESTIONS = [("ann", 21.0), ("ann", 210.0), ("bob", 21.0), ("eve", 900.0)]
WAIT_S = 60.0


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0}, logging_config={"log_level": "ERROR"})
class Unusual:
    """Says whether a payment is unusual for its customer."""

    def __init__(self, job: str) -> None:
        self.features = rd.attach(job).table("features")

    async def ask(self, customer: str, amount: float) -> str:
        """``fresh``: all that was sent before the request counts. That waits for the job, so it is in a thread, beside others."""
        found = await asyncio.to_thread(self.features.get, customer, fresh=True, timeout_s=WAIT_S)
        if found.value is None:
            return f"{customer} is not known at epoch {found.epoch}"
        mean = found.value["mean_sum"] / found.value["mean_count"]
        what = "unusual" if amount > 3 * mean else "usual"
        return f"{amount:g} is {what} for {customer}: {found.value['payments']} payments of {mean:g} by epoch {found.epoch}"

    async def __call__(self, request: Any) -> str:
        """Over HTTP."""
        return await self.ask(request.query_params["customer"], float(request.query_params["amount"]))


def flow() -> rd.Dataflow:
    """Payments in, and what each customer's are."""
    dataflow = rd.Dataflow(JOB)
    by_customer = dataflow.input("payments").key_by(lambda payment: payment[0])
    features = by_customer.aggregate({"payments": "count", "mean": ("mean", lambda payment: payment[1])}, name="features")
    features.collect("features")
    return dataflow


def asked(handle: Any, customer: str, amount: float) -> str:
    """One request."""
    if "--http" not in sys.argv[1:]:
        return str(handle.ask.remote(customer, amount).result(timeout_s=WAIT_S))
    query = urllib.parse.urlencode({"customer": customer, "amount": amount})
    with urllib.request.urlopen(f"{URL}?{query}", timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def main() -> None:
    """Send the payments, epoch by epoch, and ask after each."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        snapshots = rd.SnapshotConfig(interval_s=0.5)
        job = flow().submit(rd.RunConfig(name=JOB, storage_path=folder, snapshots=snapshots), parallelism=2)
        try:
            answers(job)
        finally:
            serve.shutdown()
            job.input("payments").close()
            job.wait(timeout_s=WAIT_S)


def answers(job: Any) -> None:
    """Print what the deployment says."""
    options: dict[str, Any] = {} if "--http" in sys.argv[1:] else {"proxy_location": "Disabled"}
    serve.start(logging_config={"log_level": "ERROR"}, **options)
    handle = serve.run(Unusual.bind(JOB), name=JOB)  # type: ignore[attr-defined]
    payments = job.input("payments")
    for epoch, batch in enumerate(PAYMENTS):
        payments.send(batch)
        payments.advance_to(epoch + 1)
        for customer, amount in QUESTIONS:
            print(asked(handle, customer, amount))
        if epoch == 0:
            os.kill(job.pids()["features"][0], signal.SIGKILL)


if __name__ == "__main__":
    main()
