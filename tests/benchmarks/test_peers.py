"""Peers: environments made on demand, scripts that succeed, fail, hang or leave processes behind. Nothing here asserts on time."""

from __future__ import annotations

import json
import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import click
import psutil
import pytest

from benchmarks import peer_environments
from benchmarks.__main__ import chosen_peers
from benchmarks.measurement import Measurement, WrongResult
from benchmarks.peer_environments import PeerFailed, PeerRun, PeerUnavailable, PeerUnfinished, available_peers, run_peer, workloads_of
from benchmarks.side_by_side import NO_FIGURE, WHOLE, Outcome, System, chosen, compare, peer, ratios_of

Fake = Callable[..., PeerRun]
RESULT = 'print(json.dumps({"seconds": 1.5, "digest": arguments["digest"], "version": "fake 1"}))'
HEAD = "import json, os, subprocess, sys, time\narguments = json.loads(sys.argv[1])\n"


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Runs a script as the workload ``work`` of a peer ``fake``."""

    def run(source: str, *, timeout_s: float = 60.0, nice: int | None = None, **arguments: object) -> PeerRun:
        folder = tmp_path / "peers" / "fake"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "work.py").write_text(HEAD + source, encoding="utf-8")
        environments = tmp_path / "environments"
        return run_peer("fake", "work", arguments, timeout_s=timeout_s, nice=nice, peers=folder.parent, environments=environments)

    return run


def test_a_script_gets_its_arguments_and_tells_its_result(fake: Fake) -> None:
    done = fake(f"print('chatter')\n{RESULT}", digest=[1, 2])
    assert (done.seconds, done.digest, done.version) == (1.5, [1, 2], "fake 1")
    assert done.told == {"seconds": 1.5, "digest": [1, 2], "version": "fake 1"}
    assert done.wall_s > 0
    assert done.cpu_s > 0


def test_a_script_runs_at_the_nice_level_asked_for_and_without_the_projects_packages(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    source = "arguments['digest'] = [os.nice(0), os.environ.get('PYTHONPATH'), os.environ.get('RAY_ADDRESS')]\n"
    assert fake(source + RESULT, nice=17).digest == [max(17, os.nice(0)), None, None]


def test_a_script_that_fails_says_why_in_one_line(fake: Fake) -> None:
    with pytest.raises(PeerFailed) as caught:
        fake("sys.stderr.write('noise\\n')\nraise ValueError('no such file')")
    assert str(caught.value) == "failed (exit code 1): ValueError: no such file"


@pytest.mark.parametrize("printed", ["", "print('done')", "print('{\"seconds\": 1}')", "print('[1]')"])
def test_a_script_without_a_result_has_failed(fake: Fake, printed: str) -> None:
    with pytest.raises(PeerFailed, match="its last line is no result"):
        fake(printed)


def live(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def test_a_script_that_hangs_is_ended_and_is_no_figure(fake: Fake, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    source = f"open({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    with pytest.raises(PeerUnfinished) as caught:
        fake(source, timeout_s=1.0)
    assert str(caught.value) == "did not finish in 1 s"
    assert live([int(note.read_text(encoding="utf-8"))]) == []


def test_processes_that_a_script_leaves_behind_are_ended_even_in_a_session_of_their_own(fake: Fake) -> None:
    nap = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    orphan = f"import subprocess, sys; print(subprocess.Popen({nap}, start_new_session=True, stdout=-3).pid)"
    source = f"""
child = subprocess.Popen({nap})
parent = subprocess.run([sys.executable, '-c', {orphan!r}], stdout=subprocess.PIPE)
arguments['digest'] = [child.pid, int(parent.stdout)]
"""
    pids = fake(source + RESULT).digest
    assert len(set(pids)) == 2
    assert live(pids) == []


def test_a_peer_without_the_script_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailable, match=r"no script work\.py"):
        run_peer("fake", "work", {}, peers=tmp_path, environments=tmp_path)


# -- environments ----------------------------------------------------------------------------------
@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Environments are made without pip: what would have been called. (Real ones take a package index.)"""
    called: list[list[str]] = []

    def install(peer: str, command: list[str]) -> None:
        called.append(command)
        if command[1:3] == ["-m", "venv"]:
            venv.create(command[3], with_pip=False, symlinks=True)

    monkeypatch.setattr(peer_environments, "_install", install)
    return called


def test_an_environment_is_made_once_and_again_when_its_requirements_change(tmp_path: Path, installs: list[list[str]]) -> None:
    requirements = tmp_path / "peers" / "fake" / "requirements.txt"
    requirements.parent.mkdir(parents=True)
    requirements.write_text("", encoding="utf-8")
    python = peer_environments.python_of("fake", tmp_path / "peers", tmp_path / "environments")
    assert python == tmp_path / "environments" / "fake" / "bin" / "python"
    assert [command[-2:] for command in installs] == [["venv", str(python.parent.parent)], ["-r", str(requirements)]]
    assert peer_environments.python_of("fake", tmp_path / "peers", tmp_path / "environments") == python
    assert len(installs) == 2
    requirements.write_text("# another\n", encoding="utf-8")
    peer_environments.python_of("fake", tmp_path / "peers", tmp_path / "environments")
    assert len(installs) == 4


