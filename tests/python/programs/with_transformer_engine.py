"""A layer of attention and a loss of TransformerEngine, forward and backward."""

import torch
import transformer_engine.pytorch as te
from transformer_engine.pytorch.attention.dot_product_attention import softmax
from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb

torch.manual_seed(0)
SEQUENCE, BATCH, HEADS, DIM, CLASSES = 32, 2, 2, 16, 33
ON_GPU = {"device": "cuda", "dtype": torch.bfloat16}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rope = te.RotaryPositionEmbedding(DIM)
        self.attention = te.DotProductAttention(HEADS, DIM, attn_mask_type="arbitrary")
        self.qkv = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM, **ON_GPU)
        self.head = torch.nn.Linear(HEADS * DIM, CLASSES, **ON_GPU)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, DIM).unbind(2)
        table = self.rope(SEQUENCE)
        q, k = (apply_rotary_pos_emb(each, table, fused=True) for each in (q, k))
        return self.head(self.attention(q, k, v, attention_mask=mask))


model = Model()
x = torch.randn(SEQUENCE, BATCH, HEADS * DIM, **ON_GPU)
target = torch.randint(CLASSES, (SEQUENCE, BATCH), device="cuda")
mask = torch.ones(BATCH, 1, SEQUENCE, SEQUENCE, dtype=torch.bool, device="cuda").triu(1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(2):
    loss = te.parallel_cross_entropy(model(x, mask), target, reduce_loss=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())

# The softmax functions that its attention does not choose.
for function, shape in (
    (softmax.scaled_softmax_forward, (BATCH, HEADS, SEQUENCE, SEQUENCE)),
    (softmax.scaled_upper_triang_masked_softmax_forward, (BATCH * HEADS, SEQUENCE, SEQUENCE)),
    (softmax.scaled_aligned_causal_masked_softmax_forward, (BATCH, HEADS, SEQUENCE, SEQUENCE)),
):
    scores = torch.randn(shape, **ON_GPU).requires_grad_()
    weights = function(scores, 0.5)
    weights.square().sum().backward()
    print("first weight", weights.flatten()[0].item())
