"""The kernels and device variables of one source file, as an application loads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench import frontend, syntax
from r3bench.devices.cpu.available import available_bytes
from r3bench.errors import RecordError
from r3bench.model import Global
from r3bench.record.memory import Bytes
from r3bench.record.variables import Variable, read_variable, variable_names


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """The kernels of ``main`` and what it includes. Its variables keep their values from launch to launch.

    ``typed_ir`` is its IR with debug information, which names the types of parameters.
    """

    main: str
    texts: Mapping[str, str]
    flags: tuple[str, ...]
    typed_ir: str
    _variables: dict[str, tuple[Variable, NDArray[Any]]] = field(default_factory=dict)

    def variable(self, name: str) -> NDArray[Any]:
        """A ``__device__`` or ``__constant__`` variable as an array; what is written to it the next launch sees.

        ``name`` is its symbol or the name it was declared with.
        """
        return self._variable(self._only(name, variable_names(self.typed_ir), "variable", _declared))[1]

    def symbol(self, kernel: str) -> str:
        """The symbol of a kernel by its symbol, its plain name or its name as written (``scale<float, 4>``)."""
        found = frontend.kernels(self.typed_ir)
        names = {symbol: frontend.readable_name(self.typed_ir, symbol) for symbol in found}
        return self._only(kernel, found, "kernel", lambda s, k: k in (names[s], syntax.plain_name(names[s])))

    def noun(self, variable: Global) -> Global:
        """The noun of a variable, with its type; RecordError where its contents do not fit into memory."""
        if 2 * variable.nbytes > available_bytes():
            raise RecordError(
                f"device variable {variable.symbol} has {variable.nbytes} bytes, more than half of the memory that is "
                "free: record it on a larger machine"
            )
        typed = self._variable(variable.symbol)[0]
        return Global(
            symbol=variable.symbol,
            nbytes=len(typed.first),
            dtype=typed.dtype,
            shape=typed.shape,
            constant=variable.constant,
        )

    def raw(self, variables: Iterable[Global]) -> dict[str, Bytes]:
        """The bytes of variables by symbol, shared with :meth:`variable`."""
        return {v.symbol: self._variable(v.symbol)[1].reshape(-1).view(np.uint8) for v in variables}

    def _variable(self, symbol: str) -> tuple[Variable, NDArray[Any]]:
        if symbol not in self._variables:
            typed = read_variable(self.typed_ir, symbol)
            dtype = "uint16" if typed.dtype == "bfloat16" else typed.dtype
            self._variables[symbol] = typed, np.frombuffer(bytearray(typed.first), dtype).reshape(typed.shape)
        return self._variables[symbol]

    def _only(self, name: str, symbols: Iterable[str], what: str, fits: Callable[[str, str], bool]) -> str:
        found = [symbol for symbol in symbols if symbol == name] or [s for s in symbols if fits(s, name)]
        if len(found) != 1:
            there, remedy = ", ".join(found or symbols) or "none", "name one symbol"
            if not found and name.endswith(">"):
                remedy = f"a file that includes it may instantiate it: template __global__ decltype({name}) {name};"
            raise RecordError(f"{self.main} has {len(found) or 'no'} {what}s named {name} (there: {there}): {remedy}")
        return found[0]


def _declared(symbol: str, name: str) -> bool:
    """Whether a mangled symbol ends with this name."""
    return re.fullmatch(rf"_Z.*{len(name)}{re.escape(name)}E?", symbol) is not None
