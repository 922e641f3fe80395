"""Random kernels that index, load, store, loop and branch inside bounds: food for the rewriting rules.

Every kernel takes ``(double* a, double* b, double* c, double x, double y, int n, int m)`` with three disjoint arrays of
``LENGTH`` elements; a thread writes only elements that belong to it, and may read all of ``c``, which no thread writes.
"""

from __future__ import annotations

from random import Random

LENGTH = 4096
THREADS = 64
OWN = 16  # elements of a and b that belong to one thread
SIGNATURE = "double* a, double* b, double* c, double x, double y, int n, int m"


class Kernel:
    """One random kernel; equal seeds give equal texts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scalars = ["x", "y"]
        self.whole = ["n", "m", "i"]
        self.frozen: list[str] = []
        self.names = 0

    def text(self) -> str:
        body = "".join(self.statement(1) for _ in range(self.random.randint(3, 7)))
        return (
            f"__device__ double mean(const double* q, int s) {{ return (q[0] + q[s & 3]) / 3.0; }}\n"
            f'extern "C" __global__ void k({SIGNATURE}) {{\n'
            f"    int i = blockIdx.x * blockDim.x + threadIdx.x;\n{body}}}\n"
        )

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    # -- expressions --

    def index(self) -> str:
        chosen = self.random.choice(["{a}", "{a} + {k}", "{a} * {k} + {b}", "({a} + {b}) * {k}", "{a} * {b} + {k}"])
        a, b = self.random.choice(self.whole), self.random.choice(self.whole)
        return chosen.format(a=a, b=b, k=self.random.randint(0, 3))

    def own(self) -> str:
        array = self.random.choice("ab")
        return f"{array}[i * {OWN} + (({self.index()}) & {OWN - 1})]"

    def load(self) -> str:
        return self.own() if self.random.random() < 0.6 else f"c[({self.index()}) & {LENGTH - 1}]"

    def value(self, depth: int = 0) -> str:
        choice = self.random.random()
        if depth > 2 or choice < 0.25:
            return self.random.choice([*self.scalars, f"{self.random.randint(1, 9)}.0", "0.75"])
        if choice < 0.5:
            return self.load()
        if choice < 0.56:
            return (
                f"(({self.index()}) > {self.random.randint(0, 9)} ? {self.value(depth + 1)} : {self.value(depth + 1)})"
            )
        if choice < 0.62:
            return f"mean(&c[({self.index()}) & 1023], {self.random.choice(self.whole)})"
        if choice < 0.68:
            return f"pow({self.load()}, {self.random.choice(['2.0', '3.0', '1.5', '1.4'])})"
        if choice < 0.74:
            return f"fabs({self.value(depth + 1)})"
        operator = self.random.choice("++--**/")
        right = f"({self.value(depth + 1)} + 20.0)" if operator == "/" else self.value(depth + 1)
        left = self.random.choice([self.value(depth + 1), f"({self.value(depth + 1)})"])
        return f"({left} {operator} {right})"

    # -- statements --

    def statement(self, depth: int) -> str:
        kinds = [self.declare, self.assign, self.store, self.store, self.accumulate, self.count]
        kinds += [self.loop, self.branch] if depth < 4 else []
        return self.random.choice(kinds)(depth)

    def declare(self, depth: int) -> str:
        name = self.fresh()
        text = f"{'    ' * depth}double {name} = {self.value()};\n"
        self.scalars.append(name)
        return text

    def assign(self, depth: int) -> str:
        name = self.random.choice(self.scalars)
        return f"{'    ' * depth}{name} {self.random.choice(['=', '+=', '='])} fmod({self.value()}, 8.0);\n"

    def store(self, depth: int) -> str:
        return f"{'    ' * depth}{self.own()} = fmod({self.value()}, 8.0);\n"

    def accumulate(self, depth: int) -> str:
        return f"{'    ' * depth}{self.own()} += 0.125 * ({self.value()});\n"

    def count(self, depth: int) -> str:
        name = self.random.choice([n for n in self.whole if n not in ("i", *self.frozen)] or ["n"])
        return f"{'    ' * depth}{name} = (({self.index()}) & 63);\n" if name not in self.frozen else ""

    def loop(self, depth: int) -> str:
        name = self.fresh().replace("v", "j")
        bound = self.random.choice(["3", "4", "(n & 3)"])
        header = f"{'    ' * depth}for (int {name} = 0; {name} < {bound}; {name}++)"
        self.whole.append(name)
        self.frozen.append(name)
        body = self.block(depth)
        self.whole.remove(name)
        return f"{header}{body}"

    def branch(self, depth: int) -> str:
        text = f"{'    ' * depth}if (({self.index()}) % 3 == {self.random.randint(0, 2)}){self.block(depth)}"
        return text + (f"{'    ' * depth}else{self.block(depth)}" if self.random.random() < 0.4 else "")

    def block(self, depth: int) -> str:
        scalars, whole = list(self.scalars), list(self.whole)
        if self.random.random() < 0.3:
            plain = self.random.choice([self.store, self.accumulate, self.assign])(0).strip()
            text = f" {plain}\n"
        else:
            inner = "".join(self.statement(depth + 1) for _ in range(self.random.randint(1, 4)))
            jump = self.random.random() < 0.12 and "{}if (({}) == 5) return;\n".format(
                "    " * (depth + 1), self.index()
            )
            text = f" {{\n{inner}{jump or ''}{'    ' * depth}}}\n"
        self.scalars, self.whole = scalars, whole
        return text
