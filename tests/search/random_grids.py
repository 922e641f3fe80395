"""Random kernels of one element per thread on a two-dimensional grid: food for the rules that change who does what.

Every kernel takes ``(double* a, double* b, const double* c, double x, int n, int m)``: ``a`` holds one element for each
of ``n`` times ``m`` threads, ``b`` ``OWN`` of them; ``c``, never written, is a field with ``HALO`` elements around.
"""

from __future__ import annotations

from random import Random

WIDTH, HEIGHT, HALO, OWN = 45, 13, 2, 12
BLOCK, GRID = (16, 4, 1), (3, 4, 1)
SIGNATURE = "double* a, double* b, const double* c, double x, int n, int m"
PITCH = f"(n + {2 * HALO})"


class Kernel:
    """One random kernel; equal seeds give equal texts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.names = 0

    def text(self) -> str:
        made = [self.stencil(), *(self.statement() for _ in range(self.random.randint(2, 4)))]
        self.random.shuffle(made)
        body = [line for lines in made for line in lines]
        index = self.random.choice([["int i = {x};", "int k = {y};"], ["int k = {y};", "const int i = {x};"]])
        names = {axis: f"blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis}" for axis in "xy"}
        head = [line.format(**names) for line in index]
        if self.random.random() < 0.5:
            guard = self.random.choice(["if (i >= n || k >= m) return;", "if (i < 1 || i >= n - 1 || k >= m) return;"])
            lines = [*head, guard, *body]
        else:
            lines = [*head, "if (i < n && k < m) {", *("    " + line for line in body), "}"]
        inner = "".join(f"    {line}\n" for line in lines)
        return f'extern "C" __global__ void k({SIGNATURE}) {{\n{inner}}}\n'

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def field(self, along: int = 0, across: int = 0, more: str = "") -> str:
        return f"c[(k + {HALO + across}) * {PITCH} + i + {HALO + along}{more}]"

    def own(self, index: str) -> str:
        return f"b[(k * n + i) * {OWN} + {index}]"

    def value(self) -> str:
        return self.random.choice(["x", "1.5", self.field(), "(double)(i - k)", f"0.25 * {self.field(1)}"])

    # -- statements --

    def statement(self) -> list[str]:
        made: list[str] = self.random.choice(
            [self.row, self.nest, self.sum, self.branch, self.branches, self.wide, self.leave]
        )()
        return made

    def stencil(self) -> list[str]:
        offsets = self.random.sample([(1, 0), (-1, 0), (2, 0), (-2, 0), (0, 1), (0, -1), (0, 2)], 3)
        points = " + ".join(self.field(*offset) for offset in [(0, 0), *offsets])
        return [f"a[k * n + i] = x * ({points});"]

    def row(self) -> list[str]:
        """Neighbouring outputs that read neighbouring inputs."""
        reads = " + ".join(self.field(0, 0, f" + j - {n}" if n else " + j") for n in range(self.random.randint(2, 3)))
        start = self.random.choice(["0", "1"])
        return [
            f"for (int j = {start}; j < {self.random.choice(['3', '(n & 3)'])}; j++) {{",
            f"    {self.own('j')} = {reads};",
            "}",
        ]

    def nest(self) -> list[str]:
        read = self.random.choice(["x * r - s", "(double)(r + s * 2)", self.field(0, 0, " - (r & 1)")])
        return [
            "for (int r = 0; r < 3; r++)",
            "    for (int s = 0; s < 4; s++)",
            f"        {self.own('r * 4 + s')} = {read};",
        ]

    def sum(self) -> list[str]:
        name = self.fresh()
        return [
            f"double {name} = 0.0;",
            "for (int r = 0; r < 2; r++) {",
            f"    for (int s = 0; s < 2; s++) {{ {name} += {self.field(0, 0, ' + s - r')}; }}",
            "}",
            f"{self.own(str(self.random.randrange(OWN)))} = {name};",
        ]

    def branch(self) -> list[str]:
        place = self.own(str(self.random.randrange(OWN)))
        return [f"if ({self.field()} > 2.0) {place} = x; else {place} = (double)i * 0.5;"]

    def branches(self) -> list[str]:
        name = self.fresh()
        return [
            f"double {name} = {self.value()};",
            f"if ({name} > 1.75) {{ {name} *= x; {name} = {name} - 1.0; }}",
            f"{self.own(str(self.random.randrange(OWN)))} = {name};",
        ]

    def wide(self) -> list[str]:
        name, kind = self.fresh(), self.random.choice(["size_t", "long long"])
        return [
            f"{kind} {name} = ({kind})k * n + i;",
            f"b[{name} * {OWN} + {self.random.randrange(OWN)}] = {self.value()};",
        ]

    def leave(self) -> list[str]:
        return [f"if ((i + k) % {self.random.randint(3, 7)} == 1) return;"] if self.random.random() < 0.5 else []
