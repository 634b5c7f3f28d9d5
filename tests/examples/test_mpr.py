"""The four MPR applications in one process: all versions give the same bytes, and these are right. On Ray: tests/cluster."""

from __future__ import annotations

import bz2
import doctest
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from click.testing import CliRunner

from rayad.cli import main as rayad
from tests.examples.mpr import FOLDER, PROGRAMS, module, small
from tests.examples.running import environment, run_example
from tests.thorough import by_turns

ITEMS = {"mandelbrot": 80, "primes": 5_000, "lanes": 12, "bzip2_file": 5}


@pytest.fixture(autouse=True)
def _no_threads() -> None:
    cv2.setNumThreads(1)


def test_doctests_of_the_kernels_hold() -> None:
    assert doctest.testmod(module("kernels")).failed == 0
    assert doctest.testmod(module("adapting")).failed == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_number_of_replicas_gives_the_bytes_of_the_sequential_version(name: str, tmp_path: Path) -> None:
    app = small(name, tmp_path)
    assert sum(1 for _ in app.items()) == ITEMS[name]
    alone = module("versions").run(app, "sequential").md5
    for seed, replicas in enumerate((1, 2, 3, 5)):
        assert module("versions").run(app, "local", replicas, seed=seed).md5 == alone


@pytest.mark.parametrize("batch_items", [1, 7, 100_000])
def test_how_many_items_travel_together_changes_nothing(batch_items: int, tmp_path: Path) -> None:
    for name in ("primes", "bzip2_file"):
        app = replace(small(name, tmp_path), batch_items=batch_items)
        assert module("versions").run(app, "local", 2).md5 == module("versions").run(app, "sequential").md5


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reader_resumes_where_another_stopped(name: str, tmp_path: Path) -> None:
    app = small(name, tmp_path)
    source = module("versions").Items(app.items, 3)
    first = source.build_part(0, None)
    first.next_batch()
    second = source.build_part(0, first.offset())
    rest, again = ([item for read in iter(part.next_batch, None) for item in read.batch] for part in (second, first))
    assert len(rest) == ITEMS[name] - 3
    assert all(np.array_equal(a, b) for a, b in zip(rest, again, strict=True))
    assert second.offset() == ITEMS[name]


# -- each of them is right ---------------------------------------------------------------------
def test_primes_are_those_of_a_sieve() -> None:
    is_prime = np.ones(5_000, bool)
    is_prime[:2] = False
    for n in range(2, 71):
        is_prime[n * n :: n] = False
    found = module("versions").run(module("primes").application(5_000), "local", 2).result
    assert found.tolist() == np.flatnonzero(is_prime).tolist()


def test_a_frame_of_the_mandelbrot_set_is_that_of_complex_numbers() -> None:
    view = module("kernels").View(24, 30)
    frames = module("versions").run(module("mandelbrot").application(2, 24, 30), "local", 3).result

    def iterations(frame: int, row: int, column: int) -> int:
        width = view.width / view.zoom**frame
        offset = [width * ((place + 0.5) / view.size - 0.5) for place in (column, row)]
        c, z = complex(view.centre[0] + offset[0], view.centre[1] + offset[1]), 0j
        for count in range(view.iterations):
            if abs(z) ** 2 > 4:
                return count
            z = z * z + c
        return view.iterations

    wanted = [[[iterations(frame, row, column) for column in range(24)] for row in range(24)] for frame in range(2)]
    assert (frames != np.array(wanted)).mean() < 0.01  # roundings differ at the border of the set
    assert len(np.unique(frames)) > 10


def test_the_compressed_file_is_what_other_tools_restore(tmp_path: Path) -> None:
    app = small("bzip2_file", tmp_path, "out.bz2")
    path = Path(module("versions").run(app, "local", 3).result)
    original = (tmp_path / "input").read_bytes()
    assert bz2.decompress(path.read_bytes()) == original
    block_bytes = module("bzip2_file").BLOCK_BYTES
    streams = [bz2.compress(original[start : start + block_bytes]) for start in range(0, len(original), block_bytes)]
    assert path.read_bytes() == b"".join(streams)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["input", "out.bz2"]
    if shutil.which("bunzip2"):
        assert subprocess.run(["bunzip2", "--stdout", path], capture_output=True, check=True).stdout == original


def test_an_empty_file_is_restored_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    app = module("bzip2_file").application(tmp_path / "empty", tmp_path / "out.bz2")
    for runtime in ("sequential", "local"):
        path = module("versions").run(app, runtime).result
        assert module("bzip2_file").check_restored(tmp_path / "empty", path) == 0


def test_a_file_that_is_not_restored_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b.bz2").write_bytes(bz2.compress(b"2"))
    with pytest.raises(SystemExit, match=r"b\.bz2 does not decompress to .*a"):
        module("bzip2_file").check_restored(tmp_path / "a", str(tmp_path / "b.bz2"))


