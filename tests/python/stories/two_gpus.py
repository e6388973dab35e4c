"""Attention on two GPUs of one process, a shard of the batch on each, run and captured.

The tensors are as jax.nn.dot_product_attention has them: [batch, sequence, heads, dim].
"""

import numpy as np
import torch
from simulated_streams import capture, current_stream, new_stream

import kiln
import kiln.testing

kiln.testing.use_simulated_device("8.9,9.0")


def attention(query, key, value):
    """Of arrays of JAX, or of any other framework with DLPack, without a copy."""
    arrays = (query, key, value)
    q, k, v = (torch.from_dlpack(each).transpose(1, 2) for each in arrays)
    o = kiln.ops.scaled_dot_product_attention(q, k, v, is_causal=True)
    return o.transpose(1, 2)


def is_right(o, *arrays):
    q, k, v = (torch.tensor(each).double().transpose(1, 2) for each in arrays)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.allclose(o.double(), exact.transpose(1, 2), atol=4e-3)


random = np.random.default_rng(0)
batch = [random.standard_normal((2, 96, 2, 32)).astype(np.float16) for _ in "qkv"]
for gpu in kiln.devices():
    shard = [each[gpu.ordinal : gpu.ordinal + 1] for each in batch]
    with kiln.testing.device(gpu.ordinal):  # whose memory the arrays are in
        o = attention(*shard)
        with capture(gpu.ordinal):
            attention(*shard)
    print("GPU %d, compute capability %d.%d:" % (gpu.ordinal, *gpu.capability), end=" ")
    print("right" if is_right(o, *shard) else "WRONG")

for launch in kiln.testing.launches():
    how = "captured" if launch.is_captured else "run"
    print(f"GPU {launch.device}: {launch.function} {how}")

with kiln.testing.device(1), current_stream(1, new_stream(0)):
    try:
        attention(*shard)
    except kiln.Error as error:
        print(f"{type(error).__name__}: {error}")
print("launches:", len(kiln.testing.launches()))
