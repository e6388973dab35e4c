"""Attention on an RTX 2080 and an RTX 3090 of one process.

The tensors are as xformers.ops.memory_efficient_attention has them, [B, M, H, K], and
[B, M, G, H, K] where the H heads of each of G groups share a key and a value.
"""

import torch

import kiln
import kiln.testing
from kiln.compat.xformers import memory_efficient_attention

kiln.testing.use_simulated_device("7.5,8.6")


torch.manual_seed(0)
groups, heads = 2, 2
query = torch.randn(1, 96, groups, heads, 32, dtype=torch.float16)
key, value = torch.randn(2, 1, 96, groups, 1, 32, dtype=torch.float16)
five = query, key.expand_as(query), value.expand_as(query)
four = [each.flatten(2, 3) for each in five]
q, k, v = (each.double().transpose(1, 2) for each in four)
exact = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

for gpu in kiln.devices():
    with kiln.testing.device(gpu.ordinal):
        of_four = memory_efficient_attention(*four)
        of_five = memory_efficient_attention(*five)
    print("GPU %d, compute capability %d.%d:" % (gpu.ordinal, *gpu.capability), end=" ")
    print("right" if torch.allclose(of_four.double(), exact, atol=4e-3) else "WRONG")
    is_same = torch.equal(of_four, of_five.flatten(2, 3))
    print("four and five dimensions:", "the same bits" if is_same else "OTHER BITS")

for launch in kiln.testing.launches():
    print(f"GPU {launch.device}: {launch.kernel}")
