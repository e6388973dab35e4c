"""Calls with an option that Kiln has not: each is warned of, and left to the framework."""

import warnings

import torch
import xformers.ops as xops
from liger_kernel.transformers import LigerCrossEntropyLoss
from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb


def tell(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except (NotImplementedError, RuntimeError) as error:
            print(f"{error}".splitlines()[0])
    print(*(each.message for each in caught if each.category.__name__ == "FallbackWarning"))


x = torch.randn(2, 8, 4, 16, device="cuda")
tell(lambda: xops.memory_efficient_attention(*3 * [x.double()]))
positions = torch.zeros(8, dtype=torch.int32, device="cuda")
angles = torch.randn(8, 1, 1, 16, device="cuda")
tell(lambda: apply_rotary_pos_emb(x, angles, start_positions=positions, fused=True))
tell(lambda: LigerCrossEntropyLoss(softcap=30.0)(x.view(8, -1), positions.long()))
