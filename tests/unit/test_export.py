"""A run's ledgers as one Dataset that xarray reads back."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

from r3bench.cli import main
from r3bench.errors import LedgerError
from r3bench.evolve.program import Program
from r3bench.export import STAGES, export
from r3bench.ledger import Ledger
from r3bench.model import Measurement, Outcome, Status, Target, Verdict
from r3bench.nouns import encode

CAPTURE = Path(__file__).parents[2] / "captures/miniweather/halo_x.zarr"
TARGET = Target(device="cpu", arch="znver3")


def outcome(ns: float | None) -> Outcome:
    return Outcome(
        capture="app/k",
        unit=0,
        variant="v",
        target=TARGET,
        verdict=Verdict(status=Status.MATCH if ns else Status.MISMATCH),
        measurement=Measurement(samples_ns=(ns, 2 * ns), binary="b") if ns else None,
        module="m",
        binary="b",
        facts=(("ir_instructions", 40),),
        stages=(("optimize", 0.5), ("time", 0.25)),
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger" / "k.jsonl"
    programs = (
        Program(id="p0", files=(), speedup=1.0, ns=100.0, cell=(3, 0)),
        Program(id="p1", files=(), parent="p0", origin="rules:hoist", status="failed", detail="no", step=1),
        Program(id="p2", files=(), parent="p0", origin="rules:cache", speedup=2.0, ns=50.0, cell=(4, 1), step=2),
    )
    with Ledger.open(path) as writing:
        writing.append("run", format=1, seed=7, settings={"trials": 3}, target=encode(TARGET))
        writing.once("archive", kernel="app/k", axes=["instructions", "distance"], words=["", ""], edges=[[1], [2]])
        for number, ns in enumerate((100.0, None, 50.0)):
            writing.add_outcome(
                f"key {number}", outcome(ns), kernel="app/k", source="recorded" if number < 2 else "cache"
            )
        for program in programs:
            writing.once("program", kernel="app/k", step=program.step, rule="", program=encode(program))
        writing.once(
            "iteration", kernel="app/k", step=2, trials=3, best="p2", speedup=2.0, cells=2, island=0, lag=1, under_way=2
        )
    return path


def test_every_evaluation_program_and_step_is_a_row(ledger: Path, tmp_path: Path) -> None:
    export([ledger], tmp_path / "run.zarr")
    with xarray.open_zarr(tmp_path / "run.zarr") as run:
        assert dict(run.sizes) == {"trial": 3, "stage": len(STAGES), "program": 3, "axis": 2, "step": 1}
        assert run.trial_ns.values == pytest.approx([100.0, np.nan, 50.0], nan_ok=True)
        status = run.trial_status
        assert [status.meanings[i] for i in status.values] == ["match", "mismatch", "match"]
        assert float(run.trial_stage_seconds.sum()) == pytest.approx(3 * 0.75)
        assert run.program_parent.values.tolist() == [-1, 0, 0]
        assert run.program_cell.values.tolist() == [[3, 0], [-1, -1], [4, 1]]
        assert run.program_speedup.values == pytest.approx([1.0, np.nan, 2.0], nan_ok=True)
        assert run.step_lag.values.tolist() == [1]
        assert (run.attrs["seed"], run.attrs["settings"], run.attrs["axes"]) == (
            7, {"trials": 3}, ["instructions", "distance"],
        )  # fmt: skip


def test_the_command_takes_the_folder_of_a_report(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "run.zarr")]) == 0
    assert capsys.readouterr().out.endswith(f": 1 ledger; xarray.open_zarr('{tmp_path}/run.zarr') reads it\n")
    assert main(["export", str(tmp_path), str(tmp_path / "run.zarr.zip")]) == 0
    said = f": 1 ledger; xarray.open_zarr(zarr.storage.ZipStore('{tmp_path}/run.zarr.zip')) reads it\n"
    assert capsys.readouterr().out.endswith(said)
    with zarr.storage.ZipStore(f"{tmp_path}/run.zarr.zip") as store, xarray.open_zarr(store) as run:
        assert run.sizes["program"] == 3


def test_ledgers_without_a_search_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LedgerError, match="hold no evaluation"):
        export([], tmp_path / "run.zarr")
    assert main(["export", str(tmp_path), str(tmp_path / "run.zarr")]) == 3
    assert not (tmp_path / "run.zarr").exists()
    assert "holds no ledger; name the folder of a search's report" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "gone"), str(tmp_path / "run.zarr")]) == 3
    assert "gone is not there; name a ledger" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.zarr", "run.zarr.zip"])
def test_only_an_earlier_export_is_replaced(
    name: str, ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["export", str(ledger), str(tmp_path / name)]) == 0
    for foreign in (CAPTURE, *_others(tmp_path)):
        target = tmp_path / "other" / name
        copy = shutil.copytree if foreign.is_dir() else shutil.copyfile
        target.parent.mkdir(exist_ok=True)
        copy(foreign, target)
        held = _held(target)
        assert main(["export", str(ledger), str(target)]) == 3
        assert "exists and is no earlier export" in capsys.readouterr().err
        assert _held(target) == held
        shutil.rmtree(target.parent)


def _others(folder: Path) -> tuple[Path, Path]:
    """A plain file, and a folder with foreign files."""
    (folder / "plain").write_text("mine")
    (folder / "mine").mkdir()
    (folder / "mine/notes").write_text("mine")
    return folder / "plain", folder / "mine"


def _held(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (place, *place.rglob("*")) if path.is_file()}
