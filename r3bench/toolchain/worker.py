"""The compile server: a process that has LLVM loaded and forks a fresh worker, in milliseconds, when one is asked for.

No LLVM option is ever set in it: a worker sets the options of its one option set and keeps them for life (they cannot
be unset). A worker that aborts takes nothing with it. All end with their parent.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import mmap
import os
import pickle
import select
import signal
import socket
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import llvmlite
import llvmlite.binding as llvm

import r3bench
from r3bench import frontend, sealing
from r3bench.errors import BuildError
from r3bench.files import folder_of_this_process
from r3bench.model import Configuration, LaunchConfig, Target, content_id, plain
from r3bench.space import UnitFacts
from r3bench.toolchain import assembler, build, codegen, largepages, libdevice, ocml, wire
from r3bench.toolchain.job import FrontendJob, Job, PrepareJob

_PR_SET_PDEATHSIG = 1
_NICE = 5  # what feeds a device that is timed goes first on a processor that all want
_MOST_WORDS = 1 << 24  # bytes that a worker may say before it dies
_SMALL = """
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @small(ptr %to) {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %at = getelementptr float, ptr %to, i32 %thread
  store float 1.0, ptr %at
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  store float 2.0, ptr %at
  ret void
}
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""
_LIBRARIES = {"cuda": libdevice, "hip": ocml}
_SOURCES = ("model.py", "space", "frontend", "prelude", "lowering.py", "lowering", "toolchain")


def main(control_fd: int) -> NoReturn:
    """Serve fork requests until the parent is gone, then kill every worker."""
    os.nice(_NICE)
    control = socket.socket(fileno=control_fd)
    parent = os.getppid()
    _initialize()
    control.send(json.dumps(_hello()).encode())
    _warm_up()
    largepages.move_code(Path(llvm.ffi.lib._name))
    sealing.missing()  # looked up once, and not by every worker
    gc.freeze()  # workers share this memory as long as their collector leaves it alone
    workers: set[int] = set()
    # Workers are killed: what they leave goes with this folder.
    with folder_of_this_process("r3-compiler-") as folder:
        tempfile.tempdir = str(folder)
        try:
            with suppress(ConnectionError):  # the parent has just gone
                while os.getppid() == parent:
                    if select.select([control], [], [], 1.0)[0] and not _serve(control, workers):
                        break
        finally:
            for pid in workers:
                _kill(pid)
                os.waitpid(pid, 0)
    os._exit(0)


def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # nvcc's default: correctly rounded square roots.
    llvm.set_option("r3bench", "-nvvm-reflect-add=__CUDA_PREC_SQRT=1")


def _warm_up() -> None:
    """Build something small, so that what a process does once, reading files above all, no worker has to do."""
    facts = UnitFacts(launch=LaunchConfig(grid=(1, 1, 1), block=(32, 1, 1)), parameters=())
    target = Target(device="cpu", arch=codegen.host_cpu())
    job = PrepareJob(ir=_SMALL, symbol="small", target=target, configuration=Configuration(), facts=facts)
    ir = build.prepare(job).ir
    build.build(
        Job(ir=ir, symbol="small", target=target, configuration=Configuration(), facts=facts, ptx_version=83),
        lambda module: False,
    )


def _hello() -> dict[str, str]:
    """Who compiles: the host's processor, and a fingerprint of every version and source that decides the code."""
    versions = [llvmlite.__version__, list(llvm.llvm_version_info), frontend.compiler_version()]
    host = [codegen.host_cpu(), codegen.host_features(), codegen.host_triple()]
    return {
        "host_cpu": codegen.host_cpu(),
        "fingerprint": content_id(versions, host, assembler.identity(), _sources_hash()),
    }