def test_a_script_runs_in_the_environment_of_its_peer(tmp_path: Path, installs: list[list[str]], fake: Fake) -> None:
    requirements = tmp_path / "peers" / "fake" / "requirements.txt"
    requirements.parent.mkdir(parents=True)
    requirements.write_text("", encoding="utf-8")
    assert fake(f"arguments['digest'] = sys.prefix\n{RESULT}").digest == str(tmp_path / "environments" / "fake")


def test_an_environment_that_cannot_be_made_is_a_reason_not_an_error_of_the_benchmark(tmp_path: Path) -> None:
    requirements = tmp_path / "peers" / "fake" / "requirements.txt"
    requirements.parent.mkdir(parents=True)
    requirements.write_text("--no-index\nno-such-package-of-rayads-tests==1\n", encoding="utf-8")
    with pytest.raises(PeerUnavailable, match="not installed: ERROR: No matching distribution found for no-such-package"):
        peer_environments.python_of("fake", tmp_path / "peers", tmp_path / "environments")
    assert not (tmp_path / "environments" / "fake" / ".made-from").exists()  # what was made halfway is not taken for an environment


def test_a_peer_without_requirements_runs_in_the_projects_environment(tmp_path: Path) -> None:
    assert peer_environments.python_of("fake", tmp_path, tmp_path) == Path(sys.executable)


def test_every_peer_pins_every_package_and_has_a_workload() -> None:
    for name in available_peers():
        assert workloads_of(name), name
        requirements = peer_environments.PEERS / name / "requirements.txt"
        if requirements.is_file():
            assert [line for line in requirements.read_text(encoding="utf-8").split() if "==" not in line] == [], name


# -- side by side ----------------------------------------------------------------------------------
def outcome(seconds: float, digest: object = 7) -> Callable[[], Outcome]:
    return lambda: Outcome(seconds, digest, seconds + 1, 0.5, "fake 1")


def test_systems_run_in_turn_in_an_order_that_is_reversed_each_time() -> None:
    ran: list[str] = []
    out = Measurement("example", "", {})

    def noted(name: str, seconds: float) -> System:
        return System(name, lambda: (ran.append(name), Outcome(seconds, 7))[1])

    compare(out, [noted("ours", 1.0), noted("theirs", 4.0)], repetitions=2)
    assert ran == ["ours", "theirs", "theirs", "ours"]
    assert {series.name: series.medians for series in out.series} == {"ours": [1.0, 1.0], "theirs": [4.0, 4.0]}
    assert out.checks == ["all gave the same result"]
    out.ratios = ratios_of(out, [("theirs", "ours", "at least 3"), ("missing", "ours", "")])
    assert [(ratio.over, ratio.aim) for ratio in out.ratios] == [("theirs", "at least 3")]


def test_another_result_ends_the_benchmark() -> None:
    with pytest.raises(WrongResult):
        compare(Measurement("example", "", {}), [System("a", outcome(1.0)), System("b", outcome(1.0, 8))], repetitions=1)
    with pytest.raises(WrongResult):
        compare(Measurement("example", "", {}), [System("a", outcome(1.0))], repetitions=1, wanted=8)


def test_a_peer_without_a_figure_is_asked_once_and_named_with_the_reason() -> None:
    asked: list[int] = []

    def hang() -> Outcome:
        asked.append(1)
        raise PeerUnfinished("did not finish in 5 s")

    out = Measurement("example", "", {})
    compare(out, [System("ours", outcome(1.0)), System("slow", hang)], repetitions=3)
    assert len(asked) == 1
    assert [series.name for series in out.series] == ["ours"]
    tables = {table.title: table.rows for table in out.tables}
    assert tables == {WHOLE: [["ours", 2.0, 0.5, "fake 1"]], NO_FIGURE: [["slow", "did not finish in 5 s"]]}


def test_a_slow_system_with_fewer_repetitions_has_a_series_but_no_ratio() -> None:
    out = Measurement("example", "", {})
    compare(out, [System("ours", outcome(1.0)), System("slow", outcome(9.0), repetitions=1)], repetitions=3)
    assert [len(series.repetitions) for series in out.series] == [3, 1]
    assert ratios_of(out, [("slow", "ours", "")]) == []


def test_peers_are_chosen_by_folder_and_rayads_programs_always_run() -> None:
    systems = [System("ours", outcome(1.0)), peer("Polars", "polars", "wordcount", {}, timeout_s=1.0)]
    assert [system.name for system in chosen(systems, None)] == ["ours", "Polars"]
    assert [system.name for system in chosen(systems, ())] == ["ours"]
    assert [system.name for system in chosen(systems, ("plain",))] == ["ours"]


def test_the_command_line_says_which_peers_there_are() -> None:
    assert chosen_peers("all") is None
    assert chosen_peers("none") == ()
    assert chosen_peers("polars, plain") == ("polars", "plain")
    with pytest.raises(click.UsageError, match=r"there is no peer 'polar'; there are .*polars.*, or all, or none"):
        chosen_peers("polar")


def test_the_plain_peer_counts_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or\nnot to be\n", encoding="utf-8")
    done = run_peer("plain", "wordcount", {"folder": str(tmp_path)})
    assert done.digest[0] == 4
    assert json.loads(json.dumps(done.told))["version"].startswith("Python ")
