"""Machine code that attacks the machine it runs on; each is refused by the layer that its test names.

The layers are tried one by one, as in test_attacks_compiling.py.
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

from r3bench import sealing
from r3bench.devices.cpu.arena import Arena
from r3bench.devices.cpu.device import CpuDevice
from r3bench.errors import DeviceFault, DeviceUnavailable, LaunchError, ReplayTimeout
from r3bench.model import Binary
from tests.device.cpu_case import SAXPY, compile_object, floats, run, unit_of

pytestmark = pytest.mark.skipif(bool(sealing.missing()), reason=sealing.state())

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
