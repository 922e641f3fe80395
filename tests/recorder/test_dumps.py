"""Names, fat binaries and dumps, apart from any application."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numcodecs import Zstd

from r3bench.errors import RecordError
from r3bench.record.dump import PAGE, Pages, Run, fill
from r3bench.record.fatbin import entries, machine_code, packed_variables
from r3bench.record.images import find_nvcc
from r3bench.symbols import demangled


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("saxpy", "saxpy"),
        ("_Z12tendencies_xPdS_", "tendencies_x"),
        ("_ZN2at6native6kernelEPf", "at::native::kernel"),
        ("_Z5scaleIfLi4EEvPT_", "scale<float, 4>"),
        ("_ZN3cubIdE", "cub<double>"),
        ("_Z4fillILb1EmLin3EEvv", "fill<true, unsigned long, -3>"),
        ("_Z4fillIN2ns1TEEvv", "fill<...>"),
        ("_Z4fillIf", "fill<float, ...>"),
        ("_Z", "_Z"),
        ("_Z99short", "_Z99short"),
    ],
)
def test_names(symbol: str, name: str) -> None:
    assert demangled(symbol) == name


# -- fat binaries -----------------------------------------------------------------------------------------------------


def entry(kind: int, arch: int, data: bytes, flags: int = 0x11, whole: int = 0) -> bytes:
    head = struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(data), len(data) if whole else 0, 0, 0, 0, arch)
    return head.ljust(40, b"\0") + struct.pack("<QQQ", flags, 0, whole) + data


def fat(*parts: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(b"".join(parts))) + b"".join(parts)


def test_the_newest_machine_code_that_fits() -> None:
    image = fat(entry(2, 80, b"A100"), entry(2, 90, b"H100"), entry(2, 100, b"B100"), entry(1, 90, b"text"))
    assert machine_code(image, "sm_90") == b"H100"
    assert machine_code(image, "sm_86") == b"A100"
    assert machine_code(image, "sm_75") is None
    assert [(e.kind, e.arch) for e in entries(image)] == [("cubin", 80), ("cubin", 90), ("cubin", 100), ("ptx", 90)]


def test_packed_entries_are_unpacked() -> None:
    text = b".version 9.0\n" * 50
    packed = Zstd(3).encode(text)
    (found,) = entries(fat(entry(1, 90, packed, 0x8011, len(text))))
    assert (found.data, found.packed) == (text, True)


@pytest.mark.parametrize("image", [b"", b"no fat binary at all....", fat(entry(1, 90, b"not packed", 0x8011, 20))])
def test_what_is_no_fat_binary_is_said(image: bytes) -> None:
    with pytest.raises(RecordError):
        list(entries(image))


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not here")
def test_variables_of_packed_machine_code(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "k.cu").write_text(
        "__constant__ double weights[4]; static __device__ int steps;\n"
        "__global__ void k(double* a) { *a = weights[1]; steps++; }\nint main() { k<<<1, 1>>>(nullptr); }\n"
    )
    command = [str(find_nvcc()), "-arch=sm_90", "-Xfatbin", "-compress-all", "k.cu", "-o", "k"]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=120)
    assert set(packed_variables(tmp_path / "k")) == {("weights", True), ("steps", False)}


def test_a_program_that_is_a_script_has_no_variables(tmp_path: Path) -> None:
    (tmp_path / "app").write_text("#!/usr/bin/env python3\n")
    assert list(packed_variables(tmp_path / "app")) == []
    assert list(packed_variables(tmp_path / "nothing")) == []


# -- pages ------------------------------------------------------------------------------------------------------------


def test_runs_of_pages_in_stripes(tmp_path: Path) -> None:
    files = tuple(tmp_path / f"unit.bin.{stripe}" for stripe in range(16))
    per_stripe = (4 << 20) // PAGE
    for stripe, file in enumerate(files):
        file.write_bytes(bytes([stripe + 1]) * PAGE if stripe else bytes([99]) * (4 << 20))
    pages = Pages.of(files)
    runs = (Run(0, 2, -1, 1), Run(2, 2, per_stripe - 1, 1), Run(4, 3, per_stripe, 0))
    found = np.full(7 * PAGE - 5, 7, np.uint8)
    fill(runs, pages, found)
    assert [int(found[page * PAGE]) for page in range(7)] == [0, 0, 99, 2, 2, 2, 2]
    part = np.zeros(2 * PAGE, np.uint8)
    fill(runs, pages, part, 3 * PAGE)
    assert part[[0, -1]].tolist() == [2, 2]
