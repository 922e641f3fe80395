"""The compiler that everything above uses: requests in, binaries out, in parallel, cached, whatever they do to LLVM."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from r3bench.errors import BuildError, BuildTimeout, DeviceUnavailable, Diagnostic, R3Error, Unsupported, WorkerLost
from r3bench.locks import Locks
from r3bench.model import Binary, Configuration, Global, Target, content_id
from r3bench.remix import BuildRequest
from r3bench.space import OPTION_NAMES, Options
from r3bench.toolchain import ptx
from r3bench.toolchain.cache import Cache, Entry, user_cache
from r3bench.toolchain.job import FrontendJob, Job, PrepareJob
from r3bench.toolchain.pool import Server, Worker

# Loop strength reduction takes nearly half the time of emitting a host's code and does not make kernels faster.
_OF_TARGET = {"cpu": (("disable-lsr", "true"),)}
# Idle workers kept at least: a search comes back to its option sets. Each holds 6 to 20 MB; the rest is the server's.
_KEPT = 32
_JOBS = 64  # of a worker, at least: LLVM leaves 100 to 200 kB behind with each default pipeline that llvmlite runs
_TRIES = 3  # of a job whose worker is killed
_STARTS = 10  # of a server that is killed before it gives what it is asked for

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What became of a request. ``module`` is the SHA-256 of the optimized IR without names: equal modules share code.

    ``stages`` gives the seconds per stage (frontend, specialize, lower, optimize, emit), or ``cache`` alone;
    ``globals`` are the variables of the module that a device must fill before a launch.
    """

    binary: Binary
    module: str
    stages: tuple[tuple[str, float], ...] = ()
    globals: tuple[Global, ...] = ()