def _sources_hash() -> str:
    root = Path(r3bench.__file__).parent
    digest = hashlib.sha256()
    for top in (root / name for name in _SOURCES):
        for path in sorted(p for p in (top, *top.rglob("*")) if p.is_file() and "__pycache__" not in p.parts):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _serve(control: socket.socket, workers: set[int]) -> bool:
    """Answer one request of the parent; False when the parent is gone."""
    message, fds, _, _ = socket.recv_fds(control, 1 << 16, 2)
    if not message:
        return False
    request = json.loads(message)
    if "reap" in request:
        workers.discard(request["reap"])
        control.send(json.dumps({"status": os.waitpid(request["reap"], 0)[1]}).encode())
        return True
    if request["role"] in _LIBRARIES:
        _LIBRARIES[request["role"]].preload()
    server, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            control.close()
            _end_with(server)
            _become_worker(fds[0], fds[1], request["options"], request["role"], request["memory_bytes"])
        finally:  # what the server has to end is not the worker's
            traceback.print_exc()
            os._exit(1)
    os.setpgid(pid, pid)
    workers.add(pid)
    for fd in fds:
        os.close(fd)
    control.send(json.dumps({"pid": pid}).encode())
    return True


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


_ahead = frontend.Ahead()
_channels: list[socket.socket] = []
"""Open until this process is gone: the parent takes a closed channel for its end, and must find its last words."""

# -- in the worker --------------------------------------------------------------------------------------------------


def _end_with(server: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it has ended already
        os._exit(0)


def _become_worker(
    channel_fd: int, log_fd: int, options: Sequence[Sequence[str]], role: str, memory_bytes: int
) -> NoReturn:
    """Limit this process, set its LLVM options for life, and answer requests until the channel closes."""
    os.setpgid(0, 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    # nvJitLink reserves addresses for a thread per processor, and takes twice as long where it may not.
    sealing.limit(core=0, **{"data" if role == "cuda" else "as": memory_bytes})
    sealing.first_to_end()
    for name, value in options:
        llvm.set_option("r3bench", f"-{name}={value}")
    channel = socket.socket(fileno=channel_fd)
    _channels.append(channel)
    _seal(channel, role)
    try:
        while True:
            _answer(channel)
    except (EOFError, ConnectionError):
        os._exit(0)


def _seal(channel: socket.socket, role: str) -> None:
    """Leave the process what its jobs need: LLVM reads IR that nobody has vetted.

    The front end starts clang, which is sealed more narrowly where it is started; builds for CUDA start ptxas.
    """
    if role == "cuda":
        sealing.refuse(sealing.REACHING_OUT)
    elif role in ("cpu", "hip"):
        ours, no_code = ((0, channel.fileno()),), (2, mmap.PROT_EXEC)
        sealing.restrict_files()
        sealing.limit(fsize=_MOST_WORDS, nofile=0, nproc=0)
        sealing.allow_only(
            [
                *(sealing.Call(name, ours) for name in ("recvfrom", "sendto")),
                *(sealing.Call(name, ((0, log),)) for name in ("write", "writev") for log in (1, 2)),
                *sealing.MEMORY_AND_TIME,
                sealing.Call("mmap", without=(no_code, (3, mmap.MAP_SHARED))),
                sealing.Call("mprotect", without=(no_code,)),
                "mremap",
                sealing.Call("tgkill", ((0, os.getpid()),)),
            ],
            fatal=False,
        )


def _answer(channel: socket.socket) -> None:
    job = pickle.loads(wire.receive(channel)[1])
    try:
        if isinstance(job, FrontendJob):
            wire.send(channel, {}, _ir(job).encode())
            _ahead.start()
        elif isinstance(job, PrepareJob):
            prepared = build.prepare(job)
            wire.send(channel, _header(prepared, "facts", "globals"), prepared.ir.encode())
        else:
            product = build.build(job, known=lambda module: _parent_knows(channel, module))
            wire.send(channel, _header(product, "module", "format", "code", "globals"), product.image)
    except BuildError as error:
        wire.send(
            channel, {"error": type(error).__name__, "message": str(error), "diagnostics": plain(error.diagnostics)}
        )


def _ir(job: FrontendJob) -> str:
    return frontend.compile_ir(
        dict(job.files),
        job.main,
        flags=job.flags,
        arch=job.arch,
        timeout_s=job.timeout_s,
        debug=job.debug,
        ahead=_ahead,
    )


def _parent_knows(channel: socket.socket, module: str) -> bool:
    wire.send(channel, {"known?": module})
    return bool(wire.receive(channel)[0]["known"])


def _header(answer: build.Prepared | build.Product, *names: str) -> dict[str, Any]:
    return {name: plain(getattr(answer, name)) for name in names} | {"stages": list(answer.stages.items())}
