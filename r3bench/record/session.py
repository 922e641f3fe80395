"""Record launches from a Python program: run its kernels on any device and keep chosen launches as captures."""

from __future__ import annotations

import platform
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from r3bench import frontend, remix, store, syntax, toolkit, worktree
from r3bench.devices import Device, Kernel, open_device
from r3bench.errors import BuildError, CandidateFailure, RecordError, Unsupported
from r3bench.model import Binary, Capture, Dim3, Global, LaunchConfig, ReplayUnit, Source, Variant
from r3bench.record.arguments import Arguments, pack
from r3bench.record.images import Maker, cubin
from r3bench.record.memory import AddressSpace, Bytes, DeviceArray, Handle, MemoryKind, pointer_to
from r3bench.record.module import Module
from r3bench.store import UnitContents
from r3bench.store.files import PathLike
from r3bench.toolchain import Built, Compiler

# Of a source that asks for what the prelude does not have.
_OWN_HEADERS = (
    f'; or compile it with CUDA\'s own headers: flags=["{toolkit.FLAG}"], a CUDA toolkit and '
    "pip install 'r3bench[toolkit]'"
)


class VacuousUnit(UserWarning):
    """A recorded launch changed nothing in memory, so that any kernel would pass its test."""


class Builder(Protocol):
    """What recording needs of a compiler; :class:`r3bench.toolchain.Compiler` is one."""

    def submit(self, request: remix.BuildRequest) -> Future[Built]: ...


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A kernel of a module, ready on the session's device; ``capture`` holds all but its units."""

    module: Module
    capture: Capture
    kernel: Kernel
    variables: tuple[Global, ...]
    image: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """A launch to keep; ``held_out`` None means all but the first of its capture."""

    occurrence: int
    held_out: bool | None
    label: str


@dataclass(slots=True)
class _Recorded:
    """The launches of one kernel: how many there were, which to keep, and those that were kept by occurrence."""

    kernel: str
    launches: int
    choices: list[_Choice]
    units: dict[int, tuple[ReplayUnit, UnitContents]]
    loaded: _Loaded | None = None

    @property
    def wanted(self) -> bool:
        """Whether the next launch is to be kept."""
        return any(choice.occurrence == self.launches for choice in self.choices)


