"""Training with heads of 192 for queries and keys and of 128 for values, as multi-head
latent attention has them, on an H100 with a cuDNN of 9.1.0."""

import torch

import kiln
import kiln.testing

kiln.testing.use_simulated_device("9.0")
kiln.configure(attention="best")  # cuDNN is asked first, as it is on a real device


def forward_and_backward(attention, q, k, v):
    o = attention(q, k, v, is_causal=True)
    return (o, *torch.autograd.grad(o, (q, k, v), torch.ones_like(o)))


torch.manual_seed(0)
inputs = [
    torch.randn(1, 2, 64, dim, dtype=torch.float16, requires_grad=True)
    for dim in (192, 192, 128)
]
exact_inputs = [each.detach().double().requires_grad_() for each in inputs]
outputs = forward_and_backward(kiln.ops.scaled_dot_product_attention, *inputs)
exact_outputs = forward_and_backward(
    torch.nn.functional.scaled_dot_product_attention, *exact_inputs
)
for name, ours, exact in zip(("o", "dq", "dk", "dv"), outputs, exact_outputs):
    error = (ours.double() - exact).abs().max() / exact.abs().max()
    print(name, list(ours.shape), "right" if error < 0.005 else "WRONG")
for launch in kiln.testing.launches():
    print(f"launched: {launch.function}")
