"""Applications that get in the recorder's way: they stay unharmed, and what is kept is complete."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from r3bench import recorder, store
from r3bench.cli import main
from r3bench.record import application, conversion, dump
from tests.recorder.conftest import Build, Recorded

Record = Callable[..., Recorded]


@pytest.fixture
def hostile(recorded: Record) -> Record:
    """Records a situation; the program ended well, and all that was kept of it can be converted."""

    def go(situation: str, *arguments: str, **chosen: object) -> Recorded:
        found = recorded(situation, *arguments, programs="hostile", **chosen)
        assert found.status == 0
        for launched in found.launches:
            complete(launched)
        return found

    return go


def complete(launched: dump.Launched) -> None:
    unit, contents = conversion.unit(launched, 0, ())
    for side in (contents.before, contents.after):
        assert all(memory[:].size == memory.nbytes for memory in side.values())
    assert set(unit.written) == set(contents.after)
    assert launched.image is not None
    assert launched.image.is_file()


def factors(found: Recorded) -> list[float]:
    return [np.frombuffer(bytes.fromhex(u.facts["arguments"])[16:24]).item() for u in found.launches]


# -- ends and children --


def test_a_program_that_leaves_at_once(hostile: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLOW_COPIES", "1")
    assert (hostile("leaves").launches, hostile("leaves").output) == ([], "")


def test_children_become_other_programs_while_threads_record(hostile: Record) -> None:
    found = hostile("busy parent", max_per_kernel=20)
    folders = [launched.path.parent for launched in found.launches]
    assert sorted(folders.count(folder) for folder in set(folders)) == [3, 3, 3, 3, 3, 20]


def test_a_child_is_made_while_the_report_is_written(hostile: Record) -> None:
    found = hostile("fork")
    assert sorted(sum(k["launches"] for k in process["kernels"]) for process in found.coverage) == [1, 2]


def test_a_program_that_is_killed_again_and_again(program: Build, tmp_path: Path) -> None:
    """Whenever it is killed, what is there is complete."""
    library, app = str(recorder.library()), str(program("hostile"))
    for index in range(8):
        plan = application.Plan(folder=tmp_path / str(index), max_per_kernel=100)
        plan.folder.mkdir()
        (plan.folder / "plan").write_text("".join(f"{line}\n" for line in plan.lines()))
        environment = {**os.environ, "LD_PRELOAD": library, "R3BENCH_PLAN": str(plan.folder / "plan")}
        with subprocess.Popen([app, "busy parent"], env=environment, stdout=subprocess.DEVNULL) as running:
            time.sleep(0.03 * (index + 1))
            running.kill()
        for launched in dump.launches(plan.folder):
            complete(launched)


# -- disks, folders, signals --


@pytest.mark.parametrize(("most", "kept"), [(64, 0), (1 << 20, 1)])
def test_files_that_may_not_grow(most: int, kept: int, hostile: Record) -> None:
    found = hostile("limited", str(most))
    assert (found.output, len(found.launches)) == ("1\n", kept)
    assert kept == 0 or found.reasons == {"its memory could not be copied to disk": 1}


def test_files_that_the_application_closes(hostile: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLOW_COPIES", "1")
    found = hostile("closing", str(tmp_path))
    assert (found.output, found.launches) == ("1\n", [])
    assert found.reasons == {"its memory could not be copied to disk": 1}


def test_files_are_left_to_the_application(hostile: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLOW_COPIES", "1")
    found = hostile("few files", max_per_kernel=4)
    assert (factors(found), found.reasons) == ([1] * 4, {})


def test_nobody_hears_what_went_wrong(hostile: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_BROKEN_QUERY", "1")
    found = hostile("unheard")
    assert (found.output, found.reasons) == ("1\n", {"the driver reported an error": 1})


def test_a_device_that_is_always_busy_is_waited_for_once(hostile: Record) -> None:
    found = hostile("stuck", timeout_s=0.3)
    asked, _ = found.output.splitlines()
    assert int(asked) <= 20
    assert found.reasons == {
        "the device was busy for longer than the time-out": 3,
        "recording it failed before": 18,
    }


def test_what_cannot_be_recorded_is_not_tried_for_ever(hostile: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NO_PINNED_MEMORY", "1")
    reasons = hostile("hopeless", max_per_kernel=1).reasons
    assert set(reasons) == {"the driver refused pinned memory", "recording it failed before"}
    assert reasons["the driver refused pinned memory"] == 3


@pytest.mark.parametrize("plan", [None, "gone"])
def test_without_a_plan_nothing_happens(plan: str | None, program: Build, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(recorder.library())}
    if plan is not None:
        environment["R3BENCH_PLAN"] = str(tmp_path / plan)
    command = [str(program("hostile")), "launches"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    told = f"r3bench recorder: the plan {tmp_path / 'gone'} cannot be read: nothing is recorded\n"
    assert (done.stdout, done.stderr) == ("3\n", told if plan else "")
    assert not list(tmp_path.iterdir())


def test_two_programs_record_into_one_folder(program: Build, tmp_path: Path) -> None:
    plan = application.Plan(folder=tmp_path / "dump")
    command = [str(program("hostile")), "launches"]
    with ThreadPoolExecutor() as threads:
        runs = threads.map(lambda _: application.run(command, plan, keep_output=True), range(4))
        assert list(runs) == [(0, b"3\n")] * 4
    found = list(dump.launches(plan.folder))
    assert (len(found), len({launched.path.parent for launched in found})) == (8, 4)
    for launched in found:
        complete(launched)


def test_two_recordings_into_one_folder(program: Build, tmp_path: Path) -> None:
    command = ["record", "--out", str(tmp_path / "captures"), "--", str(program("hostile")), "launches"]
    with ThreadPoolExecutor() as threads:
        assert list(threads.map(lambda _: main(command), range(3))) == [0, 0, 0]
    (path,) = (tmp_path / "captures").glob("*.zarr")
    capture = store.open_capture(path)
    assert [unit.occurrence for unit in capture.units] == [0, 1]
    assert [len(store.contents(capture, index).before) for index in (0, 1)] == [2, 2]
    assert [each.name for each in tmp_path.iterdir()] == ["captures"]


# -- modules --


def test_an_image_in_a_library_that_is_closed(hostile: Record, program: Build) -> None:
    (launched,) = hostile("plugin", str(program("plugin", "-shared", "-fPIC"))).launches
    assert launched.image is not None
    assert b"// in a plugin\n" in launched.image.read_bytes()


def test_a_module_that_is_unloaded_before_its_launch_is_written(
    hostile: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLOW_COPIES", "1")
    (launched,) = hostile("unloaded").launches
    assert launched.image is not None
    assert b"// ours\n" in launched.image.read_bytes()


# -- memory --


def test_mapped_memory_counts_as_soon_as_it_may_be_read(hostile: Record) -> None:
    assert [len(launched.held) for launched in hostile("mapped").launches] == [2, 3]


def test_mapped_memory_is_what_may_be_read_of_it(hostile: Record) -> None:
    """Neighbouring mappings are one array."""
    launches = hostile("mapped in part", max_per_kernel=9).launches
    assert [[held.nbytes for held in u.held if held.nbytes % 4096 == 0] for u in launches] == [
        [8192],
        [16384],
        [12288],
        [],
    ]


def test_memory_of_another_device_is_copied(hostile: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of the recorder reads it, which the driver would punish."""
    monkeypatch.setenv("FAKE_OWN_KERNELS", "1")
    (launched,) = hostile("far").launches
    assert sorted(held.nbytes for held in launched.held) == [8000, 8000, 1 << 20]


