"""A random program as a kernel: its text, its arguments, and by interpretation the memory it must leave behind."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tests.fuzz.control import Function, Outlined
from tests.fuzz.expressions import C_TYPES, DTYPES, Array, clamp
from tests.fuzz.machine import Machine
from tests.fuzz.statements import Body, Text

VARIABLES = {
    "v0": "u", "v1": "u", "w": "u", "i0": "i", "l0": "l", "f0": "f", "d0": "d", "p.a": "u", "p.d": "d",
}  # fmt: skip
"""A thread's variables; those of ``p`` are a struct passed by value. ``w`` is equal for all threads of a block."""
PRIVATE = {"a": ("u", 3), "g": ("d", 2), "mine": ("u", 4), "p.c": ("u", 3)}
"""A thread's own arrays, as (type, size); ``mine`` is global memory, ``p.c`` is within the struct."""
COUNTERS = 8
TOTALS = 50
IN = 256
_STRUCT = struct.Struct("<Ixxxxd3I4x")
STRUCT_FIELDS = "unsigned a; double d; unsigned c[3];"
SHARED = [("unsigned*", "s"), ("unsigned*", "acc"), ("unsigned long long*", "dyn")]
UNTOUCHED = 0xDEADBEEF


@dataclass(frozen=True)
class Shape:
    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    @property
    def count(self) -> int:
        return self.threads * self.blocks


