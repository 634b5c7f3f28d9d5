"""What Ray shows of an actor."""

from __future__ import annotations

from rayad.actors.cluster.actor_class import actor_title
from rayad.actors.progress_actor import remote_progress
from rayad.actors.vertex_actor import remote_vertex


class VertexActor:
    """Stands for any."""


def test_a_title_names_class_job_and_replica() -> None:
    assert actor_title(VertexActor(), "words-1a2b", "counts[1]") == "VertexActor(words-1a2b: counts[1])"
    assert actor_title(VertexActor(), "words-1a2b") == "VertexActor(words-1a2b)"


def test_the_classes_themselves_can_be_shown() -> None:
    """Regression: Ray's class of actors inherits from ours, and what shows it (a debugger, an error) had an AttributeError."""
    assert "VertexActor" in repr(remote_vertex("vertex", 0))
    assert "WorkerActor" in repr(remote_vertex("worker", 8))
    assert "ProgressActor" in repr(remote_progress())
