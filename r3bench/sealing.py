"""What the operating system refuses on behalf of this program: to compilers that read untrusted source, to kernels.

Three layers of Linux, each applied by a process to itself, for good, and inherited by what it starts: limits on
resources; Landlock, which takes away files, TCP and signals to others; seccomp, which takes away system calls. None
needs privileges or a package. Where the system lacks one, the others are applied and :func:`missing` says so.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import resource
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38


class SealError(OSError):
    """The system offers a layer but did not apply it; what was to be sealed must not run."""


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    """A system call's result; -1 where it failed."""
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(_libc().syscall(ctypes.c_long(number), *words))


def _applied(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise SealError(number, f"{what} was not applied: {os.strerror(number)}")


# -- what there is --------------------------------------------------------------------------------------------------


@functools.cache
def missing() -> tuple[str, ...]:
    """What this system lacks of the layers, as sentences for a person; empty where processes are sealed completely."""
    if sys.platform != "linux":
        return (f"{sys.platform} has neither Landlock nor seccomp",)
    found = []
    if not landlock_version():
        found.append("the kernel has no Landlock (Linux 5.13, and in its list of security modules)")
    if not has_seccomp():
        found.append("the kernel has no seccomp filters, or this is neither x86-64 nor AArch64")
    return tuple(found)


def state() -> str:
    """``sealed``, or ``not sealed`` and why, as it is written beside results."""
    return f"not sealed: {'; '.join(missing())}" if missing() else "sealed"


@functools.cache
def landlock_version() -> int:
    """The version of Landlock's interface, 0 where there is none."""
    return max(0, _call(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)) if _linux() else 0


@functools.cache
def has_seccomp() -> bool:
    """Whether filters can be installed here that end a process."""
    action = ctypes.c_uint32(_KILL_PROCESS)
    known = _linux() and platform.machine() in _MACHINES
    return known and _call(_numbers()["seccomp"], _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0


def _linux() -> bool:
    return sys.platform == "linux"


# -- limits ---------------------------------------------------------------------------------------------------------


def limit(**limits: int) -> None:
    """Lower resource limits for good: ``limit(core=0, fsize=0)``. A limit that is lower already stays."""
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(which)[1]
        if hard == resource.RLIM_INFINITY or value < hard:
            resource.setrlimit(which, (value, value))


def limit_process(pid: int, **limits: int) -> None:
    """The same for a process that was just started."""
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.prlimit(pid, which)[1]
        if hard == resource.RLIM_INFINITY or value < hard:
            resource.prlimit(pid, which, (value, value))


def forgo_privileges() -> None:
    """No program that this process starts gains rights; filters need it."""
    _applied(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def first_to_end() -> None:
    """Make this the process that the system ends first when memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as score:
        score.write(b"1000")


# -- Landlock -------------------------------------------------------------------------------------------------------

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
# How many of the file rights, network rights and scopes each version knows; the last stands for all later ones.
_RIGHTS = {1: (13, 0, 0), 2: (14, 0, 0), 3: (15, 0, 0), 4: (15, 2, 0), 5: (16, 2, 0), 6: (16, 2, 2)}


def restrict_files(read: Iterable[Path] = (), execute: Iterable[Path] = ()) -> bool:
    """Leave this thread, and what it starts, only these files and folders to open; no TCP, no signals to others.

    Descriptors that are open stay usable. False where the system has no Landlock.
    """
    version = landlock_version()
    if not version:
        return False
    files, network, scopes = ((1 << count) - 1 for count in _RIGHTS[min(version, max(_RIGHTS))])
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("<QQQ", files, network, scopes)[:size]
    ruleset = _call(_LANDLOCK_CREATE_RULESET, attributes, size, 0)
    _applied(ruleset, "Landlock")
    try:
        for path in read:
            _allow_beneath(ruleset, path, _READ_FILE)
        for path in execute:
            _allow_beneath(ruleset, path, _READ_FILE | _EXECUTE)
        forgo_privileges()
        _applied(_call(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "Landlock")
    finally:
        os.close(ruleset)
    return True


def _allow_beneath(ruleset: int, path: Path, rights: int) -> None:
    held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights |= _READ_DIR if path.is_dir() else 0
        rule = struct.pack("<Qi", rights, held)
        _applied(
            _call(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0), f"Landlock's rule for {path}"
        )
    finally:
        os.close(held)


# -- seccomp --------------------------------------------------------------------------------------------------------

_SECCOMP_SET_MODE_FILTER, _SECCOMP_GET_ACTION_AVAIL = 1, 2
_ALL_THREADS, _SPEC_ALLOW = 1, 4
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM = 1
# AUDIT_ARCH_*, and the column of _CALLS.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Classic BPF: load a word of struct seccomp_data, jump if equal, jump if any bit is set, return.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

# fmt: off
# Numbers on x86-64 and AArch64; -1: this machine has no such call.
_CALLS = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "pread64": (17, 67), "writev": (20, 66), "sched_yield": (24, 124), "mremap": (25, 216),
    "madvise": (28, 233), "getpid": (39, 172), "sendto": (44, 206), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "exit": (60, 93), "gettimeofday": (96, 169), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153),
    "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123), "restart_syscall": (219, 128),
    "clock_gettime": (228, 113), "exit_group": (231, 94), "tgkill": (234, 131), "getrandom": (318, 278),
    "clock_nanosleep": (230, 115), "seccomp": (317, 277),
}
_REACHING_OUT = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kill": (62, 129), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "reboot": (169, 142), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "memfd_create": (319, 279), "mknod": (133, -1),
    "mknodat": (259, 33), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "utimensat": (280, 88),
    "setxattr": (188, 5), "open_by_handle_at": (304, 265), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "setuid": (105, 146), "setgid": (106, 144), "syslog": (103, 116),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
}
# fmt: on

REACHING_OUT = tuple(_REACHING_OUT)
"""Calls by which a process reaches others, the network, the kernel's own works, the clock: no compiler needs them."""

# What an allocator, Python's interpreter lock, a clock and an orderly end need; none reaches beyond the process.
MEMORY_AND_TIME = (
    "futex", "munmap", "madvise", "brk", "rt_sigreturn", "rt_sigprocmask", "sched_yield", "restart_syscall",
    "clock_gettime", "gettimeofday", "clock_nanosleep", "getpid", "gettid", "getrandom", "exit", "exit_group",
)  # fmt: skip


@functools.cache
def _numbers() -> dict[str, int]:
    """The numbers of this machine's system calls."""
    column = _MACHINES[platform.machine()][1]
    return {name: numbers[column] for name, numbers in (_CALLS | _REACHING_OUT).items() if numbers[column] >= 0}


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that is let through if each argument named (by position) equals the value given for it, and if
    none of the bits given in ``without`` is set in another."""

    name: str
    equal: tuple[tuple[int, int], ...] = ()
    without: tuple[tuple[int, int], ...] = ()


Instruction = tuple[int, int, int, int]


def _program(rules: Sequence[tuple[Call, int]], otherwise: int) -> list[Instruction]:
    """A filter: the first rule that fits decides."""
    arch = _MACHINES[platform.machine()][0]
    program = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL_PROCESS)]
    for call, action in rules:
        if call.name in _numbers():
            program += _rule(call, action)
    return [*program, (_RETURN, 0, 0, otherwise)]


def _rule(call: Call, action: int) -> list[Instruction]:
    """Falls through to the next rule where the call is another, or its arguments do not fit.

    Arguments are compared in their lower half: they are descriptors, flags and process ids, of 32 bits all.
    """
    tests = [(_EQUAL, position, value) for position, value in call.equal]
    tests += [(_ANY_BIT, position, bits) for position, bits in call.without]
    left = 2 * len(tests) + 1
    rule = [(_LOAD, 0, 0, _NUMBER_AT), (_EQUAL, 0, left, _numbers()[call.name])]
    for test, position, value in tests:
        left -= 2
        past = (0, left) if test == _EQUAL else (left, 0)
        rule += [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * position), (test, *past, value)]
    return [*rule, (_RETURN, 0, 0, action)]


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def _install(program: Sequence[Instruction], flags: int) -> None:
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    forgo_privileges()
    made = ctypes.byref(_Filter(len(program), code))
    # SPEC_ALLOW: a filter must not slow down the code whose time is taken.
    result = _call(_numbers()["seccomp"], _SECCOMP_SET_MODE_FILTER, flags | _SPEC_ALLOW, made)
    _applied(-1 if result else 0, "the seccomp filter")


def allow_only(calls: Iterable[Call | str], *, deny: Iterable[str] = (), fatal: bool = True) -> bool:
    """From now on any other system call ends the process, in all its threads, with SIGSYS; False without seccomp.

    Calls in ``deny``, or all others if that is not to be ``fatal``, fail with EPERM instead.
    """
    if not has_seccomp():
        return False
    rules = [(Call(call) if isinstance(call, str) else call, _ALLOW) for call in calls]
    rules += [(Call(name), _ERRNO | _EPERM) for name in deny]
    _install(_program(rules, _KILL_PROCESS if fatal else _ERRNO | _EPERM), _ALL_THREADS)
    return True


def refuse(names: Iterable[str]) -> bool:
    """From now on these system calls fail with EPERM in this thread and in what it starts; False without seccomp."""
    if not has_seccomp():
        return False
    _install(_program([(Call(name), _ERRNO | _EPERM) for name in names], _ALLOW), 0)
    return True


# -- another program ------------------------------------------------------------------------------------------------


def started(
    command: Sequence[str], *, read: Sequence[Path], limits: dict[str, int], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program that can open nothing but itself and ``read``, has no network, and keeps to ``limits``.

    ``options`` are those of :class:`subprocess.Popen`. Layers that the system lacks are left out.
    """

    def start() -> subprocess.Popen[bytes]:
        restrict_files(read=read, execute=[Path(command[0])])
        refuse(REACHING_OUT)
        return subprocess.Popen(command, **options)

    # The seal is that of a thread, and of what it starts: this one lives no longer than that takes.
    with ThreadPoolExecutor(1) as thread:
        process = thread.submit(start).result()
    if _linux():
        with suppress(ProcessLookupError):
            limit_process(process.pid, **limits)
    return process
