"""Kernels in the worker: loaded, launched once or in graphs, timed by events."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from cuda.bindings import driver as cuda

from r3bench.devices.cuda.driver import CudaError, call, function_attribute, try_call
from r3bench.devices.cuda.service import Service
from r3bench.devices.cuda.units import Copy

_INVALID_VALUE = 1
_GRAPHS = 16
_FLOOR_LAUNCHES, _FLOOR_TRIES = 500, 9
_MAX_DYNAMIC = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
_NON_PORTABLE = "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED"
_CARVEOUT = "CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT"
_STACK = cuda.CUlimit.CU_LIMIT_STACK_SIZE
_PORTABLE_CLUSTER = 8
_LOG_BYTES = 8192
_PTX_VARIABLE = re.compile(rb"^\s*(?:\.(?:visible|weak|extern|common)\s+)*\.global\b", re.MULTILINE)


Options = Sequence[Sequence[str]]
_JIT = cuda.CUjit_option
# What the driver's compiler calls the options of ptxas that it has.
_JIT_OPTIONS: dict[tuple[str, str], tuple[Any, Any]] = {
    **{("opt-level", str(level)): (_JIT.CU_JIT_OPTIMIZATION_LEVEL, level) for level in range(4)},
    ("def-load-cache", "ca"): (_JIT.CU_JIT_CACHE_MODE, cuda.CUjit_cacheMode.CU_JIT_CACHE_OPTION_CA),
    ("def-load-cache", "cg"): (_JIT.CU_JIT_CACHE_MODE, cuda.CUjit_cacheMode.CU_JIT_CACHE_OPTION_CG),
}


class Refused(Exception):
    """The launch asks for something this kernel or the unit does not have; the text says what."""


@dataclass(slots=True)
class Loaded:
    """A kernel, its parameters' offsets and sizes, and the module's variables that were asked for by now."""

    image: bytes
    symbol: str
    options: Options
    module: Any
    function: Any
    parameters: tuple[tuple[int, int], ...]
    variables: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    allowed_shared_bytes: int = 48 << 10
    launched: bool = False

    @property
    def has_variables(self) -> bool:
        """Whether the code may keep something between launches; what cannot be told from the image counts as yes."""
        if self.image.startswith(b"\x7fELF"):
            return b".nv.global" in self.image
        return b".version" not in self.image or _PTX_VARIABLE.search(self.image) is not None

    @property
    def argument_bytes(self) -> int:
        return max((offset + size for offset, size in self.parameters), default=0)

    def variable(self, symbol: str) -> tuple[int, int] | None:
        """Address and size of a variable; None where the module has none of that name."""
        if symbol not in self.variables:
            found = try_call(cuda.cuModuleGetGlobal, self.module, symbol.encode())
            self.variables[symbol] = (int(found[0]), int(found[1])) if found else None
        return self.variables[symbol]

    def facts(self) -> dict[str, int]:
        names = {
            "registers": "NUM_REGS",
            "local_bytes": "LOCAL_SIZE_BYTES",
            "static_shared_bytes": "SHARED_SIZE_BYTES",
            "constant_bytes": "CONST_SIZE_BYTES",
            "max_threads": "MAX_THREADS_PER_BLOCK",
        }
        return {name: function_attribute(attribute, self.function) for name, attribute in names.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """A launch as the device sends it: the fields of a LaunchConfig."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    cooperative: bool
    cluster: tuple[int, int, int] | None
    stack_bytes: int | None
    carveout: int | None

    @classmethod
    def of(cls, sent: Sequence[Any]) -> Shape:
        fields: list[Any] = [tuple(each) if isinstance(each, list) else each for each in sent]
        return cls(*fields)


@dataclass(frozen=True, slots=True)
class Graph:
    """Launches that can be started again and again, and in them the nodes that record two events."""

    made_of: Any
    started: Any
    begin: Any
    end: Any

    def start(self, stream: Any, events: tuple[Any, Any]) -> None:
        """What was started before records the events that it was started with."""
        for node, event in zip((self.begin, self.end), events, strict=True):
            call(cuda.cuGraphExecEventRecordNodeSetEvent, self.started, node, event)
        call(cuda.cuGraphLaunch, self.started, stream)

    def destroy(self) -> None:
        call(cuda.cuGraphExecDestroy, self.started)
        call(cuda.cuGraphDestroy, self.made_of)


