"""House rules for what documents claim about the code: names, commands, defaults, words.

A sentence with a figure of the code is built here from the code, and must stand in its page. So a changed default fails until the page
says the new one.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import benchmarks.__main__
import rayad as rd
from rayad.actors.lead import layouts
from rayad.actors.lead.nodes import known, leaving
from rayad.actors.plane import on_demand
from rayad.actors.replica.parts import part_files
from rayad.autoscale import AutoscalerCore, DecisionJournal
from rayad.autoscale.statistics import LatencyHistogram
from rayad.cli import main
from rayad.dataflow.config import FailureConfig, RunConfig, ScalingConfig, SnapshotConfig
from rayad.snapshots.failure_rate import FailureRate
from rayad.snapshots.interval import IntervalEstimator
from rayad.snapshots.manifest import Manifest
from tests.checkout import PACKAGES, ROOT, Breach, parse, python_files, refuse, text_files
from tests.test_house_rules_documents import PAGES, code_in

CONFIGS = {config.__name__: config for config in (RunConfig, FailureConfig, SnapshotConfig, ScalingConfig)}
WRITTEN = [path for path in text_files() if path.suffix in {".md", ".py", ".ipynb"} and not path.is_relative_to(ROOT / "tests")]


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def lines_with(path: Path, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
    text = text_of(path)
    for match in re.finditer(pattern, text):
        yield text.count("\n", 0, match.start()) + 1, match


# -- names -----------------------------------------------------------------------------------------------------------------------------


def is_public(dotted: str) -> bool:
    """Whether ``rd.<dotted>`` leads somewhere, as far as modules and classes go."""
    value: Any = rd
    for name in dotted.split("."):
        if not (inspect.ismodule(value) or inspect.isclass(value)):
            return True
        if not hasattr(value, name) and name not in getattr(value, "__annotations__", {}):
            return False
        value = getattr(value, name, None)
    return True


def test_public_names_in_texts_exist() -> None:
    refuse(
        [
            Breach(path, line, f"rd.{match[1]} does not exist", "name what src/rayad/__init__.py offers")
            for path in WRITTEN
            for line, match in lines_with(path, r"\brd\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
            if not is_public(match[1])
        ]
    )


def test_members_of_public_classes_in_documents_exist() -> None:
    classes = {name: getattr(rd, name) for name in rd.__all__ if inspect.isclass(getattr(rd, name))}
    refuse(
        [
            Breach(page, line, f"{match[1]} has no {match[2]}", "name a method or field that it has")
            for page in PAGES
            for line, match in lines_with(page, rf"`({'|'.join(classes)})\.([a-z_]\w*)")
            if not hasattr(classes[match[1]], match[2])
        ]
    )


def keywords_of_calls(text: str, name: str) -> Iterator[str]:
    """The keywords of calls ``name(...)`` in a text, without those of calls inside them."""
    for match in re.finditer(rf"\b{name}\(", text):
        depth, start = 1, match.end()
        inside = ""
        for char in text[start : start + 600]:
            depth += (char in "([{") - (char in ")]}")
            if depth == 0:
                break
            inside += char if depth == 1 else ""
        yield from re.findall(r"(\w+)\s*=(?!=)", re.sub(r"#.*", "", inside))


@pytest.mark.parametrize("name", CONFIGS)
def test_settings_in_texts_are_fields(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(CONFIGS[name])}
    wrong = [
        Breach(path, 1, f"{name}({keyword}=...)", f"its fields are {sorted(fields)}")
        for path in WRITTEN
        for keyword in keywords_of_calls(text_of(path), name)
        if keyword not in fields
    ]
    refuse(wrong)


def test_commands_of_rayad_in_documents_are_taken_as_they_are_printed() -> None:
    """With their options and arguments; a name alone (``rayad top``) only has to exist, and so need no files that an example names."""
    wrong = []
    for page in PAGES:
        for line in re.findall(r"(?:^|/|-- )rayad ([a-z]+[^\n#`]*)", code_in(page.read_text(encoding="utf-8")), flags=re.MULTILINE):
            name, *words = shlex.split(re.sub("<[^>]*>", "X", line))
            command = main.commands.get(name)
            if command is None:
                wrong.append(Breach(page, 1, f"rayad {line}", f"the commands are {sorted(main.commands)}"))
                continue
            try:
                command.make_context(name, words)
            except click.exceptions.Exit:  # --help
                continue
            except click.UsageError as error:
                if not (isinstance(error, click.MissingParameter) and not words) and "does not exist" not in error.format_message():
                    wrong.append(Breach(page, 1, f"rayad {line}", error.format_message()))
    refuse(wrong)


def test_modules_that_documents_run_exist() -> None:
    """``python -m tests.simulation``, and of ``python -m benchmarks NAME`` the name, too."""
    names = set(benchmarks.__main__.NAMES)
    wrong = []
    for page in PAGES:
        for module, rest in re.findall(r"python -m ((?:tests|benchmarks|rayad)[\w.]*)([^\n`#]*)", page.read_text(encoding="utf-8")):
            path = ROOT / module.replace(".", "/")
            if not (path / "__main__.py").is_file() and not path.with_suffix(".py").is_file():
                wrong.append(Breach(page, 1, f"python -m {module}", "there is no such module"))
            first = rest.split()[:1]
            if module == "benchmarks" and first and re.fullmatch(r"[a-z_0-9]+", first[0]) and first[0] not in names:
                wrong.append(Breach(page, 1, f"python -m benchmarks {first[0]}", f"the benchmarks are {sorted(names)}"))
    refuse(wrong)


# -- figures ---------------------------------------------------------------------------------------------------------------------------


def default_of(function: Any, parameter: str) -> Any:
    return inspect.signature(function).parameters[parameter].default


RUN, FAILURES = RunConfig(), FailureConfig()
CLAIMS = [
    ("docs/decisions/033-what-waits-has-a-bound.md", f"`RunConfig.input_log_bytes` ({RUN.input_log_bytes >> 20} MiB)"),
    ("docs/decisions/039-restarts.md", f"`FailureConfig(window_s={FAILURES.window_s:.0f})`"),
    ("docs/decisions/039-restarts.md", f"`delay_s={FAILURES.delay_s:.0f}`"),
    ("docs/decisions/039-restarts.md", f"`delay_max_s={FAILURES.delay_max_s:.0f}`"),
    ("docs/decisions/039-restarts.md", f"`reset_after_s={FAILURES.reset_after_s:.0f}`"),
    ("CHANGELOG.md", f"`FailureConfig(reset_after_s={FAILURES.reset_after_s:.0f})`"),
    ("docs/decisions/040-the-end-of-a-driver.md", f"`RunConfig(termination_s={RUN.termination_s:.0f})`"),
    ("CHANGELOG.md", f"`RunConfig(termination_s={RUN.termination_s:.0f})`"),
    ("docs/deployment.md", f"counted it as alive for {known.FORGIVEN_S:.0f} s more"),
    ("docs/deployment.md", f"{leaving.RESERVE_S:.0f} s before the end the last snapshot has to do"),
    ("docs/deployment.md", f"`FailureConfig.room_wait_s`, {FAILURES.room_wait_s:.0f} s, for room"),
    ("docs/design/engine.md", f"`Vertex.reentrancy`, {rd.Vertex.reentrancy} by default"),
    ("docs/design/on_demand.md", f"`buffer` batches of a sender (default {default_of(rd.Stream.rebalance, 'buffer')})"),
    ("docs/design/on_demand.md", f"{on_demand.WORK_S * 1000:.0f} ms of a receiver's work (`WORK_S`)"),
    ("docs/design/on_demand.md", f"{on_demand.ROWS_MAX:,} rows or {on_demand.JOINED_BYTES_MAX >> 20} MiB of columns"),
    ("docs/design/ordering.md", f"`memory_bytes` (by default {default_of(rd.Stream.ordered, 'memory_bytes') >> 20} MiB)"),
    (
        "docs/design/rescaling.md",
        f"The first step moves {layouts.FIRST_STEP_GROUPS} groups, "
        f"the second {layouts.groups_of_next_step([(layouts.FIRST_STEP_GROUPS, 1.0)])}",
    ),
    ("docs/design/snapshots.md", f"after {part_files.CHAIN_MAX} of them"),
    ("docs/design/autoscaling.md", f"counts in {LatencyHistogram.BUCKETS} buckets"),
    ("docs/design/autoscaling.md", f"the last {default_of(DecisionJournal, 'changes_keep')} changes"),
    ("docs/design/autoscaling.md", f"and {default_of(DecisionJournal, 'holds_keep')} holds"),
    ("docs/design/autoscaling.md", f"asks again {default_of(AutoscalerCore, 'retry_s'):.0f} s later"),
    ("docs/design/interval.md", f"each new cost has weight {IntervalEstimator.WEIGHT}"),
    ("docs/design/interval.md", {8: "eight"}[FailureRate.POINTS_PER_DECADE] + " a decade"),
]


@pytest.mark.parametrize(("page", "claim"), CLAIMS, ids=[f"{Path(page).stem}: {claim[:40]}" for page, claim in CLAIMS])
def test_figures_in_documents_are_those_of_the_code(page: str, claim: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert claim in text, f"{page} should say {claim!r}: the code does"


# -- statements ------------------------------------------------------------------------------------------------------------------------


def test_the_state_of_a_replica_is_one_part_of_a_snapshot(tmp_path: Path) -> None:
    """docs/design/snapshots.md and the glossary say so; "state is stored by key-group" is how it moves, not how it lies in a store."""
    flow = rd.Dataflow("parts")
    flow.input("numbers").key_by(lambda number: number).count(name="count").collect("out")
    job = flow.submit(RunConfig(storage_path=str(tmp_path)), parallelism=2, runtime="local")
    job.input("numbers").send(list(range(100)))
    signed = json.loads((Path(job.savepoint()) / "manifest.json").read_text(encoding="utf-8"))
    manifest = Manifest.from_json(json.loads(signed["manifest"]))
    job.cancel()
    assert manifest.key_groups == 256
    assert sorted((part.replica, len(part.files)) for part in manifest.parts if part.vertex == "count") == [(0, 1), (1, 1)]


def test_every_actor_answers_heartbeats_in_a_group_where_nothing_waits() -> None:
    """What ``FailureConfig.heartbeat_timeout_s`` and docs/design/snapshots.md promise: a long activation is no silence."""
    makers = [path for path in python_files("actors") if any(lines_with(path, r"(=|return) remote_class\("))]
    answering = {
        path.stem
        for path in makers
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None and ast.unparse(key) == "PULSE" and "'ping'" in ast.unparse(value)
    }
    assert len(makers) == 6
    assert answering == {path.stem for path in makers}


def test_a_change_of_layout_is_no_barrier_in_the_glossary() -> None:
    (entry,) = re.findall(r"^\| \*\*rescale\*\* \|.*$", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert "*marker*" in entry
    assert "no barrier (decision 019)" in entry


# -- words -----------------------------------------------------------------------------------------------------------------------------


def glossary_terms() -> list[str]:
    rows = re.findall(r"^\| (\*\*.*?) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [term for row in rows for term in re.findall(r"\*\*(.+?)\*\*", row)]


def test_every_term_of_the_glossary_is_used_in_the_code() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files(*PACKAGES, "src")).lower()
    unused = [
        term for term in glossary_terms() if not re.search(r"[\s_-]*".join(re.split(r"[\s_-]+", term.lower().removesuffix("()"))), code)
    ]
    assert not unused, f"docs/glossary.md explains words that the code does not use: {unused}"


RESUME = r"\b(?:go|goes|gone|going|went) on from\b"
WORDS = {RESUME: "resume (from)", r"\b(?:hire[sd]?|relieve[sd]?|dismiss(?:es|ed)?)\b": "start, release, stop"}
READ = (
    "actors",
    "docs",
    "examples",
    "progress",
    "dataflow",
    "snapshots",
    "autoscale",
    "graphs",
    "incremental",
    "sql",
    "integrations",
    "benchmarks",
    "src",
)
NAME_THEM = {"docs/glossary.md", "docs/design/structure.md"}


def test_one_idea_has_one_word() -> None:
    paths = [path for path in WRITTEN if path.relative_to(ROOT).parts[0] in READ or path.parent == ROOT]
    refuse(
        [
            Breach(path, line, match[0], f"write {word}")
            for path in paths
            if path.relative_to(ROOT).as_posix() not in NAME_THEM
            for pattern, word in WORDS.items()
            for line, match in lines_with(path, pattern)
        ]
    )
