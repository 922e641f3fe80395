"""A PyTorch application: kernels that nobody wrote here; prints a number."""

import torch

x = torch.arange(5000, dtype=torch.float32, device="cuda")
y = torch.ones_like(x)
for _ in range(3):
    y = torch.nn.functional.relu(y + 0.5 * x)
print(float(y.sum()))
