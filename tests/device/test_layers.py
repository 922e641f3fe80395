"""The attacks of test_attacks_*.py without the layer that refuses each: nothing else does, or with other words.

So it is that layer that the tests there see at work. What no test can let happen to the machine is left out by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from r3bench import frontend, sealing
from r3bench.devices.cpu import elf, limits
from r3bench.errors import R3Error
from r3bench.lowering import allow
from r3bench.model import Binary, Target
from tests.benchmarks.sealing import Unsealed
from tests.device import test_attacks_compiling as compiling
from tests.device import test_attacks_running as running
from tests.device.cpu_case import compile_object
from tests.device.lowered import lowered

pytestmark = compiling.pytestmark


def said(action: Callable[..., object], *arguments: object) -> str:
    """The error that an action ends with, empty where it does not."""
    try:
        action(*arguments)
    except R3Error as error:
        return str(error)
    return ""


# -- the compiler's seal ----------------------------------------------------------------------------------------------

# Refused by how clang is called: it quotes no source, and knows no modules.
OTHERWISE = {"line directive, for a diagnostic that quotes", "module"}


@pytest.mark.parametrize("name", sorted(compiling.FILES.keys() - OTHERWISE))
def test_compiler_seal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.h").write_text("int secret;")
    place = tmp_path / "secret.h"
    text = compiling.FILES[name].format(secret=place, relative=os.path.relpath(place, "/tmp/r3-xxxxxxxx"))
    monkeypatch.setattr(sealing, "restrict_files", lambda **paths: False)
    error = said(frontend.compile_ir, {"k.cu": text + "\n__global__ void k() {}\n"}, "k.cu")
    assert "Permission denied" not in error
    assert "not found" not in error


# -- the allow-list ---------------------------------------------------------------------------------------------------


@pytest.fixture
def all_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for check in ("check_module", "check_global", "check_function", "check_addresses"):
        monkeypatch.setattr(f"{allow.__name__}.{check}", lambda *_: None)


@pytest.mark.usefixtures("all_allowed")
@pytest.mark.parametrize("name", compiling.SOURCES)
def test_allow_list_on_source(name: str) -> None:
    ir = frontend.compile_ir({"k.cu": compiling.SOURCES[name]}, "k.cu")
    assert compiling.REFUSED not in said(lowered, ir, "_Z1kPf")  # LLVM itself may refuse it


@pytest.mark.usefixtures("all_allowed")
@pytest.mark.parametrize("name", compiling.BODIES)
def test_allow_list_on_ir(name: str) -> None:
    ir = compiling.IR.format(outside=compiling.DECLARED, header="", body=compiling.BODIES[name])
    assert compiling.REFUSED not in said(lowered, ir, "k")


# Without a definition it is refused a second time.
@pytest.mark.usefixtures("all_allowed")
@pytest.mark.parametrize("name", sorted(compiling.OUTSIDE.keys() - {"extern_weak"}))
def test_allow_list_outside_the_kernel(name: str) -> None:
    outside = compiling.OUTSIDE[name]
    body = "  %v = load i32, ptr @s\n  store i32 %v, ptr %x" if "@s" in outside else "  store i32 1, ptr %x"
    assert compiling.REFUSED not in said(lowered, compiling.IR.format(outside=outside, header="", body=body), "k")


@pytest.mark.usefixtures("all_allowed")
def test_allow_list_on_headers() -> None:
    assert not said(lowered, compiling.IR.format(outside="", header='section ".init" ', body=""), "k")


# -- the check of objects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", running.OBJECTS)
def test_object_check(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not loaded: a constructor would run outside of the seal."""
    monkeypatch.setattr(elf, "_refuse_constructors", lambda *_: None)
    monkeypatch.setattr(limits, "NAMES", limits.NAMES | {"system", "dlopen"})
    image = compile_object(tmp_path, running.OBJECTS[name][0])
    target = Target(device="cpu", arch="any")
    assert limits.check_binary(Binary(target=target, symbol="attacker", image=image, format="object"), target)


# -- the worker's seal ------------------------------------------------------------------------------------------------

# These change what outlives the worker, or leave a process that nobody waits for.
TOO_FAR = {
    *("files: grow what is open", "files: shorten what is open", "processes: fork", "processes: a thread"),
    *("processes: run a program", "processes: trace", "rights: mount", "kernel: shared memory", "host name"),
    *("time: set the clock", "time: set the clock, the older way", "time: bend the clock"),
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return running.attack_image(tmp_path_factory.mktemp("attacks"))


@pytest.fixture
def unsealed(image: bytes) -> Iterator[running.Attacker]:
    device = Unsealed(threads=1)
    yield running.Attacker(device, image)
    device.close()


@pytest.mark.parametrize("name", [name for name in running.SYSTEM_CALLS if name not in TOO_FAR])
def test_worker_seal(name: str, unsealed: running.Attacker) -> None:
    assert "seal" not in said(unsealed.attack, name)


def test_worker_limit_on_memory(unsealed: running.Attacker) -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    assert unsealed.attack("maps") > physical / 2
