"""Attention of JAX under shard_map on two GPUs of different kinds, a shard of the batch on
each: the program of the report, with kiln.jax in the place of jax.nn."""

import functools
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

import kiln.jax
import kiln.testing

kiln.testing.use_simulated_device("8.9,9.0")
mesh = Mesh(np.array(jax.devices()), ("gpu",))


@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("gpu"), out_specs=P("gpu"))
def attention(query, key, value):
    return kiln.jax.dot_product_attention(query, key, value, is_causal=True)


random = np.random.default_rng(0)
batch = [random.standard_normal((2, 96, 2, 32)).astype(np.float16) for _ in "qkv"]
o = np.asarray(attention(*batch), np.float32)
of_jax = functools.partial(jax.nn.dot_product_attention, is_causal=True)
exact = np.asarray(of_jax(*(each.astype(np.float32) for each in batch)))
for gpu, ours, theirs in zip(kiln.devices(), o, exact):
    print("GPU %d, compute capability %d.%d:" % (gpu.ordinal, *gpu.capability), end=" ")
    print("right" if np.allclose(ours, theirs, atol=4e-3) else "WRONG")
for device, kernel in sorted((each.device, each.kernel) for each in kiln.testing.launches()):
    print(f"GPU {device}: {kernel}")