def test_the_drive_is_drawn_alike_each_time(tmp_path: Path) -> None:
    first, second = (module("lanes").write_video(tmp_path / name, 5, 160, 90).read_bytes() for name in ("a.avi", "b.avi"))
    assert first == second
    drawn, read = module("kernels").draw_road(3, 160, 90), list(module("lanes").frames(str(tmp_path / "a.avi")))[3]
    assert drawn.shape == read.shape == (90, 160, 3)
    assert np.abs(drawn.astype(int) - read).mean() < 12  # JPEG loses some of the grain


def test_the_borders_of_the_lane_are_where_the_road_has_them() -> None:
    """On a straight piece of road the borders are drawn 0.45 of the width from the middle at the bottom."""
    marked = cv2.imdecode(np.frombuffer(module("kernels").mark_lanes(module("kernels").draw_road(0, 640, 360)), np.uint8), 1)
    green = (marked[350, :, 1] > 180) & (marked[350, :, 0] < 80) & (marked[350, :, 2] < 80)
    left, right = np.flatnonzero(green)[[0, -1]]
    assert abs(left - (320 - 0.45 * 640 * 0.95)) < 40
    assert abs(right - (320 + 0.45 * 640 * 0.95)) < 40


def test_segments_are_averaged_by_side_and_flat_ones_ignored() -> None:
    borders = module("kernels").lane_borders
    segments = np.array([[[20, 100, 60, 60]], [[180, 100, 140, 60]], [[0, 80, 200, 81]]])
    assert borders(segments, 100) == [((20, 100), (58, 62)), ((180, 100), (142, 62))]
    assert borders(None, 100) == []


def test_every_frame_is_in_the_marked_video_in_its_place(tmp_path: Path) -> None:
    path = module("versions").run(small("lanes", tmp_path), "local", 3).result
    marked = [module("kernels").mark_lanes(frame) for frame in module("lanes").frames(str(tmp_path / "input"))]
    assert Path(path).read_bytes() == b"".join(marked)
    shown = list(module("lanes").frames(path))
    assert len(shown) == len(marked) == 12
    for frame, data in zip(shown, marked, strict=True):  # another decoder of JPEG; the grain of other frames is 8 away
        assert np.abs(frame.astype(int) - cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)).mean() < 4


# -- parts of the versions ----------------------------------------------------------------------
def test_pieces_of_several_stages_become_one_file_and_may_be_finished_again(tmp_path: Path) -> None:
    output = module("outputs").Pieces(str(tmp_path / "whole"))
    parts = [output.take()]
    for pieces in ((b"ab", b"c"), (), (b"d",)):
        for piece in pieces:
            output.add(piece)
        parts.append(output.take())
    assert [part is None for part in parts] == [True, False, True, False]
    for _ in range(2):
        assert Path(output.finish(parts)).read_bytes() == b"abcd"
    assert [file.name for file in tmp_path.iterdir()] == ["whole"]


def test_a_missing_row_is_noticed() -> None:
    output = module("outputs").Frames(module("kernels").View(2, 10), 1)
    output.add(((0, 1), np.zeros(2, np.uint16)))
    with pytest.raises(ValueError, match="1 rows have come, not 1 frames of 2"):
        output.finish([output.take()])


