"""Starting and stopping Spark on Ray (RayDP), with an error that says why if it does not work.

Checked first, because RayDP does not: a Java of the right version and the packages on every node, CPUs and memory. The start itself has a
timeout: at the deadline RayDP's master is killed, which ends the wait inside RayDP with an error.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rayad.actors.process.threads import OwnedThread
from rayad.integrations.refs import first_line
from rayad.integrations.spark.executors import executors
from rayad.integrations.spark.fit import NodeRoom, SparkNeeds, explain_misfit, spark_needs
from rayad.integrations.spark.java import JavaHome, find_java, java_version, open_modules, use_java
from rayad.integrations.spark.jvm import java_session, session_of_this_process
from rayad.progress import ConfigError

_MASTER_SUFFIX = "_SPARK_MASTER"
_started: dict[str, Any] = {}
"""The session that spark_session() started in this process, and with what arguments; RayDP allows one."""


def spark_session(
    app_name: str = "rayad", *, num_executors: int = 1, executor_cores: int = 1, executor_memory: str | int = "1g",
    configs: Mapping[str, str] | None = None, java_home: str | os.PathLike[str] | None = None, timeout_s: float = 120.0,
    **raydp_options: Any,
) -> Any:  # fmt: skip
    """Start Spark with executors that are Ray actors, through RayDP, and return its SparkSession. Joins this process's Ray, or starts
    one.

    ``configs`` are Spark settings; the driver prints errors only, unless ``spark.log.level`` or ``spark.log4j.config.file.name`` says
    otherwise. ``raydp_options`` are passed to ``raydp.init_spark`` (``placement_group_strategy``, ``enable_hive`` ..). A second call with
    equal arguments returns the same session. Raises ConfigError: no RayDP, no suitable Java, Ray started without Java, Ray Client, too few
    CPUs or too little memory, another Spark running, not up after ``timeout_s``.
    """
    arguments = (app_name, num_executors, executor_cores, executor_memory, dict(configs or {}), dict(raydp_options))
    if timeout_s <= 0:
        raise ConfigError(f"spark_session: timeout_s={timeout_s!r}; give the seconds to wait for Spark, more than 0")
    needs = spark_needs(num_executors, executor_cores, executor_memory, configs or {})
    raydp = import_raydp("spark_session")
    import ray

    from rayad.actors.cluster.joining import join_or_start_ray
    from rayad.actors.cluster.saying import saying

    refuse_ray_client("spark_session")
    running = _running_session()
    if running is not None:
        if _started.get("arguments") == arguments:
            return running
        raise ConfigError(
            f"spark_session({app_name!r}): Spark already runs in this process as {running.sparkContext.appName!r} with other arguments; "
            "use that session, or call stop_spark() first"
        )
    java = find_java(java_home)
    use_java(java)
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, sys.executable)
    if not ray.is_initialized():
        join_or_start_ray()
    _check_nodes(java)
    placed = raydp_options.get("placement_group") is not None  # its resources are reserved already
    misfit = None if placed else explain_misfit(needs, nodes_room())
    if misfit is not None:
        raise ConfigError(f"spark_session({app_name!r}): {misfit}")
    if actor_exists(app_name + _MASTER_SUFFIX):
        raise ConfigError(f"spark_session({app_name!r}): Spark of this name already runs on this Ray; give another app_name, or stop it")
    settings = open_modules(_quiet(configs or {}), java.version)
    with saying(f"the start of Spark {app_name!r} on Ray, with {needs.executors} executors"):
        session = _start(raydp, app_name, needs, executor_cores, executor_memory, settings, timeout_s, raydp_options)
    _started.update(session=session, arguments=arguments)
    return session


def stop_spark(session: Any = None, *, timeout_s: float = 20.0) -> None:
    """Stop the Spark of :func:`spark_session` and wait until its actors are gone; does nothing if none runs.

    There is at most one in a process; ``session`` is needed only if :func:`spark_session` did not start it. Blocks that Rayad has fetched
    stay readable.
    """
    raydp = import_raydp("stop_spark")
    import ray

    stopping: Any = session or _started.get("session")
    name = getattr(getattr(stopping, "sparkContext", None), "appName", None)
    if name and session_alive(stopping) and stopping.sparkContext.getConf().get(_LOG_FILE) == _LOG_SETTINGS:
        stopping.sparkContext.setLogLevel("OFF")  # what its threads say of each other's end is no error
    _started.clear()
    raydp.stop_spark()
    deadline = time.monotonic() + timeout_s
    while name and ray.is_initialized() and actor_exists(name + _MASTER_SUFFIX) and time.monotonic() < deadline:
        time.sleep(0.1)


def import_raydp(where: str) -> Any:
    """The raydp module, or ConfigError saying how to get it."""
    try:
        import pyspark  # noqa: F401
        import raydp
    except ImportError as error:
        raise ConfigError(f"{where}: Spark needs the packages raydp and pyspark: {error}; pip install 'rayad[spark]'") from error
    return raydp


def refuse_ray_client(where: str) -> None:
    """Raise ConfigError when this process talks to Ray through Ray Client (``ray://``), which cannot share blocks with Spark."""
    import ray.util.client

    if ray.util.client.ray.is_connected():
        raise ConfigError(
            f"{where}: this process uses Ray Client (ray://...), through which Spark and Ray cannot share data; "
            "run on a node of the cluster, or send the program there with `ray job submit`"
        )


def session_alive(session: Any) -> bool:
    """Whether the session's SparkContext still runs."""
    try:
        return not java_session(session).sparkContext().isStopped()
    except Exception:
        return False


def _running_session() -> Any:
    session = _started.get("session") or session_of_this_process()
    if session is None:
        return None
    if session_alive(session):
        return session
    stop_spark(session)  # a session ended with session.stop() leaves RayDP's own state behind
    return None


def actor_exists(name: str) -> bool:
    """Whether a Ray actor of this name lives in this namespace."""
    import ray

    try:
        ray.get_actor(name)
    except ValueError:
        return False
    return True


def nodes_room() -> list[NodeRoom]:
    """The total and free resources of each live node of the Ray cluster."""
    import ray
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    rooms = []
    for node in ray.nodes():
        if node["Alive"]:
            have, left = node["Resources"], free.get(node["NodeID"], {})
            name = node.get("NodeManagerHostname") or node["NodeManagerAddress"]
            rooms.append(NodeRoom(name, left.get("CPU", 0.0), left.get("memory", 0.0), have.get("CPU", 0.0), have.get("memory", 0.0)))
    return rooms


def _check_nodes(java: JavaHome, timeout_s: float = 120.0) -> None:
    """Ask a worker of each node which Java and which packages it sees: workers have the environment with which Ray was started there."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    probe = ray.remote(num_cpus=0, max_retries=0)(_troubles_of_this_node)
    asked = {probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(): node for node in nodes}
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s)
    if late:
        silent = ", ".join(sorted(nodes[asked[ref]] for ref in late))
        raise ConfigError(
            f"spark_session: {silent} did not report within {timeout_s:g} s whether it has what Spark needs: Ray could start no worker "
            "there in that time; see `ray status` and how busy the node is, then try again"
        )
    problems = []
    for ref in ready:
        problem, missing = ray.get(ref, timeout=timeout_s)
        if missing:
            raise ConfigError(f"spark_session: {_told_missing(missing[0], f'node {nodes[asked[ref]]}')}")
        if problem:
            problems.append(f"node {nodes[asked[ref]]} {problem}")
    if problems:
        raise ConfigError(
            f"spark_session: Ray was started without a Java for Spark: {'; '.join(problems)}. Ray looks for java when a node starts: "
            f"put {java.bin!r} (or a Java 17 of the node) on PATH and start Ray again; or call spark_session() before ray.init()"
        )


def _troubles_of_this_node() -> tuple[str, list[str]]:
    """What is wrong with this node's Java, and which modules it lacks; runs in a Ray worker."""
    import shutil
    from importlib.util import find_spec

    missing = [name for name in ("raydp", "pyspark") if find_spec(name) is None]
    found = shutil.which("java")
    if found is None:
        return "has no java on the PATH that Ray was started with", missing
    version, problem = java_version(found)
    if problem:
        return f"has {found!r}, which {problem}", missing
    return "" if version in (8, 11, 17) else f"has Java {version} at {found!r}, not 8, 11 or 17", missing


_NO_MODULE = re.compile(r"No module named '([^']+)'")
_ADDRESS = re.compile(r"\bip[=:] ?([0-9a-fA-F.:]*[0-9a-fA-F])")


def _missing_module(error: BaseException) -> str:
    """What there is to do where a worker lacks a module, as Ray says it somewhere in its error; "" where that is not the cause."""
    known: BaseException | None = error
    while known is not None:
        text = str(known)
        found, address = _NO_MODULE.search(text), _ADDRESS.search(text)
        if found is not None:
            return _told_missing(found[1], f"the node {address[1]}" if address is not None else "a node")
        known = known.__cause__ or known.__context__
    return ""


def _told_missing(module: str, node: str) -> str:
    package = module.partition(".")[0]
    install = "'rayad[spark]'" if package in ("raydp", "pyspark", "py4j") else f"{package!r}, or the package that it is in"
    return f"Ray's workers on {node} have no module {module!r}: pip install {install}, in the Python with which Ray is started on each node"


_LOG_FILE = "spark.log4j.config.file.name"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").resolve().as_uri()


def _quiet(configs: Mapping[str, str]) -> dict[str, str]:
    """The settings with Rayad's own for what the driver prints; the user's stay. RayDP's names a file that does not exist."""
    quiet = {"spark.ui.showConsoleProgress": "false"}
    if "SPARK_LOG4J_CONFIG_FILE_NAME" not in os.environ:
        quiet[_LOG_FILE] = _LOG_SETTINGS
    return {**quiet, **configs}


def _start(
    raydp: Any,
    app_name: str,
    needs: SparkNeeds,
    cores: int,
    memory: str | int,
    settings: dict[str, str],
    timeout_s: float,
    options: dict[str, Any],
) -> Any:
    deadline = time.monotonic() + timeout_s
    has_tried = threading.Event()
    watchdog = OwnedThread("spark-start", partial(_end_late, has_tried, timeout_s, app_name + _MASTER_SUFFIX), stop=has_tried.set)
    watchdog.start()
    try:
        session = raydp.init_spark(app_name, needs.executors, cores, memory, configs=settings, **options)
    except Exception as error:
        late = time.monotonic() >= deadline
        missing = _missing_module(error)
        if missing:
            raise ConfigError(f"spark_session({app_name!r}): RayDP could not start it: {missing}") from error
        reason = f"not up after {timeout_s:g} s" if late else "RayDP could not start it"
        raise ConfigError(
            f"spark_session({app_name!r}): {reason}: {type(error).__name__}: {first_line(error)}; see the logs of the Java workers below "
            f"{_logs_directory()!r}{', or give a longer timeout_s' if late else ''}"
        ) from error
    finally:
        watchdog.stop()  # not waited for: it may be in a call to Ray
    up = _wait_for_executors(session, needs.executors, deadline)
    if up < needs.executors:
        raydp.stop_spark()
        raise ConfigError(
            f"spark_session({app_name!r}): {up} of {needs.executors} executors were up after {timeout_s:g} s; "
            f"see the logs of the Java workers below {_logs_directory()!r}, or give a longer timeout_s"
        )
    if settings.get(_LOG_FILE) == _LOG_SETTINGS:  # Ray, joined by Spark's driver, has put its own settings in their place
        session.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    return session


def _wait_for_executors(session: Any, wanted: int, deadline: float) -> int:
    """How many executors are registered, once it is ``wanted`` or the deadline has passed."""
    while True:
        up = executors(session)
        if up >= wanted or time.monotonic() >= deadline:
            return up
        time.sleep(0.1)


def _end_late(has_tried: threading.Event, timeout_s: float, name: str) -> None:
    """In the watchdog's thread: end RayDP's wait, which has no bound, when the deadline has passed."""
    import ray

    if has_tried.wait(timeout_s):
        return
    try:
        ray.kill(ray.get_actor(name))
    except Exception:
        return


def _logs_directory() -> str:
    import ray

    if not ray.is_initialized():
        return "/tmp/ray/session_latest/logs"
    known = ray.init(ignore_reinit_error=True)  # gives what this process has joined, and starts nothing
    return os.path.join(known.address_info["session_dir"], "logs")


__all__ = ["actor_exists", "import_raydp", "nodes_room", "refuse_ray_client", "session_alive", "spark_session", "stop_spark"]