class Compiler:
    """A pool of compile workers with a cache by content. Use as a context manager, or close it.

    ``workers`` compile at the same time (default: one per processor this process may use, and a quarter more of them,
    for each waits now and then for what this process does between its jobs), each request within
    ``timeout_s`` and each worker within ``memory_bytes``; ``cache`` is a folder (default: the user's cache).
    ``ptx_version`` is what PTX is written in (83 for PTX 8.3; default: the newest that everything here knows); where
    ptxas or nvJitLink is here and ``assemble`` is not False it becomes machine code, otherwise the driver compiles it.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout_s: float = 20.0,
        cache: Path | None = None,
        memory_bytes: int = 4 << 30,
        ptx_version: int | None = None,
        assemble: bool = True,
    ) -> None:
        self._count = workers or len(os.sched_getaffinity(0)) * 5 // 4
        self._timeout_s, self._memory_bytes, self._ptx_version = timeout_s, memory_bytes, ptx_version
        self._assemble = assemble
        self._cache = Cache(user_cache() if cache is None else cache)
        # What was said of sources that took too long: one that did so twice would under another configuration, too.
        self._too_long: dict[str, tuple[str, ...]] = {}
        self._server = Server()
        self._closed = False
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._building = Locks()
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="r3bench-compile")
        self._ending = ThreadPoolExecutor(1, thread_name_prefix="r3bench-ending")

    @property
    def host(self) -> Target:
        """The processor this machine has, as a target."""
        return Target(device="cpu", arch=self._hello["host_cpu"])

    def submit(self, request: BuildRequest) -> Future[Built]:
        """Build in the background. The future raises BuildError (or Unsupported) where the request is at fault,
        CancelledError where the compiler is closed meanwhile, and DeviceUnavailable where none can be started."""
        return self._threads.submit(self._build_unless_closed, request)

    def close(self) -> None:
        """Drop what has not ended, end the workers; idempotent."""
        with self._lock:
            self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._server.close()
        self._threads.shutdown()
        self._ending.shutdown()
        while self._idle:
            self._idle.pop().end()
        self._cache.close()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- one request ------------------------------------------------------------------------------------------------

    def _build_unless_closed(self, request: BuildRequest) -> Built:
        try:
            return self._build(request)
        except R3Error:
            self._check_open()
            raise

    def _build(self, request: BuildRequest) -> Built:
        start = time.perf_counter()
        _check_options(request.configuration.options)
        units = [replace(request, main=main, flags=flags) for main, flags in request.linked]
        ir_keys = [self._ir_key(unit) for unit in (request, *units)]
        used = request.facts.used_by(request.configuration)
        how = self._how(request.target), request.padded
        key = self._key("built", *ir_keys, request.symbol, request.target, request.configuration, used, how)
        with self._building.of(key):
            entry = self._known(key)
            if entry is not None:
                return _built(request, entry, (("cache", time.perf_counter() - start),))
            too_long = self._too_long.get(ir_keys[0], ())
            if len(too_long) > 1:
                raise BuildTimeout(too_long[-1])
            begin = time.perf_counter()
            try:
                irs = [self._ir(ir_key, unit) for ir_key, unit in zip(ir_keys, (request, *units), strict=True)]
                seconds = time.perf_counter() - begin
                entry = self._compiled(key, request, ir_keys, irs)
            except BuildTimeout as error:
                self._too_long[ir_keys[0]] = *too_long, str(error)
                raise
        stages = (("frontend", seconds), *((str(name), float(s)) for name, s in entry[0]["stages"]))
        return _built(request, entry, stages)

    def _known(self, key: str) -> Entry | None:
        """A build from before. Its code lies under a key of its own, for all builds that came to the same."""
        entry = self._cache.get(key)
        code = self._cache.get(entry[1].decode()) if entry is not None else None
        return None if entry is None or code is None else (entry[0] | code[0], code[1])

    def _ir_key(self, request: BuildRequest) -> str:
        source = request.files, request.main, request.flags, _frontend_arch(request.target)
        return _source_key(self._hello["fingerprint"], "ir", *source, *_if_checked(request))

    def _key(self, *parts: Any) -> str:
        return content_id(self._hello["fingerprint"], *parts)

    def _ir(self, key: str, request: BuildRequest) -> str:
        """The source's IR: one front end call serves every configuration of a source."""
        if request.main.endswith((".ll", ".ptx")):  # what a compiler made of a source that is not known
            return dict(request.files)[request.main]
        with self._building.of(key):
            entry = self._cache.get(key)
            if entry is None:
                job = FrontendJob(
                    files=request.files,
                    main=request.main,
                    flags=request.flags,
                    arch=_frontend_arch(request.target),
                    timeout_s=self._timeout_s,
                    debug=request.checked,
                )
                entry = self._ask(job, ())
                self._cache.put(key, entry)
        return entry[1].decode()

    def _compiled(self, key: str, request: BuildRequest, ir_keys: Sequence[str], irs: Sequence[str]) -> Entry:
        """What workers make of IR, kept under ``key``."""
        prepared, ir = self._prepared(request, ir_keys, irs)
        job = Job(
            ir=ir.decode(),
            symbol=request.symbol,
            target=request.target,
            configuration=request.configuration,
            facts=request.facts,
            ptx_version=self._written_in if request.target.device == "cuda" else 0,
            assemble=self._assemble,
            padded=request.padded,
        )
        found: list[Entry] = []

        def known(module: str) -> bool:
            found.extend(filter(None, [self._cache.get(self._code_key(module, request))]))
            return bool(found)

        options = tuple(sorted(request.configuration.options + _OF_TARGET.get(request.target.device, ())))
        header, image = self._ask(job, options, known)
        code = {name: header.pop(name) for name in ("code", "format")}, image
        code_key = self._code_key(header["module"], request)
        if found:
            code = found[-1]
        else:
            self._cache.put(code_key, code)
        header |= {name: [*prepared[name], *header.get(name, ())] for name in ("facts", "globals", "stages")}
        self._cache.put(key, (header, code_key.encode()))
        return header | code[0], code[1]

    def _prepared(self, request: BuildRequest, ir_keys: Sequence[str], irs: Sequence[str]) -> Entry:
        """What the configuration's passes begin with: the same where the same facts are compiled into the same IR.

        LLVM's options are left to these passes, so that one worker that stays warm prepares for all of them. The key is
        made here, and not by the worker: none can answer for another source.
        """
        special = Configuration(specialize=request.configuration.specialize)
        how = request.symbol, request.target, special.specialize, request.facts.used_by(special)
        key = self._key("prepared", *ir_keys, *how)
        with self._building.of(key):
            entry = self._cache.get(key)
            if entry is not None:
                return entry[0] | {"stages": []}, entry[1]
            job = PrepareJob(
                ir=irs[0],
                linked=tuple(irs[1:]),
                symbol=request.symbol,
                target=request.target,
                configuration=special,
                facts=request.facts,
                checked=request.checked,
            )
            entry = self._ask(job, ())
            self._cache.put(key, entry)
        return entry

    def _code_key(self, module: str, request: BuildRequest) -> str:
        """Names the code of an optimized module. LLVM's options are left out: all of them end in the optimizer."""
        how = self._how(request.target), request.configuration.assembler
        return self._key("code", module, request.symbol, request.target, *how)

    def _how(self, target: Target) -> tuple[int, bool] | None:
        """What decides a GPU's code beside the request."""
        return (self._written_in, self._assemble) if target.device == "cuda" else None

    @cached_property
    def _written_in(self) -> int:
        return self._ptx_version or ptx.version(self._assemble)

    # -- workers ----------------------------------------------------------------------------------------------------

    def _ask(
        self,
        job: FrontendJob | PrepareJob | Job,
        options: Options,
        known: Callable[[str], bool] = lambda _: False,
    ) -> Entry:
        """An answer of some worker for such jobs, with these LLVM options; BuildError where it holds an error, or where
        one worker after the other is killed at it."""
        request = pickle.dumps(job)
        for left in reversed(range(_TRIES)):
            try:
                worker = self._take(options, job.role)
                header, blob = worker.ask(request, what=job.what, timeout_s=self._timeout_s, known=known)
                break
            except WorkerLost as lost:
                if not left:
                    raise BuildError(str(lost)) from lost
        self._give(worker)
        if "error" in header:
            raise _error(header)
        return header, blob

    def _take(self, options: Options, role: str) -> Worker:
        while (worker := self._idle_one((options, role))) is not None:
            if worker.alive():
                return worker
            worker.end()
        return self._served(lambda server: server.fork(options, role, self._memory_bytes))

    def _idle_one(self, kind: tuple[Options, str]) -> Worker | None:
        with self._lock:
            found = next((worker for worker in reversed(self._idle) if worker.kind == kind), None)
            if found is not None:
                self._idle.remove(found)
            return found

    @cached_property
    def _hello(self) -> dict[str, str]:
        """What every compile server of this process says of itself."""
        return self._served(Server.hello)

    def _served(self, ask: Callable[[Server], T], starts: int = _STARTS) -> T:
        """What the compile server gives; where one was killed or stood still, which is nobody's fault, another does."""
        try:
            return ask(self._living_server())
        except WorkerLost as lost:
            if starts == 1:
                raise DeviceUnavailable(f"{lost} each of {_STARTS} times: see what kills it") from lost
        return self._served(ask, starts - 1)

    def _living_server(self) -> Server:
        with self._lock:
            self._check_open()
            if not self._server.alive():
                while self._idle:
                    self._idle.pop().end()
                self._server.close()
                self._server = Server()
            return self._server

    def _check_open(self) -> None:
        if self._closed:
            raise CancelledError("the compiler was closed")

    def _give(self, worker: Worker) -> None:
        """Keep a worker for the next request with its options, unless it has done its share. Where there are too many
        the one goes that was asked least, of such the one idle longest: most sets of options are drawn once, that of
        preparing is always needed."""
        gone = worker if worker.asked >= _JOBS else None
        if gone is None:
            with self._lock:
                self._idle.append(worker)
                if len(self._idle) > max(_KEPT, 2 * self._count):
                    gone = min(self._idle[:-1], key=lambda idle: idle.asked)
                    self._idle.remove(gone)
        if gone is not None:  # giving back its memory takes longer than a build should
            self._ending.submit(gone.end)