@pytest.mark.parametrize(("name", "waits"), [("mandelbrot", 80), ("primes", 669), ("lanes", 12), ("bzip2_file", 5)])
def test_a_waiting_kernel_waits_by_the_load_of_its_result(name: str, waits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(module("kernels"), "pause", waited.append)
    app = small(name, tmp_path)
    assert module("versions").run(app.waiting(2.0), "sequential").md5 == module("versions").run(app, "sequential").md5
    assert len(waited) == ITEMS[name]
    assert all(0 <= wait_s <= 2.0 for wait_s in waited)
    assert sum(wait_s > 0 for wait_s in waited) == waits
    assert app.waiting(0.0) is app


# -- replicas that come and go -------------------------------------------------------------------
@by_turns(2)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_changes_of_replicas_while_it_runs_change_no_byte(name: str, seed: int, tmp_path: Path) -> None:
    """The local runtime runs a job in slices: changes at the very beginning happen before most of the items have been read."""
    app = replace(small(name, tmp_path), batch_items=20 if name == "primes" else 1)
    adapting = module("adapting").Adapting(changes=((0.0, 3), (0.0, 1), (0.0, 4)))
    changed = module("versions").run(app, "local", 2, seed=seed, adapting=adapting)
    assert changed.md5 == module("versions").run(app, "sequential").md5


def test_items_that_arrive_by_the_clock_give_the_same_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    versions, now_s = module("versions"), [100.0]
    monkeypatch.setattr(versions.time, "monotonic", lambda: now_s[0])
    part = versions.Items(partial(range, 9), 4, rate_per_s=2.0).build_part(0, None)
    assert part.next_batch().batch == []
    now_s[0] += 1.5
    assert part.backlog() == 3
    assert part.next_batch().batch == [0, 1, 2]
    assert part.next_batch().batch == []
    now_s[0] += 100.0
    assert part.next_batch().batch == [3, 4, 5, 6]
    again = versions.Items(partial(range, 9), 4, rate_per_s=2.0).build_part(0, part.offset())
    assert again.backlog() == 0
    assert part.next_batch().batch == [7, 8]
    assert part.next_batch() is None
    assert versions.Items(partial(range, 9), 4).build_part(0, None).backlog() is None


def test_policies_begin_with_one_replica_of_the_computing_vertex_and_change_no_other(tmp_path: Path) -> None:
    adapting, flow = module("adapting"), module("versions").dataflow(small("bzip2_file", tmp_path))
    for policy in adapting.POLICIES:
        scaling = adapting.Adapting(policy, 10.0, 0.5, "journal").scaling(flow, "compute", 8)
        fixed = dict.fromkeys(("source", "compute.number", "in order"), (1, 1))
        assert scaling.parallelism == {**fixed, "compute": (1, 8)}
        assert callable(scaling.policy)
        assert scaling.journal == "journal"
    assert not adapting.Adapting().scaling(flow, "compute", 8).is_adaptive
    assert adapting.Adapting(journal="journal").scaling(flow, "compute", 8).policy == "observe"
    with pytest.raises(ValueError, match="the policy 'mpr' compares with a goal: give one"):
        adapting.Adapting("mpr").scaling(flow, "compute", 8)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--runtime", "local", "--policy", "ds2"], "--policy and --plot need --runtime ray"),
        (["--runtime", "pool", "--plot", "x.png"], "--policy and --plot need --runtime ray"),
        (["--runtime", "pool", "--rescale", "1:2"], "--rescale and --rate are for the dataflow, not for --runtime pool"),
        (["--runtime", "sequential", "--rate", "5"], "--rescale and --rate are for the dataflow, not for --runtime sequential"),
        (["--policy", "mpr"], "--policy mpr needs --goal: the items that shall be produced a second"),
        (["--policy", "ds2", "--rescale", "1:2"], "--policy decides by itself: give it or --rescale"),
        (["--rescale", "1"], "'1': write SECONDS:REPLICAS, for example 5:4"),
        (["--rescale", "1:0"], "'1:0': write SECONDS:REPLICAS, for example 5:4"),
        (["--goal", "0"], "0"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: list[str], says: str) -> None:
    refused = CliRunner().invoke(module("primes").main, ["--limit", "10", *given])
    assert refused.exit_code == 2
    assert says in refused.output


# -- the command line -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("mandelbrot", ["--frames", "1", "--size", "30", "--out", "pictures"], "1 frames of 30 x 30"),
        ("primes", ["--limit", "2000", "--batch", "10"], "303 primes below 2,000, the largest is 1,999"),
        ("lanes", ["--frames", "5", "--width", "160"], "5 frames, "),
        ("bzip2_file", ["--megabytes", "1"], "1,000,000 bytes compressed to "),
    ],
)
def test_an_example_compares_with_the_sequential_version(name: str, arguments: list[str], says: str, tmp_path: Path) -> None:
    printed = run_example(f"mpr/{name}.py", "--runtime", "local", "--replicas", "3", *arguments, cwd=tmp_path)
    first, second, third, *_ = printed.splitlines()
    assert ", local, 3 replicas: " in first
    assert ", as the sequential version's; it took " in second
    assert third.startswith(says)
    if name == "mandelbrot":
        assert (tmp_path / "pictures" / "mandelbrot-000.pgm").read_bytes().startswith(b"P5 30 30 255\n")


def test_a_result_that_differs_from_the_sequential_version_is_a_failure() -> None:
    program = module("primes")
    with pytest.raises(SystemExit, match="is not that of the sequential version"):
        module("command_line").execute(program.application(100), program.application(200), runtime="local")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_of_each_application_can_be_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    shown = CliRunner().invoke(rayad, ["plan", f"{FOLDER / name}.py:flow"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "stage 'compute' x1 (exchange" in shown.output


def test_the_examples_need_opencv_only_for_lanes(tmp_path: Path) -> None:
    program = "import sys; sys.modules['cv2'] = None; import mandelbrot, primes, bzip2_file, lanes; print(primes.application(9).name)"
    paths: dict[str, Any] = environment()
    paths["PYTHONPATH"] = f"{FOLDER}:{paths['PYTHONPATH']}"
    done = subprocess.run([sys.executable, "-c", program], env=paths, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "primes\n", done.stderr
