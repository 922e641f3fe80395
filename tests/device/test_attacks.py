"""Kernels that attack the machine they run on; each is refused by the layer that its test names.

The layers are tried one by one: what a later one must hold back is written so that the earlier ones never see it. That
none of them is refused without its layer is in test_layers.py.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from r3bench import frontend, sealing
from r3bench.devices.cpu.arena import Arena
from r3bench.devices.cpu.device import CpuDevice
from r3bench.errors import BuildError, DeviceFault, DeviceUnavailable, LaunchError, ReplayTimeout, Unsupported
from r3bench.frontend import clang
from r3bench.model import Binary, Configuration, LaunchConfig
from r3bench.remix import BuildRequest, UnitFacts
from r3bench.toolchain import Compiler
from tests.device.cpu_case import SAXPY, compile_object, floats, run, unit_of
from tests.device.lowered import lowered

pytestmark = pytest.mark.skipif(bool(sealing.missing()), reason=sealing.state())
SECRET = "r3bench-secret-7d1f"


# -- the compiler's seal: source that reaches for files ---------------------------------------------------------------

FILES = {
    "include, absolute": '#include "{secret}"',
    "include, relative": '#include "{relative}"',
    "include in angle brackets": "#include <{secret}>",
    "include through a macro": '#define F "{secret}"\n#include F',
    "include_next": '#include_next "{secret}"',
    "import": '#import "{secret}"',
    "embed": '__device__ const char stolen[] = {{\n#embed "{secret}"\n}};',
    "has_include": '#if !__has_include("{secret}")\n#error out of reach\n#endif',
    "line directive, for a diagnostic that quotes": '#line 1 "{secret}"\nint x = "quote me";',
    "dependency of a pragma": '#pragma GCC dependency "{secret}"\n#error out of reach',
    "environment of the process": '#include "/proc/self/environ"',
    "memory map of the process": '#include "/proc/self/maps"',
    "a device": '#include "/dev/urandom"',
    "the project's own files": f'#include "{Path(frontend.__file__)}"',
    "module": "#pragma clang module import std",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_compiler_seal(text: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text(f"int {SECRET.replace('-', '_')}; // {SECRET}\n")
    source = text.format(secret=secret, relative=os.path.relpath(secret, "/tmp/r3-xxxxxxxx"))
    with pytest.raises(BuildError) as caught:
        frontend.compile_ir({"k.cu": source + "\n__global__ void k() {}\n"}, "k.cu")
    told = str(caught.value) + "".join(map(str, caught.value.diagnostics))
    assert SECRET not in told
    assert SECRET.replace("-", "_") not in told


def test_compiler_has_read_all_of_its_standard_input() -> None:
    kernel = "\n__global__ void k() {}\n"
    assert frontend.compile_ir({"k.cu": f'#include "/dev/stdin"{kernel}'}, "k.cu") == frontend.compile_ir(
        {"k.cu": kernel}, "k.cu"
    )


# -- the compiler's limits: source that never ends --------------------------------------------------------------------

DOUBLED = "".join(f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 41))
BOMBS = {
    "templates without end": (
        "template <int n> struct T { static const int v = T<n + 1>::v; }; int x = T<0>::v;",
        "recursive template instantiation",
    ),
    "templates, 2 to the 64th": (
        "template <int n, long k> struct T { static const long v = T<n - 1, 2 * k>::v + T<n - 1, 2 * k + 1>::v; };\n"
        "template <long k> struct T<0, k> { static const long v = k; };\nlong x = T<60, 0>::v;",
        "took longer",
    ),
    "macros, 2 to the 40th": (f"#define A0 1,\n{DOUBLED}int x[] = {{ A40 }};", "took longer|signal|status|wrote more"),
    "constant evaluation without end": (
        "constexpr int f() { for (;;) {} return 0; }\nconstexpr int x = f();",
        "never produces a constant",
    ),
    "recursion in constant evaluation": (
        "constexpr int f(int n) { return f(n + 1); }\nconstexpr int x = f(0);",
        "constant expression",
    ),
    "a file that includes itself, twice": ('#include "k.cu"\n#include "k.cu"', "nested too deeply"),
    "brackets without end": ("int x = " + "(" * 100_000 + "1" + ")" * 100_000 + ";", "nesting level exceeded"),
    "an array larger than memory": (
        "__global__ void f() { char x[1ull << 62]; x[threadIdx.x] = 1; }",
        "array is too large",
    ),
}


@pytest.mark.parametrize(("text", "message"), BOMBS.values(), ids=BOMBS.keys())
def test_compiler_limits(text: str, message: str) -> None:
    seconds = 2.0 if "took longer" in message else 60.0
    with pytest.raises(BuildError, match=message):
        frontend.compile_ir({"k.cu": text + "\n__global__ void k() {}\n"}, "k.cu", timeout_s=seconds)


def test_compiler_limits_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(clang.LIMITS, "fsize", 1 << 20)
    numbers = ",".join(map(str, range(300_000)))
    with pytest.raises(BuildError, match="wrote more than 1 MiB"):
        frontend.compile_ir({"k.cu": f"__device__ int x[] = {{{numbers}}};\n__global__ void k() {{}}"}, "k.cu")


# -- the optimizer's limits -------------------------------------------------------------------------------------------

UNROLLED = """__global__ void k(float* x) {
  float s = x[0];
#pragma unroll
  for (int i = 0; i < 4000; i++)
#pragma unroll
    for (int j = 0; j < 4000; j++) s = s * x[i * j] + x[i ^ j];
  x[0] = s;
}"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(1, timeout_s=60.0, cache=tmp_path_factory.mktemp("cache"), memory_bytes=1 << 30) as opened:
        yield opened