class Session:
    """One run of an application whose kernels are launched from Python.

    ``root`` is the folder against which its source files are named. A capture names them so, and ``root`` itself
    relative to ``top``, where that is not the same folder: the working tree's kernel is looked for there. ``top`` is
    the git checkout that ``root`` lies in, or ``root`` itself where it lies in none. Nothing is recorded but what
    :meth:`capture` chose before it was launched::

        with Session("demo", ".") as session:
            module = session.module("kernels/demo/kernels.cu")
            state = session.array("state", np.zeros((4, 100)), dims=("variable", "x"))
            session.capture("step", occurrences=(0, 30))
            for _ in range(31):
                session.launch(module, "step", (1, 1, 1), (128, 1, 1), [state, 100])
            session.save("captures/demo")

    With ``image="nvcc"`` or ``"nvrtc"`` a CUDA device runs what that compiler of NVIDIA's makes of the source, as an
    application would, and the captures hold that image: it is then the baseline. Everything that cannot be recorded is
    a RecordError that names the kernel.
    """

    def __init__(
        self,
        application: str,
        root: PathLike = ".",
        device: str | Device = "auto",
        *,
        compiler: Builder | None = None,
        top: PathLike | None = None,
        command: Sequence[str] = (),
        recorded_on: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        image: Maker | None = None,
    ) -> None:
        self._application, self._command, self._timeout_s = application, tuple(command), timeout_s
        self._folder = Path(root).resolve()
        self._root = _relative(self._folder, Path(top or worktree.checkout(self._folder) or root).resolve())
        with ExitStack() as opened:
            self._device = opened.enter_context(closing(open_device(device))) if isinstance(device, str) else device
            self._compiler = compiler or opened.enter_context(Compiler())
            self._closing = opened.pop_all()
        self._recorded_on = tuple(sorted((_here(self._device) if recorded_on is None else recorded_on).items()))
        self._image = image
        self._images: dict[Module, bytes] = {}
        self._addresses = AddressSpace()
        self._modules: dict[tuple[str, tuple[str, ...]], Module] = {}
        self._loaded: dict[tuple[Module, str], _Loaded] = {}
        self._recorded: dict[str, _Recorded] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the device and the compiler, where the session opened them."""
        self._closing.close()

    # -- what the application does ------------------------------------------------------------------------------

    def module(self, main: str, flags: Sequence[str] = ()) -> Module:
        """The kernels of ``main``, a path below the application's root; files it includes in quotes come along.

        As long as their texts stay the same it is the same module, whose variables keep their values.
        """
        try:
            texts = worktree.collect(worktree.Folder(self._folder), main)
        except FileNotFoundError as error:
            raise RecordError(f"{self._folder / main} is not there: check the path") from error
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"{self._folder / main} cannot be read as UTF-8 text ({error})") from error
        key = (main, tuple(flags))
        if key not in self._modules or self._modules[key].texts != texts:
            self._modules[key] = self._compile(main, texts, tuple(flags))
        return self._modules[key]

    def _compile(self, main: str, texts: dict[str, str], flags: tuple[str, ...]) -> Module:
        try:
            return Module(main, texts, flags, frontend.compile_ir(texts, main, flags=flags, debug=True))
        except BuildError as failure:
            more = _OWN_HEADERS if isinstance(failure, Unsupported) and toolkit.FLAG not in flags else ""
            raise RecordError(f"{self._folder / main} does not compile: {failure}{more}") from failure

    def array(
        self,
        name: str,
        values: ArrayLike | Sequence[Handle],
        dims: Sequence[str] = (),
        *,
        dtype: str | None = None,
        memory: MemoryKind = "device",
        pointers: Mapping[int, Handle] | None = None,
    ) -> DeviceArray:
        """An array in device memory with a copy of ``values``; its ``values`` are current after every launch.

        A list of arrays, slices of them and None makes an array of pointers; ``pointers`` puts such into any array,
        at offsets in bytes. ``dtype`` converts; ``"bfloat16"`` takes the bits as uint16. ``dims`` names the dimensions;
        each has one size among the arrays of a launch. Names of arrays must differ within one launch only.
        """
        return self._addresses.array(name, values, dims, dtype, memory, pointers)

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Launch a kernel (its name as written, or its symbol) and wait; arrays and variables then hold what it left.

        Arguments are arrays, slices of them or None for pointers; numbers for scalars, which must fit; bytes, NumPy
        records or :class:`Struct` for structs.
        """
        loaded, recorded = self._load(module, kernel), self._launches_of(kernel)
        packed = pack(kernel, loaded.capture.parameters, arguments)
        config = LaunchConfig(grid=_dim3(grid), block=_dim3(block), shared_bytes=int(shared_bytes))
        arrays = tuple(self._addresses.reachable(packed.handles))
        live = {array.name: array.raw for array in arrays} | module.raw(loaded.variables)
        if len(live) != len(arrays) + len(loaded.variables):
            raise RecordError(f"two arrays or variables of a launch of {kernel} share a name: give each its own")
        before = {name: data.copy() for name, data in live.items()} if recorded.wanted else live
        unit = self._unit(loaded, config, packed, arrays)
        after = self._run(unit, loaded, before)
        if recorded.wanted:
            self._keep(recorded, loaded, unit, before, after)
        recorded.launches += 1
        for name, data in live.items():
            data[:] = after[name]

    # -- what is kept of it -------------------------------------------------------------------------------------

    def capture(
        self, kernel: str, occurrences: Iterable[int] = (0,), *, held_out: bool | None = None, label: str = ""
    ) -> None:
        """Keep these launches of a kernel, counted from 0 over the session, in this order.

        The first launch kept is for the search and the others are held out, unless ``held_out`` says otherwise.
        Choose before they are launched.
        """
        recorded = self._launches_of(kernel)
        for occurrence in occurrences:
            if occurrence < recorded.launches:
                raise RecordError(f"launch {occurrence} of kernel {kernel} is over: choose before launching")
            if occurrence not in {choice.occurrence for choice in recorded.choices}:
                recorded.choices.append(_Choice(int(occurrence), held_out, label))

    def save(self, directory: PathLike, *, add: bool = False, packed: bool = False) -> tuple[Capture, ...]:
        """Write ``<directory>/<kernel>.zarr`` for each kernel with chosen launches (``.zarr.zip`` if ``packed``).

        ``add`` appends to a capture that is there (another grid size, another session) instead of replacing it.
        """
        chosen = [recorded for recorded in self._recorded.values() if recorded.choices]
        if not chosen:
            raise RecordError(
                f"nothing of {self._application} was chosen to be recorded: call capture() before launch()"
            )
        found = [(recorded, _complete(recorded)) for recorded in chosen]
        suffix = ".zarr.zip" if packed else ".zarr"
        return tuple(
            _save(Path(directory, re.sub(r"[^\w.-]+", "_", recorded.kernel) + suffix), recorded, loaded, add)
            for recorded, loaded in found
        )

    # -- inside -------------------------------------------------------------------------------------------------

    def _launches_of(self, kernel: str) -> _Recorded:
        return self._recorded.setdefault(kernel, _Recorded(kernel, 0, [], {}))

    def _load(self, module: Module, kernel: str) -> _Loaded:
        if (module, kernel) not in self._loaded:
            try:
                self._loaded[module, kernel] = self._build(module, kernel)
            except CandidateFailure as failure:
                raise RecordError(f"kernel {kernel} cannot be built for {self._device.name}: {failure}") from failure
        return self._loaded[module, kernel]

    def _build(self, module: Module, kernel: str) -> _Loaded:
        capture = self._capture(module, kernel)
        no_unit = ReplayUnit(
            index=0, launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)), arguments=b"", pointers=(), allocations=()
        )
        request = remix.build_request(
            replace(capture, parameters=()), module.texts, no_unit, Variant(), self._device.target
        )
        built = self._compiler.submit(request).result()
        variables = tuple(module.noun(variable) for variable in built.globals)
        if self._image is None:
            return _Loaded(module, capture, self._device.load(built.binary), variables)
        image = self._image_of(module, self._image)
        binary = Binary(target=self._device.target, symbol=capture.symbol, image=image, format="cubin")
        with_image = replace(capture, image_format="cubin")
        return _Loaded(module, with_image, self._device.load(binary), variables, image)

    def _image_of(self, module: Module, maker: Maker) -> bytes:
        if self._device.target.device != "cuda":
            raise RecordError(f"device {self._device.name} runs no image of {maker}'s: record on a CUDA device")
        if module not in self._images:
            self._images[module] = cubin(maker, module.texts, module.main, module.flags, self._device.target.arch)
        return self._images[module]

    def _capture(self, module: Module, kernel: str) -> Capture:
        symbol = module.symbol(kernel)
        name = frontend.readable_name(module.typed_ir, symbol)
        return Capture(
            path=f"the session of {self._application}",
            application=self._application,
            symbol=symbol,
            demangled=name,
            parameters=frontend.parameters(module.typed_ir, symbol),
            source=Source(
                root=self._root,
                main=module.main,
                span=syntax.span_of(module.texts[module.main], syntax.scoped_name(name)),
                files=tuple((path, store.text_sha256(text)) for path, text in sorted(module.texts.items())),
                flags=module.flags,
            ),
            units=(),
            command=self._command,
            recorded_on=self._recorded_on,
        )

    def _unit(
        self, loaded: _Loaded, launch: LaunchConfig, packed: Arguments, arrays: Sequence[DeviceArray]
    ) -> ReplayUnit:
        inside = [
            pointer_to(view, offset, array.name)
            for array in arrays
            for offset, view in self._addresses.pointers_in(array).items()
        ]
        return ReplayUnit(
            index=0,
            launch=launch,
            arguments=packed.block,
            pointers=(*packed.pointers, *inside),
            allocations=tuple(array.allocation() for array in arrays),
            globals=loaded.variables,
        )

    def _run(self, unit: ReplayUnit, loaded: _Loaded, before: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """Launch on the device; the memory it leaves."""
        try:
            memory = self._device.allocate(unit, before)
            try:
                self._device.launch(loaded.kernel, memory, unit.launch, timeout_s=self._timeout_s)
                return {name: np.array(data) for name, data in self._device.download(memory).items()}
            finally:
                self._device.release(memory)
        except CandidateFailure as failure:
            raise RecordError(
                f"kernel {loaded.capture.demangled} failed while it ran for recording: {failure}"
            ) from failure

    def _keep(
        self,
        recorded: _Recorded,
        loaded: _Loaded,
        unit: ReplayUnit,
        before: Mapping[str, Bytes],
        after: Mapping[str, Bytes],
    ) -> None:
        if recorded.loaded is not None and recorded.loaded.capture != loaded.capture:
            raise RecordError(f"kernel {recorded.kernel} was recorded from another source: use one session for each")
        written = tuple(name for name in before if not np.array_equal(before[name], after[name]))
        if not written:
            warnings.warn(
                f"launch {recorded.launches} of kernel {recorded.kernel} changed nothing, so that any kernel would "
                "match it: record another launch",
                VacuousUnit,
                stacklevel=3,
            )
        recorded.loaded = loaded
        kept = replace(unit, written=written, occurrence=recorded.launches)
        recorded.units[recorded.launches] = kept, UnitContents(dict(before), {name: after[name] for name in written})


def _complete(recorded: _Recorded) -> _Loaded:
    """The kernel whose chosen launches were all recorded."""
    missing = [choice.occurrence for choice in recorded.choices if choice.occurrence not in recorded.units]
    if missing or recorded.loaded is None:
        raise RecordError(
            f"kernel {recorded.kernel} was launched {recorded.launches} times, so launch {missing[0]} was not recorded"
        )
    return recorded.loaded


def _save(path: Path, recorded: _Recorded, loaded: _Loaded, add: bool) -> Capture:
    adding = add and path.exists()
    kept = [recorded.units[choice.occurrence] for choice in recorded.choices]
    units = tuple(
        replace(
            unit,
            index=index,
            label=choice.label,
            held_out=(adding or index > 0) if choice.held_out is None else choice.held_out,
        )
        for index, ((unit, _), choice) in enumerate(zip(kept, recorded.choices, strict=True))
    )
    capture, module, contents = replace(loaded.capture, units=units), loaded.module, [held for _, held in kept]
    if adding:
        return store.append(path, capture, contents)
    ir = frontend.compile_ir(module.texts, module.main, flags=module.flags)
    return store.write(path, capture, contents, module.texts, ir=ir, image=loaded.image)


def _relative(folder: Path, top: Path) -> str:
    if not folder.is_relative_to(top):
        raise RecordError(f"{folder} does not lie below {top}: name the repository that holds the sources")
    relative = folder.relative_to(top).as_posix()
    return "" if relative == "." else relative


def _here(device: Device) -> dict[str, str]:
    """What a reader of a capture wants to know of where it was recorded; no date, so that recording is repeatable."""
    found = {"device": device.name, "arch": device.target.arch, "os": f"{platform.system()} {platform.machine()}"}
    try:
        return {**found, "r3bench": version("r3bench")}
    except PackageNotFoundError:  # run from a source tree
        return found


def _dim3(sizes: int | Sequence[int]) -> Dim3:
    given = (sizes,) if isinstance(sizes, int) else tuple(int(size) for size in sizes)
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise RecordError(f"grid or block {given} is not one to three positive numbers: correct the launch")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
