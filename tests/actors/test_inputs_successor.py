"""What a live input does when another coordinator runs the job: with the planes that ship, and no Ray."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import rayad as rd
from rayad.actors.driver.inputs import FedJob, InputPlane, RayInput
from rayad.actors.plane.plane import Frame, Plane
from rayad.actors.plane.protocol import Kind
from tests.patience import PATIENCE_S

REPLICA = "v0.0"
SECRET = bytes(range(32))


class Run:
    """The replica of the input under one coordinator; it answers as long as :meth:`take` runs, and then stands still."""

    def __init__(self, job: str, incarnation: int) -> None:
        self.job, self.incarnation = job, incarnation
        self.plane = Plane(name=REPLICA, job=job, incarnation=incarnation, secret=SECRET, seals=False)  # as the driver, by default
        self.address = self.plane.listen(unix="off")

    def take(self) -> Frame:
        """The first batch that comes."""
        while True:
            for frame in self.plane.poll(PATIENCE_S):
                if frame.kind == Kind.INPUT_BATCH:
                    return frame


def test_what_was_sent_goes_to_the_next_coordinators_replica_while_the_one_before_stands_still(tmp_path: Path) -> None:
    """Regression: incarnations begin anew with each coordinator, and a stopped machine closes no connection: what was sent waited in the
    connection to the old replica until that machine woke up."""
    runs = [Run("first", 2), Run("second", 1)]
    now = [runs[0]]
    over = threading.Event()

    def ask(method: str, *_: Any, **__: Any) -> Any:
        return (now[0].address, now[0].incarnation, {}) if method == "where" else {}

    job = FedJob(
        name="job",
        config=rd.RunConfig(storage_path=str(tmp_path)),
        survives=True,
        identity=lambda: (now[0].job, SECRET),
        ask=ask,
        ask_again=ask,
        has_outcome=over.is_set,
        is_over=over.is_set,
        raise_outcome=lambda: None,
    )
    feed = InputPlane(job)
    live = RayInput("numbers", feed, REPLICA)
    taken: list[Frame] = []
    for run in runs:
        now[0] = run
        taking = threading.Thread(target=lambda run=run: taken.append(run.take()), daemon=True)
        taking.start()
        if run is runs[0]:
            live.send([1, 2, 3])
        taking.join(PATIENCE_S)
        assert not taking.is_alive(), run.job
    over.set()
    feed.close()
    for run in runs:
        run.plane.close(linger_s=0.0)
    assert bytes(taken[0].payload) == bytes(taken[1].payload), "the same frame again"
