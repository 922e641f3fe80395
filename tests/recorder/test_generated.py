"""Kernels without a source: PTX text out of images, LLVM IR out of Triton's cache."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from r3bench.errors import RecordError
from r3bench.record import generated
from r3bench.record.dump import Launched

SYMBOL = "_Z4stepPf"
CODE = b"\x7fELF" + bytes(100)


def ptx(symbol: str = SYMBOL, note: str = "") -> str:
    return f".version 9.0\n.target sm_90\n// {note}\n.visible .entry {symbol}(\n\t.param .u64 p\n)\n{{\n\tret;\n}}\n"


def launched(folder: Path, name: str, data: bytes) -> Launched:
    (folder / name).write_bytes(data)
    return Launched(folder / "unit-0.json", {"kernel": SYMBOL, "image": name, "arch": "sm_90"}, ())


def fat(*texts: tuple[int, str]) -> bytes:
    """A fat binary of PTX texts for such architectures, not packed, as nvcc pads them."""
    entries = b""
    for arch, text in texts:
        data = text.encode() + bytes(-len(text) % 8 or 8)
        head = struct.pack("<HHIQIIHHIQQQQ", 1, 0x101, 64, len(data), 0, 0, 0, 9, arch, 0, 0, 0, 0)
        entries += head + data
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def test_the_newest_ptx_that_the_gpu_can_run(tmp_path: Path) -> None:
    held = fat((80, ptx(note="old")), (90, ptx(note="fits")), (100, ptx(note="newer than the GPU")))
    found = generated.find(launched(tmp_path, "module.fatbin", held))
    assert found is not None
    assert (found.source.main, found.source.language, found.demangled, found.ir) == ("step.ptx", "ptx", "step", None)
    assert found.texts == {"step.ptx": ptx(note="fits")}


def test_a_fat_binary_with_an_empty_header_is_refused(tmp_path: Path) -> None:
    held = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 128) + bytes(128)
    with pytest.raises(RecordError, match="cannot be read"):
        generated.find(launched(tmp_path, "module.fatbin", held))


@pytest.mark.parametrize("image", ["module.ptx", "module.fatbin", "module.cubin"])
def test_nothing_defines_the_kernel(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    other = ptx("other")
    data = {"module.ptx": other.encode(), "module.fatbin": fat((90, other)), "module.cubin": CODE}[image]
    assert generated.find(launched(tmp_path, image, data)) is None


@pytest.mark.parametrize(("kept", "language"), [((".llir", ".ptx"), "llvm"), ((".ptx",), "ptx"), ((), None)])
def test_what_triton_kept_beside_the_code_that_ran(
    kept: tuple[str, ...], language: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {".llir": "define ptx_kernel void @_Z4stepPf(ptr %0) { ret void }\n", ".ptx": ptx()}
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    for name, code in (("a", b"another" + CODE), ("b", CODE)):
        (tmp_path / "cache" / name).mkdir(parents=True)
        (tmp_path / "cache" / name / "step.cubin").write_bytes(code)
        for suffix in kept:
            (tmp_path / "cache" / name / f"step{suffix}").write_text(texts[suffix] if name == "b" else "wrong")
    found = generated.find(launched(tmp_path, "module.cubin", CODE))
    assert (found.source.language if found else None) == language
    if found is not None:
        assert list(found.texts.values()) == [texts[".llir" if language == "llvm" else ".ptx"]]
