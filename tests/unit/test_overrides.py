"""The file beside a capture: what it may allow, and what it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench.compare import EXACT, Tolerance, default_tolerance, judge
from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, Global, LaunchConfig, ReplayUnit, Status
from r3bench.overrides import tolerance_path, tolerances_for

UNIT = ReplayUnit(
    index=0,
    launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
    arguments=b"",
    pointers=(),
    allocations=(
        Allocation(name="x", address=0, nbytes=96, dtype="float64", shape=(3, 4)),
        Allocation(name="y", address=1 << 20, nbytes=16, dtype="float64", shape=(2,)),
        Allocation(name="z", address=2 << 20, nbytes=32, dtype="complex64", shape=(4,)),
    ),
    globals=(Global(symbol="total", nbytes=4, dtype="int32"),),
    written=("x", "y"),
)


def raw(values: Any, dtype: str) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.asarray(values, dtype)).reshape(-1).view(np.uint8)


def memory() -> dict[str, NDArray[np.uint8]]:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    return {"x": raw(x, "f8"), "y": raw([1, 2], "f8"), "z": raw(np.zeros(4), "c8"), "total": raw([0], "i4")}


def capture(path: Path) -> Capture:
    return Capture(
        path=str(path), application="app", symbol="k", demangled="k", parameters=(), source=None, units=(UNIT,)
    )


def found(folder: Path, text: str | bytes | None = None) -> dict[str, Tolerance]:
    if text is not None:
        (folder / "k.tolerance.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return tolerances_for(capture(folder / "k.zarr"), UNIT, memory())


@pytest.mark.parametrize("name", ["k.zarr", "k.zarr.zip"])
def test_the_file_lies_beside_the_store(name: str) -> None:
    assert tolerance_path(Path("a") / name) == Path("a/k.tolerance.toml")


def test_without_a_file_nothing_is_overridden(tmp_path: Path) -> None:
    assert found(tmp_path) == {}


def test_overrides_by_buffer(tmp_path: Path) -> None:
    given = found(tmp_path, '[x]\nrtol = 1e-3\nulp = 4\n[y]\nkind = "exact"\n')
    assert given == {"x": Tolerance(kind="float", rtol=1e-3, ulp=4), "y": EXACT}
    near = memory()
    near["x"].view("f8")[0] = 1.0009
    assert judge(UNIT, memory(), near, given).status is Status.MATCH


def test_a_region_is_ignored_and_the_rest_judged_as_ever(tmp_path: Path) -> None:
    given = found(tmp_path, '[x]\nignore = ["0:1, :", ":, -1:"]\n')
    assert (given["x"].rtol, given["x"].kind) == (default_tolerance("float64").rtol, "float")
    assert given["x"].ignore.hold(np.arange(12)).reshape(3, 4).tolist() == [
        [True, True, True, True],
        [False, False, False, True],
        [False, False, False, True],
    ]
    other = memory()
    other["x"].view("f8")[[0, 3, 11]] = np.nan
    assert judge(UNIT, memory(), other, given).status is Status.MATCH
    other["x"].view("f8")[5] = np.nan
    assert judge(UNIT, memory(), other, given).status is Status.MISMATCH


def test_a_region_of_complex_numbers_takes_in_both_parts(tmp_path: Path) -> None:
    given = found(tmp_path, '[z]\nignore = ["1:3"]\n')
    assert given["z"].ignore.edges.tolist() == [2, 6]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[x", "cannot be read as TOML"),
        (b"\xff\xfe", "cannot be read as TOML"),
        ("[w]\nrtol = 1e-3", r"names \[w\], but the capture's buffers are total, x, y, z"),
        ("[total]\natol = 1", "always compared exactly"),
        ("[x]\nrtol = -1", "finite number"),
        ("[x]\nrtol = inf", "finite number"),
        ("[x]\nrtol = true", "finite number"),
        ("[x]\nmargin = 1", "may hold only"),
        ("x = 1", "may hold only"),
        ('[x]\nkind = "loose"', "must be"),
        ('[x]\nkind = "exact"\nrtol = 1e-3', "cannot have rtol"),
        ("[x]\nulp = 1e30", "ulp = 1e[+]30 would let nearly anything pass; at most 2.25e[+]14"),
        ("[z]\nulp = 1e6", "ulp = 1e[+]06 would let nearly anything pass; at most 4.19e[+]05"),
        ("[x]\nrtol = 0.5", "would let nearly anything pass"),
        ("[x]\nscale = 1", "would let nearly anything pass"),
        ("[x]\natol = 0.7", "atol = 0.7 would let nearly anything pass; at most 0.6"),
        ('[x]\nignore = [":, :"]', "covers the whole buffer"),
        ('[x]\nignore = ["0:2"]', "not one first:end for each of 2 dimensions"),
        ('[x]\nignore = ["a:b, :"]', "not one first:end"),
        ('[x]\nignore = "0:2, :"', "must be a list"),
        ('[x]\nignore = ["0:1, :", "900:902, :"]', r'region "900:902, :" holds no element of a buffer of shape'),
    ],
)
def test_a_wrong_file_is_one_clear_sentence(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(CaptureError, match=says) as failure:
        found(tmp_path, text)
    assert str(tmp_path / "k.tolerance.toml") in str(failure.value)
