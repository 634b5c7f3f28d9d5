"""What the start of Spark says where a worker lacks a module; RayDP is a fake that raises as it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from rayad.integrations.spark import session
from rayad.integrations.spark.fit import spark_needs
from rayad.progress import ConfigError

DIED = """The actor died because of an error raised in its creation task, ray::RayDPSparkMaster.__init__() (pid=71, ip=10.0.0.2)
RuntimeError: The actor with name RayDPSparkMaster failed to import on the worker. This may be because needed library dependencies are not \
installed in the worker environment:

Traceback (most recent call last):
  File "site-packages/ray/_private/function_manager.py", line 1, in load_actor_class
ModuleNotFoundError: No module named '{}'"""


class RayActorDied(ActorDiedError):
    """With Ray's text, but without its internal context."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.error_msg = text


def start(error: Exception) -> str:
    """What the start says when RayDP raises an error."""

    def init_spark(*_: Any, **__: Any) -> Any:
        raise error

    with pytest.raises(ConfigError) as caught:
        session._start(SimpleNamespace(init_spark=init_spark), "app", spark_needs(1, 1, "1g", {}), 1, "1g", {}, 60.0, {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("module", "install"),
    [("raydp", "'rayad[spark]'"), ("pyspark.sql", "'rayad[spark]'"), ("frobnicate.a", "'frobnicate', or the package that it is in")],
)
def test_a_module_that_a_worker_lacks_is_named_in_the_last_line(module: str, install: str) -> None:
    """It stood 20 lines above, in Ray's own text."""
    told = (
        f"spark_session('app'): RayDP could not start it: Ray's workers on the node 10.0.0.2 have no module '{module}': pip install "
        f"{install}, in the Python with which Ray is started on each node"
    )
    assert start(RayActorDied(DIED.format(module))) == told
    inner = RuntimeError("spark did not come up")
    inner.__cause__ = RayActorDied(DIED.format(module))
    assert start(inner) == told


def test_other_errors_of_the_start_are_told_by_their_first_line() -> None:
    assert start(RayActorDied("The actor died.\nmore")).startswith(
        "spark_session('app'): RayDP could not start it: RayActorDied: The actor died.; see the logs of the Java workers below '/tmp/ray/"
    )


def test_a_node_says_which_modules_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "raydp" else SimpleNamespace())
    monkeypatch.setenv("PATH", "/nowhere")
    assert session._troubles_of_this_node() == ("has no java on the PATH that Ray was started with", ["raydp"])