@lru_cache(64)
def _source_key(*texts: Any) -> str:
    """What names a source, the same for all its configurations."""
    return content_id(*texts)


def _frontend_arch(target: Target) -> str:
    return target.arch if target.device == "cuda" else "sm_90"


def _if_checked(request: BuildRequest) -> tuple[str, ...]:
    """What sets a checked build apart in keys; BuildError where there is none."""
    if request.checked and request.target.device != "cpu":
        raise BuildError(f"a checked build runs on the CPU device only, not on {request.target.device}")
    return ("checked",) if request.checked else ()


def _check_options(options: Options) -> None:
    for name, _ in options:
        if name not in OPTION_NAMES:
            raise BuildError(f"there is no LLVM option {name!r} to set; choose from {', '.join(sorted(OPTION_NAMES))}")


def _built(request: BuildRequest, entry: Entry, stages: tuple[tuple[str, float], ...]) -> Built:
    header, image = entry
    binary = Binary(
        target=request.target,
        symbol=request.symbol,
        image=image,
        format=header["format"],
        facts=tuple(
            (str(name), int(value)) for name, value in {**dict(header["facts"]), **dict(header["code"])}.items()
        ),
        options=request.configuration.assembler if header["format"] == "ptx" else (),
    )
    return Built(binary=binary, module=str(header["module"]), stages=stages, globals=tuple(_globals(header)))


def _globals(header: dict[str, Any]) -> Iterator[Global]:
    for variable in header["globals"]:
        yield Global(**{**variable, "shape": tuple(variable["shape"])})


def _error(header: dict[str, Any]) -> BuildError:
    diagnostics = tuple(Diagnostic(**diagnostic) for diagnostic in header["diagnostics"])
    kind = Unsupported if header["error"] == "Unsupported" else BuildError
    return kind(str(header["message"]), diagnostics)
