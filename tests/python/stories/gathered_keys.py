"""Causal attention of a sequence that two ranks share, with all keys gathered: a rank
has an early and a late chunk of the queries, which see the keys up to their end."""

import torch

import kiln
import kiln.testing

kiln.testing.use_simulated_device("9.0")

TOKENS, HEADS, DIM, RANKS = 256, 2, 32, 2
CHUNK = TOKENS // (2 * RANKS)


def attention(q, k, v):
    """Of [tokens, heads, dim]; the last query sees the last key, as in flash-attn."""
    ends = [torch.tensor([0, len(each)], dtype=torch.int32) for each in (q, k)]
    return kiln.ops.varlen_attention(q, k, v, *ends, is_causal=True)


def gathered(q, k, v):
    chunks = {}
    for rank in range(RANKS):
        for number in (rank, 2 * RANKS - 1 - rank):
            begin, end = number * CHUNK, (number + 1) * CHUNK
            chunks[number] = attention(q[begin:end], k[:end], v[:end])
            print(f"rank {rank}: queries {begin} to {end - 1} see keys 0 to {end - 1}")
    return torch.cat([chunks[number] for number in sorted(chunks)])


def whole(*inputs):
    q, k, v = (each.transpose(0, 1) for each in inputs)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return exact.transpose(0, 1)


torch.manual_seed(0)
inputs = [torch.randn(TOKENS, HEADS, DIM).bfloat16().requires_grad_() for _ in "qkv"]
exact_inputs = [each.detach().double().requires_grad_() for each in inputs]
o, exact = gathered(*inputs), whole(*exact_inputs)
gradients = torch.autograd.grad(o, inputs, torch.ones_like(o))
exact_gradients = torch.autograd.grad(exact, exact_inputs, torch.ones_like(exact))
for name, ours, theirs in zip(
    ("o", "dq", "dk", "dv"), (o, *gradients), (exact, *exact_gradients)
):
    error = (ours.double() - theirs).abs().max() / theirs.abs().max()
    print(name, "of the whole sequence:", "right" if error < 0.02 else "WRONG")
print("kernels built meanwhile:", kiln.statistics()["compiled"])
