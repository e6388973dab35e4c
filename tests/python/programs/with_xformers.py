"""Trains a layer of attention of xformers, and lets it generate: packed sequences, grouped queries."""

import torch
import xformers.ops as xops
from xformers.ops import fmha

torch.manual_seed(0)
HEADS, DIM = 4, 16


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM, bias=False)
        self.out = torch.nn.Linear(HEADS * DIM, HEADS * DIM, bias=False)

    def forward(self, x, bias):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, DIM).unbind(2)
        return self.out(xops.memory_efficient_attention(q, k, v, attn_bias=bias).flatten(2))


def train(model, bias, tokens, steps=2):
    x, wanted = torch.randn(2, *tokens, HEADS * DIM, device="cuda").unbind(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        loss = (model(x, bias) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


model = Attention().to("cuda")
train(model, xops.LowerTriangularMask(), (2, 8))
train(model, fmha.attn_bias.BlockDiagonalCausalMask.from_seqlens([3, 1, 4]), (1, 8))

# One token of each of two sequences, whose keys are in a padded cache, with grouped queries.
bias = fmha.attn_bias.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
    q_seqlen=[1, 1], kv_padding=8, kv_seqlen=[5, 7]
)
q = torch.randn(1, 2, 2, 2, DIM, device="cuda")
k, v = torch.randn(2, 1, 16, 2, 1, DIM, device="cuda").expand(2, 1, 16, 2, 2, DIM).unbind(0)
print("token", fmha.memory_efficient_attention_forward(q, k, v, bias).sum().item())
