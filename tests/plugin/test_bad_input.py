"""Bad stores and bad kernels: each is one failed item with one clear sentence, and everything else runs on."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import store

STORE = Path("captures/app/scale.zarr")


def digest(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# -- stores ---------------------------------------------------------------------------------------------------------


def empty(store: Path) -> None:
    shutil.rmtree(store)
    store.mkdir()


def truncate(store: Path) -> None:
    text = (store / "zarr.json").read_bytes()
    (store / "zarr.json").write_bytes(text[: len(text) // 2])


def flip_bit(store: Path) -> None:
    chunk = next(path for path in sorted((store / "units/0/before").rglob("c/*")) if path.is_file())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 16
    chunk.write_bytes(data)


def edit(store: Path, **ours: object) -> None:
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["r3bench"].update(ours)
    (store / "zarr.json").write_text(json.dumps(root))


def newer_format(store: Path) -> None:
    edit(store, format=99)


def no_units(store: Path) -> None:
    edit(store, units=0)


def chunk_missing(store: Path) -> None:
    shutil.rmtree(store / "units/0/before")


STORES: dict[Callable[[Path], None], str] = {
    empty: "*scale.zarr*",
    truncate: "*scale.zarr*JSON*",
    flip_bit: "*scale.zarr*data*",
    newer_format: "*scale.zarr has format 99*upgrade r3bench*",
    no_units: "*scale.zarr*",
    chunk_missing: "*scale.zarr*data*",
}


@pytest.mark.parametrize("damage", STORES, ids=lambda damage: damage.__name__)
def test_a_bad_store_fails_alone(project: pytest.Pytester, damage: Callable[[Path], None]) -> None:
    damage(project.path / STORE)
    before = digest(project.path / "captures")
    result = project.runpytest("captures", "-k", "not timing and not evolve")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["passed"] >= 2
    result.stdout.fnmatch_lines([STORES[damage]])
    assert "Traceback" not in result.stdout.str()
    assert digest(project.path / "captures") == before


@pytest.mark.parametrize("choice", ["captures", "captures/app/note.zarr"])
def test_a_file_where_a_store_should_be_is_a_failed_item(project: pytest.Pytester, choice: str) -> None:
    (project.path / "captures/app/note.zarr").write_text("not a store")
    result = project.runpytest(choice, "-k", "correctness")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*note.zarr*"])
    assert "Traceback" not in result.stdout.str()


def test_a_missing_store_is_a_usage_error(project: pytest.Pytester) -> None:
    shutil.rmtree(project.path / STORE)
    result = project.runpytest(str(STORE))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*not found: {STORE}*"])


# -- kernels --------------------------------------------------------------------------------------------------------

KERNELS = {
    "does not compile": ("data[i] = nothing;", "*build-failed: *scale.cu:3:*nothing*"),
    "unsupported intrinsic": ("data[i] = tex1Dfetch<double>(0, i);", "*: unsupported: *tex1Dfetch*"),
    "printf": ('printf("%f", data[i]);', "*: unsupported: *printf*"),
    "inline assembly": ('asm("exit;");', "*: unsupported: *assembly*"),
    "exits": ("exit(0);", "*: (build-failed|unsupported): *exit*"),
    "too much shared memory": (
        "__shared__ double all[40000]; all[i] = data[i]; __syncthreads(); data[i] = all[n - 1 - i];",
        "*: launch-failed: *shared memory*",
    ),
    "out of memory": (
        "double mine[1 << 25]; mine[n * i] = data[i]; __syncthreads(); data[i] = mine[n * i] + mine[i];",
        "*: launch-failed: *memory*",
    ),
    "null pointer": ("*(volatile double*)0 = 1.0;", "*: fault: *null*"),
    "trap": ("__trap();", "*: fault: *trap*"),
    "assertion": ("assert(i < 10);", "*: fault: *assert*"),
    "deadlock": (
        "if (threadIdx.x < 5) data[i] = __shfl_sync(0xffffffffu, data[i], 0); else __syncthreads();",
        "*: fault: *deadlock*",
    ),
    "hangs": ("for (volatile int k = 0; k >= 0; k = 1) data[i] = k;", "*: timeout: *"),
    "writes out of bounds": ("data[i + 100000] = 1.0;", "*: fault: *past the end of buffer data*"),
    "writes before its buffer": ("data[-1 - i] = 1.0;", "*: fault: *data*"),
    "does nothing": ("", "*: mismatch: *data*"),
    "counts its launches": (
        "static unsigned launches; data[i] = launches++ < 1000000000u ? factor * data[i] : 0.0;",
        "*: unsupported: *device variable, *launches*not recorded*",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_bad_kernel_fails_alone(project: pytest.Pytester, source: Path, name: str) -> None:
    body, sentence = KERNELS[name]
    source.write_text(source.read_text().replace("data[i] = factor * data[i];", f"{{ {body} }}"))
    before = digest(project.path / "captures")
    items = f"{STORE}::correctness[0]", "captures/app/difference.zarr::correctness[0]"
    result = project.runpytest(*items, *(["--r3-timeout=5"] if name == "hangs" else []))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines([sentence.replace("*", ".*")])
    assert "Traceback" not in result.stdout.str()
    assert digest(project.path / "captures") == before


@pytest.mark.parametrize("choice", ["correctness", "timing", "not timing", "not correctness"])
def test_a_damaged_store_is_passed_over_by_no_choice_of_items(project: pytest.Pytester, choice: str) -> None:
    truncate(project.path / STORE)
    assert project.runpytest("captures", "-k", choice).parseoutcomes()["failed"] == 1


def test_a_device_function_of_the_same_name_is_no_kernel(project: pytest.Pytester, source: Path) -> None:
    source.write_text(source.read_text().replace("__global__", "__device__"))
    result = project.runpytest(f"{STORE}::correctness[0]")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*build-failed: *no kernel scale*"])


def test_a_source_that_is_no_utf_8_is_one_sentence(project: pytest.Pytester, source: Path) -> None:
    source.write_bytes(source.read_bytes() + b"// caf\xe9\n")
    result = project.runpytest(f"{STORE}::correctness[0]")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*scale.cu*cannot be read as UTF-8*"])
    assert "Traceback" not in result.stdout.str()


def test_a_launch_that_no_device_can_make_fails_alone(project: pytest.Pytester) -> None:
    path = project.path / STORE
    capture = store.open_capture(path)
    unit = capture.units[0]
    large = replace(unit, launch=replace(unit.launch, block=(2048, 1, 1)))
    store.write(path, replace(capture, units=(large,)), [store.contents(capture, 0)], store.sources(capture))
    result = project.runpytest("captures", "-k", "correctness[0]")
    result.assert_outcomes(passed=1, failed=1, deselected=6)
    result.stdout.fnmatch_lines(["*app/scale, unit 0: launch-failed: *2048*"])