class Launches:
    """The kernels of one device, on one stream.

    A window is a graph that holds its own two events, so its time has nothing in it of how long the host takes to start
    it. Its first launch comes before the first event: the others then run without pause, one after the other.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._stream = service, service.stream
        self._kernels: dict[int, Loaded] = {}
        self._events: list[tuple[Any, Any]] = []
        self._graphs: dict[Any, Graph] = {}
        self._packed: dict[Any, tuple[Any, Any]] = {}
        self._floors: tuple[float, float] | None = None

    # -- kernels --

    def load(self, identity: int, image: bytes, symbol: str, options: Options = ()) -> dict[str, int]:
        """What the driver says of the kernel: registers, spills, shared memory; ``options`` are for PTX."""
        module = _loaded(image, options)
        try:
            function = call(cuda.cuModuleGetFunction, module, symbol.encode())
            loaded = Loaded(image, symbol, options, module, function, tuple(_parameters(function)))
            self._kernels[identity] = loaded
            return loaded.facts()
        except CudaError:
            call(cuda.cuModuleUnload, module)
            raise

    def _renew(self, identity: int) -> None:
        """Load a module again that has variables of its own, so that no launch finds what another left in them."""
        kernel = self._kernels[identity]
        if kernel.launched and kernel.has_variables:
            self.unload(identity)
            self.load(identity, kernel.image, kernel.symbol, kernel.options)

    def unload(self, identity: int) -> None:
        """Give a module back; where none was loaded under this number, nothing is to be done."""
        for key in [key for key in self._graphs if key[0] == identity]:
            self._graphs.pop(key).destroy()
        if (kernel := self._kernels.pop(identity, None)) is not None:
            call(cuda.cuModuleUnload, kernel.module)

    def forget(self) -> None:
        """Graphs and arguments hold addresses: they go when what is there goes."""
        for graph in self._graphs.values():
            graph.destroy()
        self._graphs.clear()
        self._packed.clear()

    # -- launching --

    def once(self, identity: int, copy: Copy, shape: Shape) -> None:
        """Launch and wait, with shared memory poisoned and the module's own variables as they were loaded."""
        self._renew(identity)
        kernel = self._ready(identity, [copy], shape)
        self._service.poison_shared_memory()
        self._move_variables(kernel, copy, inward=True)
        self._launch(kernel, copy, shape)
        self._move_variables(kernel, copy, inward=False)
        call(cuda.cuStreamSynchronize, self._stream)

    def windows(
        self,
        identity: int,
        copies: Sequence[Copy],
        key: Any,
        shape: Shape,
        written: Sequence[str],
        times: int,
        stops: Sequence[tuple[int, float]],
        prepare: Callable[[], object],
        renew: Callable[[], object] | None = None,
    ) -> list[float]:
        """So many times: ``prepare``, then launch once on each copy, in one graph; nanoseconds for all of them. No more
        after one of ``stops`` if each took longer than it says: only there the host waits. Where ``renew`` is all that
        is to be done from the second on, it is part of the graph: to start that is all that a window takes of the host.

        The first launch counts as the mean of the others; a launch that is alone, less what its being alone costs.
        Variables that the recorded kernel writes are carried between launches within the graph, others around it.
        """
        kernel = self._ready(identity, copies, shape)
        carried = [symbol for symbol in copies[0].variables if symbol in written and kernel.variable(symbol)]
        launches = [partial(self._step, kernel, copy, shape, carried) for copy in copies]

        def begin(how: Callable[[], object]) -> None:
            how()
            self._move_variables(kernel, copies[0], inward=True)

        def prepared() -> Graph:
            begin(prepare)  # a graph with copies in it can be made only when memory is open
            return self._graph((identity, key, shape), launches)

        if renew is None:
            found = self._timed_until((*stops, (times, 0.0)), len(copies), prepared)
        else:
            prepare()
            graph = self._captured(launches, partial(begin, renew))
            try:
                found = self._timed_until((*stops, (times, 0.0)), len(copies), lambda: graph)
            finally:
                graph.destroy()  # the tables that are in it do not stay where they are
        if copies[0].variables and not carried:
            self._move_variables(kernel, copies[-1], inward=False)
            call(cuda.cuStreamSynchronize, self._stream)
        return found

    def _timed_until(
        self, stops: Sequence[tuple[int, float]], launches: int, graph: Callable[[], Graph]
    ) -> list[float]:
        """Nanoseconds of windows, up to the first of the stops that each of them took longer than."""
        found: list[float] = []
        for enough, longest in stops:
            pairs = self._pairs(enough)[len(found) :]
            for events in pairs:
                graph().start(self._stream, events)
            call(cuda.cuStreamSynchronize, self._stream)
            found += [self._whole(_elapsed(*events), launches) for events in pairs]
            if min(found) > longest:
                break
        return found

    def _whole(self, elapsed: float, launches: int) -> float:
        """Nanoseconds of a window, from those between its events."""
        if launches == 1:
            launch, alone = self.floors()
            return elapsed - (alone - launch)
        return elapsed * launches / (launches - 1)

    def _graph(self, key: Any, launches: Sequence[Callable[[], None]]) -> Graph:
        """The graph of a key, made of launches where there is none; the one that was made first gives way."""
        if key not in self._graphs:
            if len(self._graphs) >= _GRAPHS:
                self._graphs.pop(next(iter(self._graphs))).destroy()
            self._graphs[key] = self._captured(launches)
        return self._graphs[key]

    def _pairs(self, count: int) -> Sequence[tuple[Any, Any]]:
        """Events for the begin and the end of so many windows, the same each time."""
        while len(self._events) < count:
            self._events.append((call(cuda.cuEventCreate, 0), call(cuda.cuEventCreate, 0)))
        return self._events[:count]

    def floors(self) -> tuple[float, float]:
        """Nanoseconds that an empty kernel takes among others in a window, and alone: the least of some tries."""
        if self._floors is None:
            many, one = (self._shortest([self._service.nothing] * count) for count in (_FLOOR_LAUNCHES, 1))
            self._floors = many / (_FLOOR_LAUNCHES - 1), one
        return self._floors

    def _shortest(self, launches: Sequence[Callable[[], None]]) -> float:
        graph, (events,) = self._captured(launches), self._pairs(1)
        try:
            return min(self._timed(graph, events) for _ in range(_FLOOR_TRIES))
        finally:
            graph.destroy()

    def occupancy(self, identity: int, shape: Shape) -> int:
        """Blocks that fit on a multiprocessor at once."""
        threads = shape.block[0] * shape.block[1] * shape.block[2]
        function = self._kernels[identity].function
        found = try_call(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor, function, threads, shape.shared_bytes)
        return int(found or 0)

    def _step(self, kernel: Loaded, copy: Copy, shape: Shape, carried: Sequence[str]) -> None:
        self._move(kernel, copy, carried, inward=True)
        self._launch(kernel, copy, shape)
        self._move(kernel, copy, carried, inward=False)

    def _captured(self, launches: Sequence[Callable[[], None]], before: Callable[[], object] = lambda: None) -> Graph:
        """A graph of launches, with an event after the first of several and one after the last."""
        ((begin, end),) = self._pairs(1)
        with self._capturing() as graphs:
            before()
            for number, launch in enumerate(launches):
                if number == min(1, len(launches) - 1):
                    first = self._record(begin)
                launch()
            last = self._record(end)
        (graph,) = graphs
        return Graph(graph, call(cuda.cuGraphInstantiate, graph, 0), first, last)

    def _record(self, event: Any) -> Any:
        """Within a graph, for those outside of it to read: the node that does."""
        call(cuda.cuEventRecordWithFlags, event, self._stream, int(cuda.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL))
        (node,) = call(cuda.cuStreamGetCaptureInfo, self._stream)[3]  # what comes next waits for it alone
        return node

    @contextmanager
    def _capturing(self) -> Iterator[list[Any]]:
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call(cuda.cuStreamBeginCapture, self._stream, mode)
        graphs: list[Any] = []
        try:
            yield graphs
        except CudaError:
            try_call(cuda.cuStreamEndCapture, self._stream)
            raise
        graphs.append(call(cuda.cuStreamEndCapture, self._stream))

    def _timed(self, graph: Graph, events: tuple[Any, Any]) -> float:
        graph.start(self._stream, events)
        call(cuda.cuStreamSynchronize, self._stream)
        return _elapsed(*events)

    def _ready(self, identity: int, copies: Sequence[Copy], shape: Shape) -> Loaded:
        """The kernel, made ready for this shape; Refused if it does not take this unit's arguments."""
        kernel = self._kernels[identity]
        given = len(copies[0].arguments)
        if kernel.argument_bytes != given:
            raise Refused(f"takes {kernel.argument_bytes} bytes of arguments, but the unit has {given}")
        for symbol in copies[0].variables:
            found = kernel.variable(symbol)
            if found and found[1] > copies[0].sizes[symbol]:
                sizes = f"{found[1]} bytes, but {copies[0].sizes[symbol]} were recorded"
                raise Refused(f"has a device variable {symbol} of {sizes}")
        kernel.launched = True
        if shape.shared_bytes > kernel.allowed_shared_bytes:
            _allow(kernel, _MAX_DYNAMIC, shape.shared_bytes)
            kernel.allowed_shared_bytes = shape.shared_bytes
        if shape.cluster and shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > _PORTABLE_CLUSTER:
            _allow(kernel, _NON_PORTABLE, 1)
        if shape.carveout is not None:
            _allow(kernel, _CARVEOUT, shape.carveout)
        if shape.stack_bytes and shape.stack_bytes > call(cuda.cuCtxGetLimit, _STACK):
            call(cuda.cuCtxSetLimit, _STACK, shape.stack_bytes)
        return kernel

    def _launch(self, kernel: Loaded, copy: Copy, shape: Shape) -> None:
        parameters = ctypes.addressof(self._pointers(copy.arguments, kernel.parameters)[1])
        if shape.cooperative or shape.cluster:
            call(cuda.cuLaunchKernelEx, self._configuration(shape), kernel.function, parameters, 0)
            return
        size = (*shape.grid, *shape.block, shape.shared_bytes)
        call(cuda.cuLaunchKernel, kernel.function, *size, self._stream, parameters, 0)

    def _pointers(self, arguments: bytes, parameters: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
        """Arguments, and pointers to each of them: the same for all that a search launches on a copy."""
        key = arguments, parameters
        if key not in self._packed:
            held = ctypes.create_string_buffer(arguments, max(1, len(arguments)))
            start = ctypes.addressof(held)
            pointers = (ctypes.c_void_p * max(1, len(parameters)))(*(start + at for at, _ in parameters))
            self._packed[key] = held, pointers
        return self._packed[key]

    def _configuration(self, shape: Shape) -> Any:
        made = cuda.CUlaunchConfig()
        made.gridDimX, made.gridDimY, made.gridDimZ = shape.grid
        made.blockDimX, made.blockDimY, made.blockDimZ = shape.block
        made.sharedMemBytes, made.hStream = shape.shared_bytes, self._stream
        attributes = []
        if shape.cooperative:
            attributes.append(_launch_attribute("COOPERATIVE"))
            attributes[-1].value.cooperative = 1
        if shape.cluster:
            attributes.append(_launch_attribute("CLUSTER_DIMENSION"))
            dimension = attributes[-1].value.clusterDim
            dimension.x, dimension.y, dimension.z = shape.cluster
        made.attrs, made.numAttrs = attributes, len(attributes)
        return made

    # -- variables of the module --

    def _move_variables(self, kernel: Loaded, copy: Copy, *, inward: bool) -> None:
        self._move(kernel, copy, copy.variables, inward=inward)

    def _move(self, kernel: Loaded, copy: Copy, symbols: Sequence[str], *, inward: bool) -> None:
        """Copy variables from the copy's memory into the module, or back."""
        for symbol in symbols:
            found = kernel.variable(symbol)
            if found is None or not found[1]:
                continue
            address, nbytes = found
            to, source = (address, copy.addresses[symbol]) if inward else (copy.addresses[symbol], address)
            call(cuda.cuMemcpyDtoDAsync, to, source, nbytes, self._stream)


def _loaded(image: bytes, options: Options) -> Any:
    """The module of an image; what the driver's compiler says against it is in the error."""
    log = bytearray(_LOG_BYTES)
    given = {_JIT.CU_JIT_ERROR_LOG_BUFFER: log, _JIT.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(log)}
    given |= dict(_JIT_OPTIONS[name, value] for name, value in options)
    try:
        return call(cuda.cuModuleLoadDataEx, image, len(given), list(given), list(given.values()))
    except CudaError as error:
        said = " ".join(log.partition(b"\0")[0].decode("utf-8", "replace").split())
        raise CudaError(error.code, error.name, f"{error.call}: {said}" if said else error.call) from None


def _elapsed(begin: Any, end: Any) -> float:
    """Nanoseconds from one event to the other."""
    return float(call(cuda.cuEventElapsedTime, begin, end)) * 1e6


def _parameters(function: Any) -> Iterator[tuple[int, int]]:
    """Offset and size of every parameter; the driver says where they end by refusing the next number."""
    for index in count():
        try:
            offset, size = call(cuda.cuFuncGetParamInfo, function, index)
        except CudaError as error:
            if error.code != _INVALID_VALUE:
                raise
            return
        yield int(offset), int(size)


def _allow(kernel: Loaded, attribute: str, value: int) -> None:
    call(cuda.cuFuncSetAttribute, kernel.function, getattr(cuda.CUfunction_attribute, attribute), value)


def _launch_attribute(name: str) -> Any:
    made = cuda.CUlaunchAttribute()
    made.id = getattr(cuda.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    return made
