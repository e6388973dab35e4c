"""Trains a small model of Liger's layers, of each kind that it has a kernel for."""

import types

import torch
from liger_kernel import transformers as liger
from liger_kernel.ops import LigerFusedGateUpSiLUMulFunction

torch.manual_seed(0)
BATCH, SEQUENCE, HIDDEN, HEADS, CLASSES = 2, 6, 48, 3, 33
DIM = HIDDEN // HEADS
CONFIG = types.SimpleNamespace(hidden_size=HIDDEN, intermediate_size=96, hidden_act="silu")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(CLASSES, HIDDEN)
        self.first = liger.LigerRMSNorm(HIDDEN)
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN)
        self.added = liger.LigerFusedAddRMSNorm(HIDDEN)
        self.swiglu = liger.LigerSwiGLUMLP(CONFIG)
        self.geglu = liger.LigerGEGLUMLP(CONFIG)
        self.gate_up = torch.nn.Linear(HIDDEN, 2 * HIDDEN)
        self.squared = liger.LigerReLUSquared()
        self.last = liger.LigerLayerNorm(HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, ids, cos, sin):
        x = self.embedding(ids)
        qkv = self.qkv(self.first(x)).view(BATCH, SEQUENCE, 3, HEADS, DIM)
        q, k, v = (each.transpose(1, 2) for each in qkv.unbind(2))
        q, k = liger.liger_rotary_pos_emb(q, k, cos, sin)
        o = (q @ k.mT * DIM**-0.5).softmax(-1) @ v
        x, residual = self.added(o.transpose(1, 2).reshape(x.shape), x)
        x = residual + self.swiglu(x) + self.geglu(x)
        x = x + LigerFusedGateUpSiLUMulFunction.apply(self.gate_up(x), False)
        return self.head(self.last(x + self.squared(x)))


model = Model().to("cuda")
ids = torch.randint(CLASSES, (BATCH, SEQUENCE + 1), device="cuda")
angles = torch.outer(torch.arange(SEQUENCE), 100.0 ** -torch.linspace(0, 1, DIM // 2))
angles = torch.cat([angles, angles], -1)[None].to("cuda")
loss_of = liger.LigerCrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    logits = model(ids[:, :-1], angles.cos(), angles.sin())
    loss = loss_of(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
