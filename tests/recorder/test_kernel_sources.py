"""Sources of recorded kernels: found, compiled with CUDA's own headers, kept with what they include."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from r3bench import frontend, store, toolkit
from r3bench.cli import main
from r3bench.errors import RecordError
from r3bench.record import sources
from r3bench.toolchain import irtext
from tests.recorder.conftest import Build

PROGRAMS = Path(__file__).parent / "programs"
TENDENCY = "_Z8tendencyIdLi1EEvPKT_PS0_iiS0_"

needs_headers = pytest.mark.skipif(bool(toolkit.missing()), reason=toolkit.missing())


def test_flags_that_mean_something_are_kept(tmp_path: Path) -> None:
    database = tmp_path / "compile_commands.json"
    command = (
        "nvcc -ccbin g++ -O3 -DN=4 -D M=5 -I inc -isystem=/x --use_fast_math -Xcompiler -fopenmp -lm -c k.cu -o k.o"
    )
    database.write_text(json.dumps([{"directory": str(tmp_path), "file": "k.cu", "command": command}]))
    (unit,) = sources.listed(database)
    assert unit.main == tmp_path / "k.cu"
    assert unit.flags == ("-DN=4", "-DM=5", f"-I={tmp_path}/inc", "-isystem=/x", "--use_fast_math")


@pytest.mark.parametrize("text", ["", "3", '[{"file": "k.cu"}]'])
def test_a_database_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(RecordError, match=r"c\.json"):
        sources.listed(tmp_path / "c.json")


def test_files_that_define_a_kernel(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/k.cu").write_text("template <class T>\n__global__ void __launch_bounds__(64)\nstep(T* a) {}\n")
    (tmp_path / "call.cu").write_text("void f() { step<<<1, 1>>>(a); } __global__ void other(int step) {}")
    assert [unit.main.name for unit in sources.in_tree(tmp_path, "_Z4stepIdEvPT_")] == ["k.cu"]


def test_files_that_include_a_definition(tmp_path: Path) -> None:
    texts = {
        "a.cuh": "#pragma once\n__global__ void step(int* a) {}\n",
        "deep/b.h": '#include "../a.cuh"\n',
        "calls.cu": "#include <deep/b.h>\nvoid f() { step<<<1, 1>>>(a); }\n",
        "bare.cu": '#include "deep/b.h"\n',
        "own.cu": "__global__ void step(int* a) {}\n",
        "far.cu": '#include "c.h"\nvoid f() { step<<<1, 1>>>(a); }\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [unit.main.name for unit in sources.in_tree(tmp_path, "_Z4stepPi")] == [
        "own.cu", "calls.cu", "bare.cu", "a.cuh",
    ]  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("header", ["include/step.h", "include/gpu kernels/größe #1 $x.cuh"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_kernel_in_a_header_beside_the_folder_of_the_main_file(
    named: bool, header: str, end: str, tmp_path: Path
) -> None:
    texts = {
        header: f"#pragma once{end}template <class T>{end}__global__ void step(T* a) {{ *a = 2; }}{end}",
        "src/main file.cu": f'#include "../{header}"\ntemplate __global__ void step<float>(float*);\n',
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / ".git").mkdir()
    given = sources.named([tmp_path / "src/main file.cu"], []) if named else []
    found, why = sources.find("_Z4stepIfEvPT_", given, tmp_path, None if named else tmp_path)
    assert found is not None, why
    assert found.texts == texts
    assert (found.source.root, found.source.main) == ("", "src/main file.cu")


@needs_headers
def test_a_source_that_uses_the_runtime_and_the_host_library() -> None:
    found, why = sources.find(TENDENCY, sources.named([PROGRAMS / "weather.cu"], []), PROGRAMS.parent)
    assert found is not None, why
    assert found.demangled == "tendency<double, 1>"
    assert [(p.name, p.offset, p.size, p.dtype) for p in found.parameters] == [
        ("state", 0, 8, "float64"), ("flux", 8, 8, "float64"), ("nx", 16, 4, "int32"), ("nz", 20, 4, "int32"),
        ("dt", 24, 8, "float64"),
    ]  # fmt: skip
    assert (found.source.root, found.source.main, set(found.texts)) == ("programs", "weather.cu", {"weather.cu"})
    assert toolkit.FLAG in found.source.flags
    first, last = found.source.span
    assert "void tendency(" in "".join(found.texts["weather.cu"].splitlines()[first - 1 : last])


@pytest.fixture
def without_headers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(toolkit, "_resource_folders", lambda: iter(()))
    sources.compiled.cache_clear()
    yield
    sources.compiled.cache_clear()


@pytest.mark.usefixtures("without_headers")
def test_device_code_alone_needs_no_headers_of_clangs(tmp_path: Path) -> None:
    (tmp_path / "shape.h").write_text("#pragma once\n#define WIDE 3\n")
    (tmp_path / "k.cu").write_text(
        '#include <cuda_runtime.h>\n#include <cmath>\n#include "shape.h"\n'
        "__global__ void k(float* a) { *a = sqrtf(WIDE * *a); }\n"
    )
    found, why = sources.find("_Z1kPf", sources.named([tmp_path / "k.cu"], ["-DN=4"]), tmp_path)
    assert found is not None, why
    assert (set(found.texts), found.source.flags) == ({"k.cu", "shape.h"}, ("-DN=4",))
    (tmp_path / "host.cu").write_text("#include <vector>\n__global__ void host(float* a) {}\n")
    found, why = sources.find("_Z4hostPf", sources.named([tmp_path / "host.cu"], []), tmp_path)
    assert (found, "<vector> is a header of the host's libraries" in why) == (None, True)
    assert why.endswith(f"; {toolkit.missing()}")


def test_headers_of_a_clang_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert toolkit.resource_folder() is None
    for place in ("llvm/bin/clang", "llvm/lib/clang/22/include/__clang_cuda_runtime_wrapper.h"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/clang-22").symlink_to(tmp_path / "llvm/bin/clang")
    assert toolkit.resource_folder() == tmp_path / "llvm/lib/clang/22"


@needs_headers
def test_units_that_do_not_name_the_kernel_come_last(tmp_path: Path) -> None:
    (tmp_path / "broken.cu").write_text("this is no source\n")
    (tmp_path / "k.cu").write_text("__global__ void k(int* a) { *a = 1; }\n")
    (tmp_path / "z.cu").write_text("__global__ void z(int* a) { *a = 2; }\n")
    units = sources.named([tmp_path / name for name in ("gone.cu", "broken.cu", "z.cu", "k.cu")], [])
    found, why = sources.find("_Z1kPi", units, tmp_path)
    assert (found is not None, why) == (True, "")
    sources.compiled.cache_clear()
    sources.find("_Z1kPi", units, tmp_path)
    assert sources.compiled.cache_info().misses == 1


def test_a_file_is_compiled_once_for_all_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"k.cu": "".join(f"__global__ void k{i}(int* a) {{ *a = {i}; }}\n" for i in range(3))}
    unit = sources.Unit(Path(), "k.cu", (), texts, frontend.compile_ir(texts, "k.cu", debug=True))
    compile_ir, calls = frontend.compile_ir, []
    monkeypatch.setattr(frontend, "compile_ir", lambda *given, **how: calls.append(how) or compile_ir(*given, **how))
    found = [sources.found_in(unit, symbol=f"_Z2k{i}Pi", top=Path()) for i in range(3)]
    assert [each.demangled for each in found] == ["k0", "k1", "k2"]
    assert len(calls) == 1


@needs_headers
def test_headers_of_the_application_come_along(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "include/shape.h").write_text("#pragma once\n#define WIDE 3\n")
    text = (
        '#include <cuda_runtime.h>\n#include <vector>\n#include "shape.h"\n__global__ void k(int* a) { *a = WIDE; }\n'
    )
    (tmp_path / "src/k.cu").write_text(text)
    units = sources.named([tmp_path / "src/k.cu"], ["-I", str(tmp_path / "include")])
    found, why = sources.find("_Z1kPi", units, tmp_path)
    assert found is not None, why
    assert (found.source.main, set(found.texts)) == ("src/k.cu", {"src/k.cu", "include/shape.h"})
    assert frontend.kernels(frontend.compile_ir(found.texts, found.source.main, flags=found.source.flags)) == (
        "_Z1kPi",
    )


@needs_headers
@pytest.mark.parametrize("in_tree", [False, True])
def test_units_that_define_what_is_missing_are_linked(in_tree: bool) -> None:
    parts = PROGRAMS / "parts"
    given = [] if in_tree else sources.named([parts / "main.cu", parts / "bent.cu"], [])
    found, why = sources.find("_Z4bendPfi", given, PROGRAMS, parts if in_tree else None)
    assert found is not None, why
    assert (found.source.main, found.source.linked) == ("main.cu", (("bent.cu", found.source.flags),))
    assert set(found.texts) == {"main.cu", "bent.cu", "parts.h"}
    assert irtext.undefined([found.ir or ""], "_Z4bendPfi") == []
    assert "@offset = " in (found.ir or "")


@needs_headers
def test_a_kernel_whose_functions_nobody_defines() -> None:
    found, why = sources.find("_Z4bendPfi", sources.named([PROGRAMS / "parts/main.cu"], []), PROGRAMS)
    assert (found, why) == (None, "main.cu: it needs _Z4bentf, which no source that was given defines")


@needs_headers
def test_static_variables_are_called_as_nvcc_calls_them() -> None:
    found, _ = sources.find(TENDENCY, sources.named([PROGRAMS / "weather.cu"], []), PROGRAMS)
    assert found is not None
    assert "@largest = addrspace(1) externally_initialized global" in found.ir


@needs_headers
def test_why_there_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("__global__ void k(int* a) { undeclared(); }\n")
    found, why = sources.find("_Z1kPi", sources.named([tmp_path / "bad.cu"], []), tmp_path)
    assert found is None
    assert "bad.cu:1:" in why
    assert "undeclared" in why
    (tmp_path / "lacks.cu").write_text("#include <curand_kernel_of_another_age.h>\n")
    _, why = sources.find("_Z1kPi", sources.named([tmp_path / "lacks.cu"], []), tmp_path)
    assert "lacks.cu:1:10: 'curand_kernel_of_another_age.h' file not found" in why
    assert sources.find("_Z1zv", sources.named([PROGRAMS / "many.cu"], []), tmp_path) == (
        None, "no source that was given defines it",
    )  # fmt: skip


@needs_headers
def test_what_nvcc_brings_along(tmp_path: Path) -> None:
    text = (
        "#include <cuda_runtime.h>\n#include <algorithm>\n#include <cooperative_groups.h>\nusing namespace std;\n"
        "#if defined(__clang__) && defined(__CUDA__)\n#error this is clang\n#endif\n"
        "__host__ __device__ int apart(int a, int b) { return max(a, b) - min(a, b); }\n"
        "__global__ void k(int* x, int n) {\n"
        "  int i = min(blockIdx.x * blockDim.x + threadIdx.x, (unsigned)n);\n"
        "  x[i] = apart(i, n) + cooperative_groups::this_cluster().block_rank();\n}\n"
        "int main() { size_t n = 5; unsigned short q = 9; return min(1024, q) + max(n, 3u) + min(1.0f, 2.0); }\n"
    )
    (tmp_path / "k.cu").write_text(text)
    found, why = sources.find("_Z1kPii", sources.named([tmp_path / "k.cu"], []), tmp_path)
    assert found is not None, why


@needs_headers
@pytest.mark.parametrize("way", ["--source and --flags", "--compile-commands", "--tree"])
def test_ways_to_name_the_source_of_a_recorded_kernel(way: str, program: Build, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "include").mkdir(parents=True)
    (tree / "include/real.h").write_text("typedef double real;\n")
    flags = "-DTIMES=1 -I include"
    text = (
        '#include <cuda_runtime.h>\n#include "include/real.h"\n#ifndef TIMES\n#define TIMES 1\n#endif\n'
        "__global__ void scale(real* out, const real* in, real factor, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) out[i] += TIMES * factor * in[i];\n}\n"
    )
    (tree / "scale.cu").write_text(text)
    entry = {"directory": str(tree), "file": "scale.cu", "command": f"nvcc -O3 {flags} -c scale.cu"}
    (tree / "compile_commands.json").write_text(json.dumps([entry]))
    options = {
        "--source and --flags": ["--source", str(tree / "scale.cu"), "--flags", f"-DTIMES=1 -I {tree}/include"],
        "--compile-commands": ["--compile-commands", str(tree / "compile_commands.json")],
        "--tree": ["--tree", str(tmp_path)],
    }[way]
    assert main(["record", "--out", str(tmp_path / "captures"), *options, "--", str(program("plain"))]) == 0
    capture = store.open_capture(tmp_path / "captures/scale.zarr")
    assert capture.source is not None
    assert (capture.lacks, capture.source.main) == ("", "scale.cu")
    assert set(store.sources(capture)) == {"scale.cu", "include/real.h"}
    assert ("-DTIMES=1" in capture.source.flags) == (way != "--tree")
    assert [(p.name, p.dtype) for p in capture.parameters][2:] == [("factor", "float64"), ("n", "int32")]
