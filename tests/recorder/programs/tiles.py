"""A Triton program: one kernel, launched on tensors of PyTorch."""

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_add(x, y, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + factor * tl.load(y + at, mask=inside)
    tl.store(out + at, tl.exp(-total * total), mask=inside)


n = 10_000
x, y = torch.arange(n, device="cuda") / n, torch.ones(n, device="cuda")
out = torch.zeros(n, device="cuda")
for step in range(3):
    scaled_add[(triton.cdiv(n, 1024),)](x, y, out, n, step + 0.5, BLOCK=1024)
print(float(out.sum()))
