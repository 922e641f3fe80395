"""An application's arrays in device memory, as handles that can be passed to a kernel.

Between launches the truth is the NumPy array on the host. Addresses are made up, the same in every run, so that
recording the same program twice gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from r3bench import store
from r3bench.errors import RecordError
from r3bench.model import Allocation, Pointer

MemoryKind = Literal["device", "managed", "host", "pool"]

FIRST_ADDRESS = 0x7F0000000000
ALIGN = 256
PAGE = 4096

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DeviceArray:
    """An array in device memory. ``values`` is what the host sees between launches, and may be written to.

    A slice or element of it is a pointer into it: ``array[100:]`` points to the element 100, ``array[1, 2]`` to that
    element. ``slots`` are the offsets of pointers in its bytes, ``held`` the arrays they led to at first.
    """

    name: str
    values: NDArray[Any]
    address: int
    dtype: str
    dims: tuple[str, ...] = ()
    memory: MemoryKind = "device"
    slots: tuple[int, ...] = ()
    held: tuple[DeviceArray, ...] = ()

    def __getitem__(self, key: Any) -> View:
        indices = key if isinstance(key, tuple) else (key,)
        sizes = self.values.shape[: len(indices)]
        if len(sizes) != len(indices) or not all(map(_leads_somewhere, indices, sizes)):
            raise RecordError(f"array '{self.name}' of shape {self.values.shape} has no place {key}: slice within it")
        starts = [i.indices(n)[0] if isinstance(i, slice) else i % n for i, n in zip(indices, sizes, strict=True)]
        return View(self, sum(start * step for start, step in zip(starts, self.values.strides, strict=False)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    @property
    def raw(self) -> Bytes:
        """The bytes of ``values``, shared with it."""
        return self.values.reshape(-1).view(np.uint8)

    def allocation(self) -> Allocation:
        """The noun that a unit holds for it."""
        return Allocation(
            name=self.name,
            address=self.address,
            nbytes=self.values.nbytes,
            dtype=self.dtype,
            shape=self.values.shape,
            dims=self.dims,
            align=ALIGN,
            memory=self.memory,
        )


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A pointer ``displacement`` bytes into an array."""

    array: DeviceArray
    displacement: int


Handle = DeviceArray | View


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A struct passed by value: its bytes (or a NumPy record), and handles whose addresses go into it, by offset."""

    value: bytes | np.void
    pointers: Mapping[int, Handle] = field(default_factory=dict)


def view_of(handle: Handle) -> View:
    """The handle as array and displacement."""
    return handle if isinstance(handle, View) else View(handle, 0)


def address_bytes(handle: Handle) -> bytes:
    """The address that the application sees, as it lies in memory."""
    view = view_of(handle)
    return (view.array.address + view.displacement).to_bytes(8, "little")


def pointer_to(handle: Handle, offset: int, holder: str = "") -> Pointer:
    """The entry of a unit's pointer table for a handle whose address lies at ``offset`` in ``holder``."""
    view = view_of(handle)
    return Pointer(offset=offset, allocation=view.array.name, displacement=view.displacement, holder=holder)


def _leads_somewhere(index: object, size: int) -> bool:
    return isinstance(index, slice) or (isinstance(index, (int, np.integer)) and -size <= int(index) < size)


class AddressSpace:
    """Hands out addresses, one after the other with a page between, and knows what lies at one."""

    def __init__(self) -> None:
        self._next = FIRST_ADDRESS
        self._arrays: WeakValueDictionary[int, DeviceArray] = WeakValueDictionary()

    def array(
        self,
        name: str,
        values: Any,
        dims: Sequence[str] = (),
        dtype: str | None = None,
        memory: MemoryKind = "device",
        pointers: Mapping[int, Handle] | None = None,
    ) -> DeviceArray:
        """A new array holding a copy of ``values``, which may be a list of handles; their addresses then."""
        handles = dict(pointers or {}) or _table(values)
        held = _copy(name, np.zeros(len(values), np.uint64) if handles and pointers is None else values, dtype)
        if dims and len(dims) != held.ndim:
            raise RecordError(f"array '{name}' has {held.ndim} dimensions, but {len(dims)} names were given")
        address = self._next
        self._next += -(-held.nbytes // PAGE) * PAGE + PAGE
        given = tuple(view_of(handle).array for handle in handles.values())
        made = DeviceArray(
            name, held, address, dtype or held.dtype.name, tuple(dims), memory, tuple(sorted(handles)), given
        )
        for offset, handle in handles.items():
            _put(made, offset, address_bytes(handle))
        self._arrays[address] = made
        return made

    def pointers_in(self, array: DeviceArray) -> dict[int, View]:
        """Where the pointers in an array lead now, by offset; null leads nowhere. A kernel may have changed them."""
        words = {offset: int.from_bytes(array.raw[offset : offset + 8].tobytes(), "little") for offset in array.slots}
        return {offset: self._find(word, array.name) for offset, word in words.items() if word}

    def reachable(self, handles: Sequence[Handle]) -> Iterator[DeviceArray]:
        """Every array that the handles lead to, through pointers in arrays too, in order of first appearance."""
        pending, seen = [view_of(handle).array for handle in handles], set[int]()
        while pending:
            array = pending.pop(0)
            if array.address not in seen:
                seen.add(array.address)
                yield array
                pending += [view.array for view in self.pointers_in(array).values()]

    def _find(self, address: int, holder: str) -> View:
        for array in self._arrays.values():
            if array.address <= address <= array.address + array.values.nbytes:
                return View(array, address - array.address)
        raise RecordError(f"array '{holder}' holds the pointer {address:#x}, which leads to no array of the session")


def _table(values: Any) -> dict[int, Handle]:
    """The handles of a list of handles and None, by offset."""
    if not isinstance(values, (list, tuple)) or not any(isinstance(value, Handle) for value in values):
        return {}
    if not all(value is None or isinstance(value, Handle) for value in values):
        raise RecordError("a list of arrays holds something else, too: pass arrays, slices of them and None only")
    return {8 * index: value for index, value in enumerate(values) if value is not None}


def _put(array: DeviceArray, offset: int, address: bytes) -> None:
    if not 0 <= offset <= array.values.nbytes - 8:
        raise RecordError(f"array '{array.name}' has {array.values.nbytes} bytes, and no pointer fits at {offset}")
    array.raw[offset : offset + 8] = np.frombuffer(address, np.uint8)


def _copy(name: str, values: Any, dtype: str | None) -> NDArray[Any]:
    try:
        held = np.array(values, dtype="uint16" if dtype == "bfloat16" else dtype, order="C", ndmin=1)
    except (TypeError, ValueError) as error:
        raise RecordError(f"array '{name}' cannot be made of these values: {error}") from error
    if held.dtype.kind == "V" and not held.dtype.hasobject:  # records are kept as bytes
        held = held.view(np.uint8).reshape(*held.shape, held.dtype.itemsize)
    held = held.astype(held.dtype.newbyteorder("="), copy=False)
    if held.dtype.name not in store.DTYPES:
        raise RecordError(f"array '{name}' has dtype {held.dtype}: convert it to one of {', '.join(store.DTYPES)}")
    return held