def built(compiler: Compiler, text: str, symbol: str = "_Z1kPf") -> Binary:
    launch = LaunchConfig(grid=(1, 1, 1), block=(32, 1, 1))
    request = BuildRequest(
        files=(("k.cu", text),),
        main="k.cu",
        flags=(),
        symbol=symbol,
        target=compiler.host,
        configuration=Configuration(),
        facts=UnitFacts(launch=launch, parameters=()),
    )
    return compiler.submit(request).result().binary


def test_optimizer_limits(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_timeout_s", 3.0)
    with pytest.raises(BuildError, match=r"took longer|ended the compiler"):
        built(compiler, UNROLLED)
    monkeypatch.undo()
    assert built(compiler, "__global__ void k(float* x) { x[0] = 1; }").image


# -- the allow-list: source and IR that would reach beyond the kernel -------------------------------------------------

REFUSED = "which the CPU device does not support"
KERNEL = "__global__ void k(float* x) {{ {} }}"
SOURCES = {
    "inline assembly": KERNEL.format('asm volatile("exit;");'),
    "assembly that includes a file": KERNEL.format('asm volatile(".incbin \\"/etc/passwd\\"");'),
    "an external function": 'extern "C" __device__ int system(const char*);\n' + KERNEL.format('x[0] = system("id");'),
    "a pointer from an integer": KERNEL.format("*(volatile int*)(long)(0x7f0000000000 + threadIdx.x) = 1;"),
    "a function pointer from memory": KERNEL.format("(*(void (**)())x)();"),
    "a function pointer from an integer": KERNEL.format("((void (*)(int))0x400000)(1);"),
    "a virtual function": "struct S { __device__ virtual void f(); };\n" + KERNEL.format("((S*)x)->f();"),
    "malloc": KERNEL.format("x[0] = *(float*)malloc(4);"),
    "the address of the code": KERNEL.format("x[0] = *(float*)&&here; here:;"),
}


@pytest.mark.parametrize("text", SOURCES.values(), ids=SOURCES.keys())
def test_allow_list_on_source(text: str, compiler: Compiler) -> None:
    with pytest.raises(Unsupported, match=REFUSED):
        built(compiler, text)


IR = """target triple = "nvptx64-nvidia-cuda"
{outside}
define ptx_kernel void @k(ptr %x) {header}{{
{body}
  ret void
}}"""
BODIES = {
    "asm": '  call void asm sideeffect "syscall", ""()',
    "inttoptr": "  %p = inttoptr i64 4096 to ptr\n  store i32 1, ptr %p",
    "constant inttoptr": "  store i32 1, ptr inttoptr (i64 4096 to ptr)",
    "indirect call": "  %f = load ptr, ptr %x\n  call void %f()",
    "external call": "  %r = call i32 @system(ptr %x)",
    "call through a bad name": '  call void @"memcpy\\00x"()',
    "read_register": "  %r = call i64 @llvm.read_register.i64(metadata !0)",
    "write_register": "  call void @llvm.write_register.i64(metadata !0, i64 0)",
    "returnaddress": "  %r = call ptr @llvm.returnaddress(i32 0)",
    "frameaddress": "  %r = call ptr @llvm.frameaddress.p0(i32 0)",
    "thread pointer": "  %r = call ptr @llvm.thread.pointer()",
    "time stamp": "  %r = call i64 @llvm.readcyclecounter()",
    "stack restore": "  call void @llvm.stackrestore.p0(ptr %x)",
    "trampoline": "  call void @llvm.init.trampoline(ptr %x, ptr %x, ptr %x)",
    "longjmp": "  call void @llvm.eh.sjlj.longjmp(ptr %x)",
    "clear cache": "  call void @llvm.clear_cache(ptr %x, ptr %x)",
    "x86 instruction": "  call void @llvm.x86.wrfsbase.64(i64 0)",
    "va_arg": "  %r = va_arg ptr %x, i64",
}
DECLARED = """declare i32 @system(ptr)
declare void @"memcpy\\00x"()
declare i64 @llvm.read_register.i64(metadata)
declare void @llvm.write_register.i64(metadata, i64)
declare ptr @llvm.returnaddress(i32)
declare ptr @llvm.frameaddress.p0(i32)
declare ptr @llvm.thread.pointer()
declare i64 @llvm.readcyclecounter()
declare void @llvm.stackrestore.p0(ptr)
declare void @llvm.init.trampoline(ptr, ptr, ptr)
declare void @llvm.eh.sjlj.longjmp(ptr)
declare void @llvm.clear_cache(ptr, ptr)
declare void @llvm.x86.wrfsbase.64(i64)
!0 = !{!"rsp"}"""
OUTSIDE = {
    "module assembly": 'module asm ".incbin \\"/etc/passwd\\""',
    "constructor": "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] "
    "[{ i32, ptr, ptr } { i32 1, ptr @k, ptr null }]",
    "section": '@s = global i32 1, section ".init_array"',
    "alias": "@t = global i32 1\n@s = alias i32, ptr @t",
    "thread_local": "@s = thread_local global i32 1",
    "extern_weak": "@s = extern_weak global i32",
}


def test_allow_list_lets_kernels_through() -> None:
    assert "@r3_run_block" in lowered(IR.format(outside=DECLARED, header="", body="  store i32 1, ptr %x"), "k").ir


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_allow_list_on_ir(body: str) -> None:
    with pytest.raises(Unsupported, match=REFUSED):
        lowered(IR.format(outside=DECLARED, header="", body=body), "k")


@pytest.mark.parametrize("outside", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_allow_list_outside_the_kernel(outside: str) -> None:
    body = "  %v = load i32, ptr @s\n  store i32 %v, ptr %x" if "@s" in outside else "  store i32 1, ptr %x"
    with pytest.raises(Unsupported, match=REFUSED):
        lowered(IR.format(outside=outside, header="", body=body), "k")


def test_allow_list_on_headers() -> None:
    with pytest.raises(Unsupported, match=REFUSED):
        lowered(IR.format(outside="", header='section ".init" ', body=""), "k")


# -- the check of objects ---------------------------------------------------------------------------------------------

AT_LOAD = "runs when it is loaded"
IDLE = "FRAME(0) BLOCK()"
OBJECTS = {
    "calls system": ("int system(const char *); FRAME(0) BLOCK(system((char *)raw))", "calls system"),
    "calls dlopen": ("void *dlopen(const char *, int); FRAME(0) BLOCK(dlopen(0, 1))", "calls dlopen"),
    "a constructor": (IDLE + "__attribute__((constructor)) void early(void) { __builtin_trap(); }", AT_LOAD),
    "a destructor": (IDLE + "__attribute__((destructor)) void late(void) { __builtin_trap(); }", AT_LOAD),
    "an indirect function": (
        IDLE + '__asm__(".type g, @gnu_indirect_function; .globl g; g: ret");',
        AT_LOAD,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    opened = CpuDevice(threads=2)
    yield opened
    opened.close()


def binary(device: CpuDevice, image: bytes) -> Binary:
    return Binary(target=device.target, symbol="attacker", image=image, format="object")


@pytest.mark.parametrize(("text", "message"), OBJECTS.values(), ids=OBJECTS.keys())
def test_object_check(text: str, message: str, device: CpuDevice, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=message):
        device.load(binary(device, compile_object(tmp_path, text)))


# -- the worker's seal: machine code that calls the system ------------------------------------------------------------

NUMBERS = {
    "openat": (257, 56), "openat2": (437, 437), "unlinkat": (263, 35), "mkdirat": (258, 34), "renameat2": (316, 276),
    "linkat": (265, 37), "statx": (332, 291), "getdents64": (217, 61), "ftruncate": (77, 46), "fallocate": (285, 47),
    "read": (0, 63), "write": (1, 64), "ioctl": (16, 29), "fcntl": (72, 25), "dup": (32, 23), "pipe2": (293, 59),
    "memfd_create": (319, 279), "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "sendmsg": (46, 211), "clone": (56, 220), "clone3": (435, 435), "execve": (59, 221),
    "execveat": (322, 281), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "getppid": (110, 173),
    "setpriority": (141, 140), "sched_setaffinity": (203, 122), "prctl": (157, 167), "prlimit64": (302, 261),
    "seccomp": (317, 277), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "chroot": (161, 51),
    "setuid": (105, 146), "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "shmget": (29, 194), "mmap": (9, 222), "mprotect": (10, 226),
    "pkey_mprotect": (329, 288), "remap_file_pages": (216, 234), "rt_sigaction": (13, 134), "timer_create": (222, 107),
    "clock_settime": (227, 112), "settimeofday": (164, 170), "adjtimex": (159, 171), "sethostname": (170, 161),
    "sendto": (44, 206), "munmap": (11, 215), "nanosleep": (35, 101),
}  # fmt: skip
HERE = "launch"  # some address that is mapped
SYSTEM_CALLS = {
    "files: read one": 'CALL(openat, AT_CWD, "/etc/passwd", 0)',
    "files: read one, by the newer call": 'CALL(openat2, AT_CWD, "/etc/passwd", there, 24)',
    "files: write one": 'CALL(openat, AT_CWD, "/tmp/r3bench-attack", 0101, 0600)',
    "files: delete one": 'CALL(unlinkat, AT_CWD, "/tmp/r3bench-attack", 0)',
    "files: make a folder": 'CALL(mkdirat, AT_CWD, "/tmp/r3bench-attack", 0700)',
    "files: rename one": 'CALL(renameat2, AT_CWD, "/tmp/r3bench-attack", AT_CWD, "/tmp/r3bench-attacked", 0)',
    "files: link one": 'CALL(linkat, AT_CWD, "/tmp/r3bench-attack", AT_CWD, "/tmp/r3bench-attacked", 0)',
    "files: see whether one exists": 'CALL(statx, AT_CWD, "/etc/passwd", 0, 0xfff, there)',
    "files: list a folder": "CALL(getdents64, 3, there, 100)",
    "files: grow what is open": "CALL(fallocate, 3, 0, 0, GIB)",
    "files: shorten what is open": "CALL(ftruncate, 3, 0)",
    "files: one in memory": 'CALL(memfd_create, "x", 0)',
    "descriptors: read": "CALL(read, 0, there, 1)",
    "descriptors: write elsewhere": "CALL(write, 1, there, 1)",
    "descriptors: control a terminal": "CALL(ioctl, 0, 0x5412, there)",
    "descriptors: flags": "CALL(fcntl, 0, 4, 0)",
    "descriptors: copy": "CALL(dup, 0)",
    "descriptors: pipe": "CALL(pipe2, there, 0)",
    "network: TCP": "CALL(socket, 2, 1, 0)",
    "network: UDP": "CALL(socket, 2, 2, 0)",
    "network: UNIX": "CALL(socket, 1, 1, 0)",
    "network: netlink": "CALL(socket, 16, 3, 0)",
    "network: a pair": "CALL(socketpair, 1, 1, 0, there)",
    "network: connect": "CALL(connect, 0, there, 16)",
    "network: bind": "CALL(bind, 0, there, 16)",
    "network: listen": "CALL(listen, 0, 1)",
    "network: pass a descriptor": "CALL(sendmsg, 0, there, 0)",
    "processes: fork": "CALL(clone, 17)",
    "processes: clone3": "CALL(clone3, there, 88)",
    "processes: a thread": "CALL(clone, THREAD, there)",
    "processes: run a program": 'CALL(execve, "/bin/true", there, there)',
    "processes: run an open file": 'CALL(execveat, 0, "", there, there, 0x1000)',
    "processes: end the parent": "CALL(kill, 1, 0)",
    "processes: signal a thread": "CALL(tkill, 1, 0)",
    "processes: signal another group": "CALL(tgkill, 1, 1, 0)",
    "processes: trace": "CALL(ptrace, 16, 1)",
    "processes: read another's memory": "CALL(process_vm_readv, 1, there, 1, there, 1, 0)",
    "processes: write another's memory": "CALL(process_vm_writev, 1, there, 1, there, 1, 0)",
    "processes: a handle": "CALL(pidfd_open, 1, 0)",
    "processes: who is the parent": "CALL(getppid, 0)",
    "processes: priority": "CALL(setpriority, 0, 0, 0)",
    "processes: processors": "CALL(sched_setaffinity, 0, 8, there)",
    "rights: prctl": "CALL(prctl, 4, 1)",
    "rights: raise a limit": "CALL(prlimit64, 0, 7, there, 0)",
    "rights: another filter": "CALL(seccomp, 1, 0, there)",
    "rights: namespaces": "CALL(unshare, 0x10000000)",
    "rights: another's namespace": "CALL(setns, 0, 0)",
    "rights: mount": 'CALL(mount, "x", "/tmp", "tmpfs", 0, 0)',
    "rights: another root": 'CALL(chroot, "/tmp")',
    "rights: another user": "CALL(setuid, 0)",
    "kernel: BPF": "CALL(bpf, 0, there, 48)",
    "kernel: performance counters": "CALL(perf_event_open, there, 0, -1, -1, 0)",
    "kernel: io_uring": "CALL(io_uring_setup, 1, there)",
    "kernel: userfaultfd": "CALL(userfaultfd, 0)",
    "kernel: keys": "CALL(keyctl, 0, -3, 0)",
    "kernel: shared memory": "CALL(shmget, 0, 4096, 01600)",
    "memory: code, mapped": "CALL(mmap, 0, 4096, READ | EXECUTE, PRIVATE | ANONYMOUS, -1, 0)",
    "memory: code, written": "CALL(mmap, 0, 4096, READ | WRITE | EXECUTE, PRIVATE | ANONYMOUS, -1, 0)",
    "memory: code, protected": f"CALL(mprotect, (long){HERE} & -4096, 4096, READ | EXECUTE)",
    "memory: the kernel's own code, written": "CALL(mprotect, (long)attack & -4096, 4096, READ | WRITE)",
    "memory: protection keys": f"CALL(pkey_mprotect, (long){HERE} & -4096, 4096, READ | EXECUTE, -1)",
    "memory: shared without a file": "CALL(mmap, 0, 4096, READ | WRITE, SHARED | ANONYMOUS, -1, 0)",
    "memory: another open file": "CALL(mmap, 0, 4096, READ | WRITE, SHARED, 0, 0)",
    "memory: pages rearranged": f"CALL(remap_file_pages, (long){HERE} & -4096, 4096, 0, 0, 0)",
    "time: set the clock": "CALL(clock_settime, 0, there)",
    "time: set the clock, the older way": "CALL(settimeofday, there, 0)",
    "time: bend the clock": "CALL(adjtimex, there)",
    "time: a timer": "CALL(timer_create, 1, 0, there)",
    "time: sleep": "CALL(nanosleep, there, 0)",
    "signals: catch them": "CALL(rt_sigaction, 11, there, 0, 8)",
    "host name": 'CALL(sethostname, "x", 1)',
}
LET_RUN = {
    "maps": "args->y[0] = gigabytes_mapped(); break;",
    "says": "args->y[0] = bytes_said(); break;",
    "stack": "overflow_stack(there); break;",
    "hangs": "wait(); break;",
    "exits": "CALL(munmap, 0, 0); __builtin_trap();",
    # The socket's number is in a: what it answers before the worker does.
    "forges nonsense": "__builtin_memset(there, 0xee, 184); CALL(sendto, args->a, there, 184); wait();",
    "forges a short answer": "CALL(sendto, args->a, there, 3); wait();",
    "forges a second answer": "CALL(sendto, args->a, there, 184); break;",
    "unmaps": "CALL(munmap, 0, 0x7ffffffff000); break;",
}  # fmt: skip
CODE = [*(f"{text}; break;" for text in SYSTEM_CALLS.values()), *LET_RUN.values()]
PLACES = {name: number for number, name in enumerate((*SYSTEM_CALLS, *LET_RUN))}


class Attacker(NamedTuple):
    """One object that holds all the attacks, and the device it is let loose on."""

    device: CpuDevice
    image: bytes

    def attack(self, name: str, *, a: float = 0.0, timeout_s: float = 60.0) -> Any:
        """What the attack left in y[0]; DeviceFault and others where it was refused."""
        unit, before = unit_of(1, a=a)
        place = PLACES[name].to_bytes(4, "little")
        unit = replace(unit, arguments=unit.arguments[:20] + place)
        kernel, memory = self.device.load(binary(self.device, self.image)), self.device.allocate(unit, before)
        self.device.launch(kernel, memory, unit.launch, timeout_s=timeout_s)
        return floats(self.device, memory)[0]


def attack_image(folder: Path) -> bytes:
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    numbers = "".join(f"#define NR_{name} {pair[column]}\n" for name, pair in NUMBERS.items())
    cases = " ".join(f"case {number}: {text}" for number, text in enumerate(CODE))
    text = numbers + f"#define ATTACKS {cases}\n" + Path(__file__).with_name("attack_objects.c").read_text()
    return compile_object(folder, text)


@pytest.fixture(scope="module")
def attacker(device: CpuDevice, tmp_path_factory: pytest.TempPathFactory) -> Attacker:
    return Attacker(device, attack_image(tmp_path_factory.mktemp("attacks")))


@pytest.mark.parametrize("name", SYSTEM_CALLS)
def test_worker_seal(name: str, attacker: Attacker) -> None:
    with pytest.raises(DeviceFault, match="ended by the seal of its worker"):
        attacker.attack(name)


# -- limits of the worker, checks of the device -----------------------------------------------------------------------


def test_worker_limit_on_memory(attacker: Attacker) -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    assert attacker.attack("maps") <= physical / 2


def test_worker_limit_on_what_it_writes(attacker: Attacker) -> None:
    assert attacker.attack("says") == 0


REFUSALS: dict[str, tuple[type[Exception], str]] = {
    "stack": (DeviceFault, "SIGSEGV"),
    "hangs": (ReplayTimeout, "did not end within 1 s"),
    "exits": (DeviceFault, "SIG(ILL|TRAP)"),
    "unmaps": (DeviceFault, "SIGSEGV"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_worker_is_replaced(name: str, attacker: Attacker, tmp_path: Path) -> None:
    kind, message = REFUSALS[name]
    with pytest.raises(kind, match=message):
        attacker.attack(name, timeout_s=1.0 if kind is ReplayTimeout else 60.0)
    unit, before = unit_of()
    memory = run(attacker.device, binary(attacker.device, compile_object(tmp_path, SAXPY)), unit, before)
    np.testing.assert_array_equal(floats(attacker.device, memory), 1 + 2 * np.arange(1000, dtype=np.float32))


def channel_of(device: CpuDevice) -> float:
    """The number that the worker's socket has in every worker of this device."""
    worker = device._worker()
    folder = Path(f"/proc/{worker.pid}/fd")
    return float(next(fd.name for fd in folder.iterdir() if os.readlink(fd).startswith("socket:")))


@pytest.mark.parametrize(
    ("name", "message"),
    [("forges nonsense", "an answer that no launch has"), ("forges a short answer", "did not end: its worker was")],
)
def test_device_check_of_answers(name: str, message: str, attacker: Attacker) -> None:
    with pytest.raises(DeviceFault, match=message):
        attacker.attack(name, a=channel_of(attacker.device))


def test_device_check_of_answers_nobody_asked_for(attacker: Attacker) -> None:
    """An answer beyond the one that was asked for would be taken for that of the next launch."""
    attacker.attack("forges a second answer", a=channel_of(attacker.device))
    worker = attacker.device._resources.worker
    assert worker is not None
    deadline = time.monotonic() + 60
    while worker.alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert attacker.device._worker() is not worker


def test_arena_is_bounded_and_cannot_be_shortened() -> None:
    arena = Arena()
    try:
        segment = arena.allocate([("x", 100, 16)])
        assert os.fstat(arena.fd).st_size <= segment.offset + segment.nbytes
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, 4096)
    finally:
        arena.close()


def test_arena_beyond_the_limit_on_files_is_the_environments_fault() -> None:
    arena, limits = Arena(), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        with pytest.raises(DeviceUnavailable, match=r"File too large.*: raise the limit .*ulimit -f"):
            arena.allocate([("x", 100, 16)])
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert arena.allocate([("x", 100, 16)]).views["x"].size == 100
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        arena.close()