def test_memory_ends_with_its_context(hostile: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_STRICT_RESET", "1")
    (launched,) = hostile("reset").launches
    assert len(launched.held) == 2


def test_a_recording_that_is_exactly_as_large_as_allowed(hostile: Record) -> None:
    """Pages that are there already take nothing."""
    found = hostile("launches", max_bytes=2 * 4096, max_per_kernel=3)
    assert ([launched.nbytes for launched in found.launches], factors(found)) == ([2 * 4096], [1])
    assert found.reasons == {"the recording is as large as was allowed": 2}


# -- graphs --


def test_the_end_of_a_capture_that_never_began(hostile: Record) -> None:
    found = hostile("wrong end")
    assert (found.output, factors(found)) == ("11\n", [1])
    assert found.reasons == {"a stream was being captured into a graph": 1}


def test_launches_in_graphs_inside_graphs(hostile: Record) -> None:
    found = hostile("nested", launches=(0, 1, 2, 6), max_per_kernel=4)
    assert (found.output, factors(found)) == ("2222\n", [1, 10, 100, 100])
    before = [conversion.unit(u, 0, ()).contents.before["memory0"][:8].view("f8").item() for u in found.launches]
    assert before == [0, 1, 11, 1122]
    assert [launched.facts["cluster"][0] for launched in found.launches] == [0, 0, 2, 2]
    assert found.coverage[0]["kernels"][0]["launches"] == 8
    assert found.reasons == {}


def test_launches_in_graphs_inside_graphs_are_timed(hostile: Record) -> None:
    found = hostile("nested", profile=True)
    assert [(k["launches"], k["timed"]) for k in found.coverage[0]["kernels"]] == [(8, 4)]


def test_memory_that_a_graph_makes(hostile: Record) -> None:
    found = hostile("graph memory", max_per_kernel=9)
    assert [sorted(held.memory for held in launched.held) for launched in found.launches] == [
        ["device", "device"], ["device", "pool"], ["device", "device"],
    ]  # fmt: skip
    assert found.reasons == {"its graph allocates memory": 1}


def test_what_conditional_nodes_launch_is_declared(
    program: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [str(program("hostile")), "conditional"]
    assert main(["record", "--out", str(tmp_path / "captures"), "--", *command]) == 1
    said = capfd.readouterr().out.splitlines()
    assert [said[0], *(line.split(None, 4) for line in said[-2:])] == [
        "22",
        ["scale", "2", "0", "0", "2 not recorded: its graph has conditional nodes"],
        ["other", "0", "0", "0", "4 times a conditional node launched it or not"],
    ]


# -- other ways to launch --


@pytest.mark.parametrize(
    ("situation", "launches", "why"),
    [
        ("by parts", 3, "its arguments were set one by one (cuLaunchGrid)"),
        ("on several devices", 2, "it is launched on several devices at once"),
    ],
)
def test_other_ways_to_launch_are_declared(situation: str, launches: int, why: str, hostile: Record) -> None:
    found = hostile(situation)
    assert (found.output, found.launches, found.reasons) == (f"{launches}\n", [], {why: launches})
    assert found.coverage[0]["kernels"][0]["launches"] == launches


# -- arguments --


def test_numbers_in_structures_tell_launches_apart(hostile: Record) -> None:
    assert factors(hostile("structures", distinct=True, max_per_kernel=9)) == [0, 1]


def test_textures_in_structures_and_modules_are_declared(hostile: Record) -> None:
    found = hostile("textures", max_per_kernel=9)
    assert [launched.facts["occurrence"] for launched in found.launches] == [1]
    assert found.reasons == {
        "it takes a texture or surface object": 1,
        "its module has texture references": 1,
    }


def test_a_texture_in_a_buffer_is_declared(program: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [str(program("hostile")), "hidden texture"]
    assert main(["record", "--out", str(tmp_path / "captures"), "--", *command]) == 1
    assert capfd.readouterr().out.splitlines()[-1].split(None, 4) == [
        "sample", "3", "0", "1", "2 not recorded: its code uses textures or surfaces",
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())
