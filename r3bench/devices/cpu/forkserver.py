"""The process that workers are forked from: small, single-threaded, with llvmlite loaded and the driver linked.

``python -m r3bench.devices.cpu.forkserver FD`` serves the socket FD until its other end closes. A worker is ready some
milliseconds after it was asked for, and no worker ever inherits memory of the process that asked.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress

from llvmlite import binding as llvm
from llvmlite.binding.orcjit import JITLibraryBuilder

from r3bench import sealing
from r3bench.devices.cpu import available, sources
from r3bench.devices.cpu.native import die_with_parent, libc
from r3bench.devices.cpu.provided import CHECKS, CONVERSIONS, MATH, MEMORY, TURNS
from r3bench.devices.cpu.wire import FORK, HELLO, REAP, SERVER_ANSWER, SERVER_REQUEST
from r3bench.devices.cpu.worker import Code, Worker

_DRIVER_EXPORTS = ("r3_window", "r3_serve", "r3_gather", "r3_evict_block", "r3_report_faults_to", "r3_on_fault")


def main(fd: int) -> None:
    """Greet, then fork and reap workers as asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    code = _link_driver(sources.compiled())
    sealing.missing()  # looked up once, and not by every worker
    gc.freeze()  # a worker's collector would touch, and so copy, all of the server's memory
    with socket.socket(fileno=fd) as channel:
        channel.send(HELLO.pack(llvm.get_host_cpu_name().encode()))
        while _wait(channel, parent):
            data, fds, _, _ = socket.recv_fds(channel, SERVER_REQUEST.size, 2)
            if not data:
                break
            request, number = SERVER_REQUEST.unpack(data)
            channel.send(SERVER_ANSWER.pack(_serve(code, channel, request, number, fds)))
            _bury()


def _wait(channel: socket.socket, parent: int) -> bool:
    """Wait for a request; False if the parent has gone, even where another process keeps the socket open."""
    while not select.select([channel], [], [], 1.0)[0]:
        _bury()
        if os.getppid() != parent:
            return False
    return True


def _serve(code: Code, channel: socket.socket, request: int, number: int, fds: list[int]) -> int:
    if request == FORK:
        return _fork(code, channel, fds, number)
    if request == REAP:
        return _reap(number)
    os.kill(number, signal.SIGKILL)
    _dismissed.append(number)
    return 0


_dismissed: list[int] = []
"""Workers that were killed and take some milliseconds to end."""


def _bury() -> None:
    """Reap those of the dismissed that have ended."""
    _dismissed[:] = [pid for pid in _dismissed if not os.waitpid(pid, os.WNOHANG)[0]]


def _fork(code: Code, server: socket.socket, fds: list[int], threads: int) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        for fd in fds:
            os.close(fd)
        return child
    status = 1
    try:
        die_with_parent(parent)
        server.close()
        arena, worker = fds
        with socket.socket(fileno=worker) as channel:
            Worker(code, channel, arena, threads).live()
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)  # threads of the pool wait in native code, and nothing of the server's is the child's to end


def _reap(pid: int) -> int:
    """End a worker; its exit code, negative for the signal that had ended it before."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _link_driver(images: list[bytes]) -> Code:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    jit = llvm.create_lljit_compiler(suppress_errors=True)
    builder = JITLibraryBuilder()
    for image in images:
        builder.add_object_img(image)
    for name in ("memcpy", "memset", "syscall"):
        builder.import_symbol(name, _address(libc, name))
    for name in (*_DRIVER_EXPORTS, *TURNS, *CONVERSIONS, *CHECKS):
        builder.export_symbol(name)
    driver = builder.link(jit, "driver")
    provided = {name: _address(libc, name) for name in MEMORY}
    mathematics = ctypes.CDLL("libm.so.6")
    for name in MATH:
        with suppress(AttributeError):  # exp10 and roundeven are younger than some C libraries
            provided[name] = _address(mathematics, name)
    provided |= {name: driver[name] for name in TURNS | CONVERSIONS | CHECKS}
    return Code(jit, driver, provided, available.evict_bytes())


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address
    return address


if __name__ == "__main__":
    main(int(sys.argv[1]))
