"""Tuned kernels in an unmodified program, against a driver of ours that has no GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from r3bench.cli import main, run
from r3bench.cli.run import summary
from r3bench.errors import RecordError
from r3bench.model import Configuration, LaunchRule
from r3bench.record import trials
from r3bench.record.application import Plan
from tests.recorder.conftest import Build
from tests.recorder.tuned_report import tuned_report

TUNED = "// tuned\n.version 7.0\n.visible .global .align 8 .f64 bias = 0;\n"
Substituted = Callable[..., trials.Trial]


@pytest.fixture
def substituted(program: Build, tmp_path: Path) -> Substituted:
    """Runs a situation with a substitute of these conditions."""

    def go(situation: str, *conditions: str, image: str = TUNED) -> trials.Trial:
        (tmp_path / "tuned.ptx").write_text(image)
        place = tmp_path / "substitute"
        place.write_text("\n".join([f"image {tmp_path / 'tuned.ptx'}", *conditions, ""]))
        plan = Plan(folder=tmp_path / "run", max_per_kernel=0, substitutes=(place,))
        return trials.trial([str(program("situations")), situation], plan)

    return go


def substitutions(trial: trials.Trial) -> tuple[int, int]:
    return sum(k["substituted"] for k in trial.kernels), sum(k["launches"] for k in trial.kernels)


def reasons(trial: trials.Trial) -> list[str]:
    return [why for kernel in trial.kernels for why in kernel["reasons"]]


def test_a_tuned_kernel_runs_and_shares_the_variables(substituted: Substituted) -> None:
    trial = substituted("nested", "kernel shift")
    assert substitutions(trial) == (3, 3)
    assert trial.output == b"4.5\n"  # 0.5 + 1.5 + 2.5: the application's own variable, carried in and out


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("block 64 1 1", "launched with another block than it is made for"),
        ("grid 2 1 1", "launched with another grid than it is made for"),
        ("argument 8 03000000", "other arguments than it is made for"),
        ("distinct 8", "pointers lead into one allocation"),
    ],
)
def test_where_a_condition_fails_the_original_runs(substituted: Substituted, condition: str, why: str) -> None:
    trial = substituted("nested", "kernel shift", condition)
    assert (trial.status, trial.output, substitutions(trial)) == (0, b"4.5\n", (0, 3))
    assert reasons(trial) == [why]


@pytest.mark.parametrize(
    "condition", ["block 2 1 1", "grid 1 1 1", "argument 8 02000000", "aligned 0 16", "distinct 0"]
)
def test_where_conditions_hold_the_tuned_one_runs(substituted: Substituted, condition: str) -> None:
    assert substitutions(substituted("nested", "kernel shift", condition)) == (3, 3)


@pytest.mark.parametrize(("events", "waits"), [("", 0), ("1", 2)], ids=["there", "on its way"])
def test_a_constant_is_there_on_every_stream(
    events: str, waits: int, substituted: Substituted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied on the stream of the first launch after the application wrote it, which others wait for."""
    if events:
        monkeypatch.setenv("FAKE_PENDING_EVENTS", events)
    trial = substituted("constant", "kernel shift", image=TUNED.replace(".global", ".const"))
    assert (trial.output, substitutions(trial)) == (f"{waits} 4008\n".encode(), (4, 4))


def test_launches_inside_graphs(substituted: Substituted) -> None:
    """Of a graph made node by node, and after a node of it was changed."""
    trial = substituted("built", "kernel _Z5scalePdPKddi", image=".version 7.0 // tuned\n")
    assert (trial.output, substitutions(trial), reasons(trial)) == (b"4112\n", (4, 4), [])


def test_kernels_in_graphs_are_timed_where_they_are_cut(program: Build, tmp_path: Path) -> None:
    (tmp_path / "tuned.ptx").write_text(".version 7.0 // tuned\n")
    (tmp_path / "substitute").write_text(f"kernel _Z5scalePdPKddi\nimage {tmp_path / 'tuned.ptx'}\n")
    for substitutes, output in (((), b"112\n"), ((tmp_path / "substitute",), b"4112\n")):
        plan = Plan(folder=tmp_path / f"run{len(substitutes)}", profile=True, substitutes=substitutes)
        trial = trials.trial([str(program("situations")), "built"], plan)
        (kernel,) = trial.kernels
        assert (trial.output, kernel["launches"], kernel["timed"]) == (output, 4, 2)
        assert kernel["substituted"] == 4 * len(substitutes)
        assert kernel["gpu_seconds"] > 0


def test_an_image_that_does_not_load_leaves_the_application_alone(substituted: Substituted) -> None:
    trial = substituted("nested", "kernel shift", image="no image")
    assert (trial.status, trial.output, substitutions(trial)) == (0, b"4.5\n", (0, 3))
    assert reasons(trial) == ["its substitute could not be loaded"]


def test_interleaved_runs_and_their_output(program: Build, tmp_path: Path) -> None:
    (tmp_path / "tuned.ptx").write_text(TUNED)
    place = tmp_path / "substitute"
    place.write_text(f"kernel shift\nimage {tmp_path / 'tuned.ptx'}\n")
    found = trials.contest([str(program("situations")), "nested"], tmp_path / "runs", [place], 2)
    assert found.same_output()
    assert found.repeatable()
    assert (len(found.before), len(found.after), found.substituted()) == (2, 2, 3)
    assert min(*found.medians("seconds"), *found.medians("region_s")) > 0
    ratios = [own.seconds / tuned.seconds for own, tuned in zip(found.before, found.after, strict=True)]
    assert found.ratios("seconds") == ratios
    assert f"{min(ratios):.3f} to {max(ratios):.3f}" in summary(found)
    own, tuned = ([k for k in profile.kernels if k["kernel"] == "shift"] for profile in found.profiles)
    assert (own[0]["timed"], own[0]["substituted"], tuned[0]["substituted"]) == (3, 0, 3)


def test_what_a_report_promoted_is_put_in(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    capture = pytestconfig.rootpath / "captures/miniweather/update.zarr"
    launch = LaunchRule(block=(64, 1, 1))
    place = tuned_report(tmp_path, capture, launch, "void update(", "/* tuned */ void update(")
    ((found, variant),) = run._promoted(place)
    assert (Path(found.path), variant.launch, variant.configuration) == (capture, launch, Configuration())
    assert variant.files is not None
    ((file, text),) = variant.files
    assert file == "kernels.cu", "as the capture names it, below the folder of its sources"
    assert "/* tuned */" in str(text)


def test_a_report_without_its_ledgers_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="holds no ledger: name the folder of a search's report, with its ledger/ in"):
        list(run._promoted(tmp_path))


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("r3bench.devices.cuda.survey.missing", lambda: ("the driver finds no GPU", "buy one"))
    assert main(["run", "--with", str(tmp_path), "--", "true"]) == 3
    assert capsys.readouterr().err == "r3bench: tuned kernels run on an NVIDIA GPU only: the driver finds no GPU\n"
