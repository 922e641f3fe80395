"""What a worker asks of the C library and shares with driver.c: structures, mappings, signals, limits."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal

from r3bench import sealing

_PR_SET_PDEATHSIG = 1
_M_ARENA_MAX = -8
_MAP_POPULATE, _MAP_FIXED_NOREPLACE = 0x8000, 0x100000
_SA_SIGINFO, _SA_ONSTACK = 0x4, 0x08000000
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("every", ctypes.c_uint32),
    )


class Slot(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("target", ctypes.c_void_p))


class Own(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("initial", ctypes.c_char_p), ("nbytes", ctypes.c_uint64))


class Binding(ctypes.Structure):
    _fields_ = (("args", ctypes.c_void_p), ("slots", ctypes.POINTER(Slot)), ("slot_count", ctypes.c_uint64))


class Window(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_void_p),
        ("bindings", ctypes.POINTER(Binding)),
        ("owns", ctypes.POINTER(Own)),
        ("binding_count", ctypes.c_uint64),
        ("own_count", ctypes.c_uint64),
        ("frame_bytes", ctypes.c_uint64),
        ("frames", ctypes.POINTER(ctypes.c_void_p)),
        ("launch", Launch),
        ("poison", ctypes.c_uint32),
    )


class Outcome(ctypes.Structure):
    _fields_ = (("status", ctypes.c_uint32), ("index", ctypes.c_uint32), ("block", ctypes.c_uint32 * 3))


# How the driver and kernels are called: made once, for ctypes takes longer to make a type than workers to use it.
WINDOW = ctypes.CFUNCTYPE(None, ctypes.POINTER(Window), ctypes.POINTER(Outcome))
ON_THREAD = ctypes.CFUNCTYPE(None, ctypes.c_uint32)
ON_ADDRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
FRAME_BYTES = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(Launch))


class _SignalAction(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _SignalStack(ctypes.Structure):
    _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def map_exactly(address: int, nbytes: int, flags: int, fd: int = -1, offset: int = 0) -> None:
    """Map at exactly this address, with every page present; OSError if it cannot be."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    got = libc.mmap(address, nbytes, protection, flags | _MAP_FIXED_NOREPLACE | _MAP_POPULATE, fd, offset)
    if got != address:
        raise OSError(ctypes.get_errno(), f"{nbytes} bytes cannot be mapped at {address:#x}")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit at once if it has ended already."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources() -> None:
    """No core files, no files at all, and an address space of physical memory and a little more."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sealing.limit(core=0, fsize=0, **{"as": physical + (32 << 30)})


def use_one_heap() -> None:
    """Have all threads allocate from the heap that grows by brk: others grow by mprotect, which the seal refuses."""
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


def catch_faults(handler: int) -> None:
    action = _SignalAction(handler=handler, flags=_SA_SIGINFO | _SA_ONSTACK)
    for number in _FAULTS:
        libc.sigaction(number, ctypes.byref(action), None)


def use_signal_stack() -> None:
    """A stack of its own for the handler of this thread, so that an overflow of the thread's stack is reported too."""
    size = 1 << 16
    stack = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(stack))
    _signal_stacks.append(stack)
    libc.sigaltstack(ctypes.byref(_SignalStack(address, 0, size)), None)


_signal_stacks: list[mmap.mmap] = []
