"""What a replay makes of right, wrong and failing candidates, on a device without hardware."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from replay_case import FakeCompiler, capture, programs, variant

from r3bench import parts
from r3bench.devices import Bytes, Memory
from r3bench.errors import CaptureError, DeviceFault, LaunchError
from r3bench.model import Capture, LaunchConfig, LaunchRule, Outcome, ReplayUnit, Status, Variant, content_id
from r3bench.replay import Failure, Placement, attempt, build, evaluate, read_material, replay
from r3bench.server import ReplayServer
from r3bench.stats import Comparison, Decision
from r3bench.testing import FakeDevice
from r3bench.testing.fake import FakeMemory


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(tmp_path_factory.mktemp("captures"))


def outcome(recorded: Capture, name: str, **how: object) -> Outcome:
    return replay(recorded, variant(name), FakeDevice(programs()), FakeCompiler(), **how)  # type: ignore[arg-type]


def test_the_recorded_source_matches_and_has_a_time(recorded: Capture) -> None:
    found = replay(recorded, Variant(), FakeDevice(programs()), FakeCompiler())
    assert found.verdict.status is Status.MATCH
    assert found.measurement is not None
    assert found.measurement.samples_ns == (100_000.0,) * 5
    assert dict(found.measurement.conditions)["clones"] == "4"
    assert dict(found.measurement.conditions)["clock"] == "made up"


def test_an_outcome_says_what_was_built_and_how_long_it_took(recorded: Capture) -> None:
    found = outcome(recorded, "quick")
    assert (found.capture, found.unit, found.variant) == ("app/add", 0, content_id(variant("quick")))
    assert found.facts == (("ir_instructions", 5),)
    assert found.measurement is not None
    assert found.measurement.binary == found.binary
    assert [stage for stage, _ in found.stages] == ["frontend", "load", "verify", "time"]


@pytest.mark.parametrize("name", ["lost once", "lost while timed"])
def test_who_kills_a_worker_does_no_harm_to_the_candidate(recorded: Capture, name: str) -> None:
    found = outcome(recorded, name)
    assert (found.verdict.status, found.measurement is not None) == (Status.MATCH, True)
    assert [stage for stage, _ in found.stages] == ["frontend", "load", "verify", "time"]
    assert compared(recorded, name).decision is Decision.SAME


def compared(recorded: Capture, name: str) -> Comparison:
    with ReplayServer(lambda: FakeDevice(programs()), compiler=FakeCompiler()) as server:
        return server.compare(recorded, 0, variant("add"), variant(name)).result(60)


def test_only_verified(recorded: Capture) -> None:
    found = outcome(recorded, "add", timing="none")
    assert (found.verdict.status, found.measurement) == (Status.MATCH, None)


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("wrong", Status.MISMATCH, "x[3] is 5.7 instead of 4.7"),
        ("nothing", Status.MISMATCH, "x[0] is 0.5 instead of 1.5"),
        ("scribble", Status.MISMATCH, "the recorded kernel does not write this buffer"),
        ("backwards", Status.MISMATCH, "x[0] is 0.0 instead of 1.5"),
        ("later wrong", Status.MISMATCH, "x[3]"),
        ("later crash", Status.FAULT, "crashed"),
        ("crash", Status.FAULT, "crashed"),
        ("lost always", Status.FAULT, "its worker was killed by SIGKILL"),
        ("hang", Status.TIMEOUT, "did not end"),
        ("large", Status.LAUNCH_FAILED, "too much shared memory"),
        ("unknown", Status.LAUNCH_FAILED, "no program"),
        ("syntax error", Status.BUILD_FAILED, "kernels.cu:1:1"),
        ("texture", Status.UNSUPPORTED, "reads a texture"),
    ],
)
def test_a_failure_is_a_verdict_without_a_time(recorded: Capture, name: str, status: Status, says: str) -> None:
    found = outcome(recorded, name)
    assert (found.verdict.status, found.measurement) == (status, None)
    assert says in found.verdict.detail


def test_what_is_known_of_a_failed_candidate_is_kept(recorded: Capture) -> None:
    wrong, unbuilt = outcome(recorded, "wrong"), outcome(recorded, "syntax error")
    assert wrong.binary is not None
    assert wrong.module is not None
    assert (unbuilt.binary, unbuilt.module, unbuilt.stages) == (None, None, ())


def test_the_units_own_values_are_expected(recorded: Capture) -> None:
    assert outcome(recorded, "add", unit=1).verdict.status is Status.MATCH


@pytest.mark.parametrize("unit", [-1, 2])
def test_a_unit_that_is_not_there_stops(recorded: Capture, unit: int) -> None:
    with pytest.raises(CaptureError, match=rf"add\.zarr has no unit {unit}; it has 2"):
        outcome(recorded, "add", unit=unit)


def test_a_unit_whose_kernel_changed_nothing_is_vacuous(tmp_path: Path) -> None:
    found = outcome(capture(tmp_path, vacuous=True), "nothing")
    assert found.verdict.status is Status.VACUOUS
    assert "unit 0 of app/add" in found.verdict.detail


def test_another_block_shape_is_launched_and_built_for(recorded: Capture) -> None:
    compiler = FakeCompiler()
    found = replay(recorded, variant("narrow", launch=LaunchRule(block=(8, 1, 1))), FakeDevice(programs()), compiler)
    assert found.measurement is not None
    assert found.measurement.samples_ns[0] == 8000.0
    assert compiler.requests[-1].facts.launch == LaunchConfig(grid=(2, 1, 1), block=(8, 1, 1))


def test_an_override_beside_the_capture_counts(tmp_path: Path) -> None:
    (tmp_path / "add.tolerance.toml").write_text("[x]\natol = 0.8\n")
    assert outcome(capture(tmp_path), "nearly").verdict.status is Status.MATCH


def test_a_replay_gives_its_memory_back(recorded: Capture) -> None:
    class Counting(FakeDevice):
        held = 0

        def allocate(self, *what):  # type: ignore[no-untyped-def]
            self.held += 1
            return super().allocate(*what)

        def release(self, memory):  # type: ignore[no-untyped-def]
            self.held -= 1
            super().release(memory)

    device = Counting(programs())
    replay(recorded, Variant(), device, FakeCompiler())
    assert device.held == 0


def test_recorded_memory_cannot_be_changed_by_mistake(recorded: Capture) -> None:
    material = read_material(recorded, 0)
    with pytest.raises(ValueError, match="read-only"):
        material.expected["x"][0] = 1
    assert material.nbytes == 3 * 128
    assert np.array_equal(material.expected["y"], material.before["y"])


def test_every_order_is_run_on_restored_memory(recorded: Capture) -> None:
    device = FakeDevice(programs())
    assert outcome(recorded, "backwards").verdict.status is Status.MISMATCH
    device.orders = ("forward",)
    found = replay(recorded, variant("backwards"), device, FakeCompiler())
    assert found.verdict.status is Status.MATCH


def test_what_is_not_the_candidates_fault_is_raised() -> None:
    with pytest.raises(CaptureError):
        attempt(lambda: (_ for _ in ()).throw(CaptureError("damaged")))
    found = attempt(lambda: (_ for _ in ()).throw(DeviceFault("crashed")))
    assert isinstance(found, Failure)


def test_a_placement_counts_its_clones(recorded: Capture) -> None:
    placement = Placement(FakeDevice(programs()), read_material(recorded, 0))
    assert placement.nbytes == 0
    placement.ring.take(3)
    assert placement.nbytes == 3 * 2 * 128
    placement.release()
    assert placement.nbytes == 0


class Small(FakeDevice):
    """A device with room for so many memories."""

    room = 0
    taken = 0

    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> FakeMemory:
        if self.taken == self.room:
            raise LaunchError("out of memory")
        self.taken += 1
        return super().allocate(unit, before)

    def release(self, memory: Memory) -> None:
        self.taken -= 1
        super().release(memory)


@pytest.mark.parametrize(("room", "probes"), [(1, 0), (2, 0), (3, 2)])
def test_a_device_with_little_room_verifies_on_what_fits(recorded: Capture, room: int, probes: int) -> None:
    device, material = Small(programs()), read_material(recorded, 0)
    device.room, device.room_bytes = room, 1
    placement = Placement(device, material, build(material, Variant(), device.target, FakeCompiler()))
    for name, status in (("add", Status.MATCH), ("nothing", Status.MISMATCH)):
        made = build(material, variant(name), device.target, FakeCompiler())
        found = evaluate(placement, variant(name), made, timing="none")
        assert found.verdict.status is status
        assert device.taken == 1 + probes
    placement.release()
    assert device.taken == 0


def test_bytes_that_change_are_counted_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    material = read_material(capture(tmp_path), 0)
    whole = sum(np.count_nonzero(material.before[name] != material.expected[name]) for name in material.unit.written)
    monkeypatch.setattr(parts, "PART", 3)
    assert material.changed_bytes == whole > 3


class Full(FakeDevice):
    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> FakeMemory:
        raise LaunchError("out of memory: unit 0 needs 256 bytes")


def test_a_unit_without_room_names_its_kernel(tmp_path: Path) -> None:
    device, recorded = Full(programs()), capture(tmp_path)
    material = read_material(recorded, 0)
    placement = Placement(device, material)
    made = build(material, variant("add"), device.target, FakeCompiler())
    verdict = evaluate(placement, variant("add"), made).verdict
    assert verdict.status is Status.LAUNCH_FAILED
    assert verdict.detail == f"{recorded.symbol} has no room on the device: out of memory: unit 0 needs 256 bytes"