@dataclass
class Program:
    """``strided`` says how the threads' own elements in global memory lie; ``choice`` chooses how it is compiled."""

    shape: Shape
    body: Body
    functions: list[Function] = field(default_factory=list)
    outlined: list[Outlined] = field(default_factory=list)
    waits: bool = True
    strided: bool = False
    choice: int = 0
    name: str = "k"

    # -- as CUDA C++ ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        for outlined in self.outlined:
            outlined.parameters = self._parameters()
        text = Text()
        for statement in self.body:
            statement.write(text, "~0u")
        definitions = [each.definition() for each in self.functions] + [each.definition() for each in self.outlined]
        return "\n".join(
            [
                f"namespace n{self.name} {{",
                *definitions,
                self._head(),
                *text.lines,
                self._end(),
                "}",
                f"}}  // {self.name}",
            ]
        )

    def _parameters(self) -> list[tuple[str, str]]:
        plain = [(f"{C_TYPES[kind]}&", n) for n, kind in VARIABLES.items() if not n.startswith("p.")]
        arrays = [("unsigned*", "a"), ("double*", "g"), ("Mine", "mine"), ("P&", "p"), ("const unsigned*", "in")]
        words = [("unsigned", n) for n in ("t", "b", "n", "lane", "threads")]
        return [*plain, *arrays, ("unsigned*", "total"), *words, *(SHARED if self.waits else [])]

    def _head(self) -> str:
        x, y, z = (*self.shape.block, 1, 1)[:3]
        threads = "blockDim.x * blockDim.y * blockDim.z" if self.strided else f"{self.shape.threads}"
        mine = "{own + i, gridDim.x * gridDim.y * threads}" if self.strided else "{own + 4 * i, 1}"
        lines = [
            f'extern "C" __global__ void {self.name}(const unsigned* in, unsigned* own, unsigned* out,',
            "    unsigned* total, P p, unsigned n) {",
            f"  // block of {x} x {y} x {z}",
            *([f"  __shared__ unsigned s[{self.shape.threads}], acc[{COUNTERS}];"] if self.waits else []),
            *(["  extern __shared__ unsigned long long dyn[];"] if self.waits else []),
            f"  const unsigned threads = {threads};",
            "  unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z), lane = t & 31u;",
            "  unsigned b = blockIdx.x + gridDim.x * blockIdx.y, i = b * threads + t;",
            f"  Mine mine{mine};",
            "  unsigned v0 = in[t & 255u], v1 = in[i + 1u & 255u], w = n + b;",
            "  int i0 = (int)in[i + 2u & 255u];",
            "  unsigned long long l0 = in[i + 3u & 255u] * 0x100000001ull;",
            "  float f0 = (float)(in[i + 4u & 255u] & 1023u); double d0 = in[i + 5u & 255u] / 1024.0;",
            "  unsigned a[3]; double g[2] = {f0, 2.0};",
            "  for (unsigned k = 0; k < 3; ++k) a[k] = in[t + k & 255u];",
            *(["  s[t] = v0; dyn[t] = l0;"] if self.waits else []),
            *([f"  for (unsigned k = t; k < {COUNTERS}; k += threads) acc[k] = k;"] if self.waits else []),
            *(["  __syncthreads();"] if self.waits else []),
        ]
        return "\n".join(lines)

    def _end(self) -> str:
        results = [_word(kind, n) for n, kind in VARIABLES.items()] + [f"a[{k}]" for k in range(3)]
        results += [_word("d", f"g[{k}]") for k in range(2)] + [f"p.c[{k}]" for k in range(3)]
        # Behind a barrier all this is in one region only, which compiles faster.
        barrier = ["  __syncthreads();"] if self.waits else []
        stride = "gridDim.x * gridDim.y * threads"
        place = f"out[i + {{}}u * {stride}]" if self.strided else f"out[{len(results)}u * i + {{}}u]"
        return "\n".join([*barrier, *(f"  {place.format(k)} = {value};" for k, value in enumerate(results))])

    # -- by interpretation ------------------------------------------------------------------------------------------

    def expected(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """What the memory named as in ``inputs`` must hold after the launch."""
        machine = self._machine(inputs)
        everyone = np.ones(machine.count, np.bool_)
        machine.run(self.body, everyone)
        words = [_word_of(kind, machine.variables[n]) for n, kind in VARIABLES.items()]
        words += [machine.private["a"][:, k] for k in range(3)]
        words += [_word_of("d", machine.private["g"][:, k]) for k in range(2)]
        words += [machine.private["p.c"][:, k] for k in range(3)]
        out = np.stack(words, 0 if self.strided else 1).astype(np.uint32)
        left = machine.left if self.strided else machine.left[:, None]
        own = machine.private["mine"]
        return {
            "in": inputs["in"],
            "own": np.ascontiguousarray(own.T if self.strided else own).reshape(-1),
            "out": np.where(left, np.uint32(UNTOUCHED), out).reshape(-1),
            "total": machine.everywhere["total"],
        }

    def _machine(self, inputs: dict[str, Array]) -> Machine:
        machine = Machine(self.shape.blocks, self.shape.threads)
        t, i, b = (x.astype(np.uint32) for x in (machine.in_block, machine.thread, machine.block))
        words = inputs["in"]

        def read(index: Array) -> Array:
            return np.asarray(words[index & 255], np.uint32)

        a, d, *c = _fields()
        machine.variables = {
            "t": t, "b": b, "lane": t & np.uint32(31), "n": np.full_like(t, N),
            "threads": np.full_like(t, machine.threads),
            "(threads - 1u - t)": machine.threads - np.uint32(1) - t,
            "v0": read(t), "v1": read(i + 1), "w": N + b, "i0": read(i + 2).astype(np.int32),
            "l0": read(i + 3).astype(np.uint64) * np.uint64(0x100000001),
            "f0": (read(i + 4) & 1023).astype(np.float32),
            "d0": read(i + 5) / 1024.0,
            "p.a": np.full_like(t, a), "p.d": np.full(machine.count, d),
        }  # fmt: skip
        machine.private = {
            "a": np.stack([read(t + k) for k in range(3)], 1),
            "g": np.stack([machine.variables["f0"].astype(np.float64), np.full(machine.count, 2.0)], 1),
            "mine": inputs["own"].reshape(4, -1).T.copy() if self.strided else inputs["own"].reshape(-1, 4).copy(),
            "p.c": np.tile(np.array(c, np.uint32), (machine.count, 1)),
        }
        shape = (machine.blocks, machine.threads)
        machine.shared = {
            "s": machine.variables["v0"].reshape(shape).copy(),
            "dyn": machine.variables["l0"].reshape(shape).copy(),
            "acc": np.tile(np.arange(COUNTERS, dtype=np.uint32), (machine.blocks, 1)),
        }
        machine.everywhere = {"in": words, "total": inputs["total"].copy()}
        machine.functions = {function.name: function for function in self.functions}
        return machine

    # -- arguments --------------------------------------------------------------------------------------------------

    def inputs(self) -> dict[str, Array]:
        random = np.random.default_rng(self.shape.count)
        return {
            "in": random.integers(0, 1 << 32, IN, np.uint32) >> random.integers(0, 32, IN, np.uint32),
            "own": np.arange(4 * self.shape.count, dtype=np.uint32) * np.uint32(3),
            "out": np.full(self.shape.count * (len(VARIABLES) + 8), UNTOUCHED, np.uint32),
            "total": np.arange(TOTALS, dtype=np.uint32) * np.uint32(0x9E3779B9),
        }

    def arguments(self, addresses: list[int]) -> bytes:
        return struct.pack("<4Q", *addresses) + packed_struct() + struct.pack("<I", N)


N = np.uint32(3)
PRELUDE = f"""\
struct P {{ {STRUCT_FIELDS} }};
struct Mine {{
  unsigned *p, stride;
  __device__ unsigned& operator[](unsigned k) const {{ return p[k * stride]; }}
}};
__device__ float clampf(float x) {{ return fminf(fmaxf(x, -1e6f), 1e6f); }}
__device__ double clampd(double x) {{ return fmin(fmax(x, -1e6), 1e6); }}
"""


def _fields() -> tuple[Any, ...]:
    return 1234567, 2.625, 5, 0xFFFFFFFF, 77


def packed_struct() -> bytes:
    return _STRUCT.pack(*_fields())


def _word(kind: str, name: str) -> str:
    """The C++ expression of a variable as a 32-bit word."""
    return {
        "u": name,
        "i": f"(unsigned){name}",
        "l": f"(unsigned)({name} >> 32) ^ (unsigned){name}",
        "f": f"__float_as_uint(clampf({name}))",
        "d": f"(unsigned)(__double_as_longlong(clampd({name})) >> 32) ^ (unsigned)__double_as_longlong(clampd({name}))",
    }[kind]


def _word_of(kind: str, values: Array) -> Array:
    values = np.ascontiguousarray(values).astype(DTYPES[kind])
    if kind in "fd":
        values = clamp(values)
    if kind in "ld":
        halves = values.view(np.uint32).reshape(-1, 2)
        return halves[:, 0] ^ halves[:, 1]
    return values.view(np.uint32)
