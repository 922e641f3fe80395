"""From PTX to machine code with the ptxas or nvJitLink of this machine, where it has one; the version of PTX."""

from __future__ import annotations

from pathlib import Path
from time import sleep

import pytest

from r3bench.errors import BuildError
from r3bench.space import ASSEMBLER, DRIVERS
from r3bench.toolchain import assembler, jitlink, ptx

PTX = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 a)
{
  .shared .align 4 .b8 held[512];
  .reg .b64 %rd<3>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [x];
  ld.param.f32 %f1, [a];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.f32 %f2, [%rd2];
  mul.f32 %f3, %f2, %f1;
  st.shared.f32 [held], %f3;
  st.global.f32 [%rd2], %f3;
  ret;
}
"""
SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Used 4 registers, used 0 barriers
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    48 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 76 registers, used 1 barriers, 48 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compiling entry function 'last' for 'sm_90'
ptxas info    : Used 8 registers, used 0 barriers
"""

needs_ptxas = pytest.mark.skipif(assembler.find() is None, reason="there is no ptxas on this machine")
needs_library = pytest.mark.skipif(jitlink.version() is None, reason="nvJitLink is not on this machine")


@pytest.fixture(params=[pytest.param("ptxas", marks=needs_ptxas), pytest.param("nvJitLink", marks=needs_library)])
def ptxas(request: pytest.FixtureRequest) -> Path | None:
    return assembler.find() if request.param == "ptxas" else None


def assembled(path: Path | None, ptx: bytes = PTX, options: assembler.Options = ()) -> tuple[bytes, assembler.Facts]:
    with assembler.started(path, "scale", "sm_90", options) as assemble:
        return assemble(ptx)


def test_facts_are_those_of_the_kernel_asked_for() -> None:
    assert dict(assembler.facts(SAID, "k")) == {
        "registers": 76,
        "local_bytes": 48,
        "spill_store_bytes": 16,
        "spill_load_bytes": 24,
        "shared_bytes": 1024,
    }
    assert dict(assembler.facts(SAID, "last")) == {"registers": 8, "shared_bytes": 0}


@pytest.mark.parametrize("option", [("opt-level", "9"), ("maxrregcount", "8"), ("def-load-cache", "")])
def test_options_that_do_not_exist_are_refused(option: tuple[str, str]) -> None:
    with pytest.raises(BuildError, match="opt-level 3, 2, 1, 0"):
        assembler.check([option], ASSEMBLER)


def test_the_drivers_compiler_has_fewer_options() -> None:
    assembler.check([("opt-level", "0"), ("def-load-cache", "cg")], DRIVERS)
    for option in (("def-store-cache", "cg"), ("def-load-cache", "cv")):
        assembler.check([option], ASSEMBLER)
        with pytest.raises(BuildError, match=f"has no option {option[0]}={option[1]}; choose from opt-level"):
            assembler.check([option], DRIVERS)


def test_cuda_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ptxas").write_text("")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert assembler.find() == tmp_path / "bin/ptxas"


def test_a_ptxas_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be run"):
        assembled(tmp_path / "none")


def test_a_kernel_becomes_machine_code(ptxas: Path | None) -> None:
    cubin, facts = assembled(ptxas)
    assert cubin.startswith(b"\x7fELF")
    assert dict(facts)["registers"] > 0
    assert dict(facts)["shared_bytes"] >= 512
    assert assembled(ptxas)[0] == cubin


@pytest.mark.parametrize("option", [("opt-level", "0"), ("def-load-cache", "cv")])
def test_options_change_the_code(ptxas: Path | None, option: tuple[str, str]) -> None:
    assert assembled(ptxas, options=[option])[0] != assembled(ptxas)[0]


def test_what_ptxas_refuses_is_told(ptxas: Path | None) -> None:
    with pytest.raises(BuildError, match="ptxas refused scale: "):
        assembled(ptxas, PTX.replace(b"512", b"100000"))


def script(path: Path, text: str) -> Path:
    """What stands in for ptxas: it may name ``$out``, where the code is wanted, and ``$count``, a file of its own."""
    path.write_text(f"#!/bin/sh\ncount={path}.count\nfor out; do :; done\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_is_killed_is_started_again(tmp_path: Path) -> None:
    twice_killed = script(
        tmp_path / "ptxas",
        'echo >> $count; [ $(wc -l < $count) = 3 ] || kill -9 $$; cat > $out; echo "Used 5 registers"',
    )
    cubin, _ = assembled(twice_killed)
    assert cubin == PTX
    with pytest.raises(BuildError, match="ptxas refused scale: exit code -9"):
        assembled(script(tmp_path / "never", "kill -9 $$"))


def test_what_waits_for_a_text_that_never_comes_is_ended(tmp_path: Path) -> None:
    waiting, said = script(tmp_path / "ptxas", "echo $$ > $count; exec sleep 1000"), tmp_path / "ptxas.count"
    with assembler.started(waiting, "scale", "sm_90", ()):
        while not said.exists() or not said.read_text().endswith("\n"):
            sleep(0.01)
    assert not Path(f"/proc/{said.read_text().strip()}").exists()


# -- the version of PTX ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "known"), [((11, 8), 78), ((12, 0), 80), ((12, 4), 84), ((12, 6), 85), ((13, 0), 90), ((14, 1), 90)]
)
def test_each_cuda_knows_a_version_of_ptx(cuda: tuple[int, int], known: int) -> None:
    assert ptx.known(cuda) == known


@pytest.mark.parametrize(
    ("driver", "toolkit", "written"),
    [
        ((13, 0), (13, 0), 90),
        ((12, 4), (13, 0), 84),
        ((13, 1), (12, 9), 88),
        ((12, 8), None, 87),
        (None, (12, 2), 82),
        (None, None, 83),
        ((99, 0), None, 90),
    ],
)
def test_ptx_is_written_for_all_who_read_it(
    monkeypatch: pytest.MonkeyPatch,
    driver: tuple[int, int] | None,
    toolkit: tuple[int, int] | None,
    written: int,
) -> None:
    monkeypatch.setattr(ptx, "_driver", lambda: driver)
    monkeypatch.setattr(assembler, "version", lambda: toolkit)
    assert ptx.version() == written


def test_a_driver_that_compiles_itself_asks_no_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "_driver", lambda: (13, 0))
    monkeypatch.setattr(assembler, "version", lambda: (12, 0))
    assert ptx.version(assemble=False) == 90


def test_ptxas_tells_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = tmp_path / "bin/ptxas"
    said.parent.mkdir()
    said.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    said.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert assembler.version() == (12, 4)
    assert assembler.available()
    said.write_text("no script")
    assert assembler.version() is None


def test_without_ptxas_the_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "find", lambda: None)
    monkeypatch.setattr(jitlink, "version", lambda: (13, 0))
    assert (assembler.available(), assembler.version(), assembler.identity()) == (True, (13, 0), ["nvJitLink (13, 0)"])
    monkeypatch.setattr(jitlink, "version", lambda: None)
    assert (assembler.available(), assembler.version(), assembler.identity()) == (False, None, [])
