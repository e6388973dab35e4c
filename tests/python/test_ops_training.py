"""A small GPT of two layers, trained with kiln.ops and with torch's functions."""

from ops_cases import F, angles_of_halves, ops, rotate_half, torch
from ops_device import device, launched  # noqa: F401

BATCH, LENGTH, HEADS, DIM, WORDS = 2, 6, 2, 16, 33
HIDDEN = HEADS * DIM


def torch_rope(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return (x * cos + rotate_half(x) * sin for x in (q, k))


class WithTorch:
    norm = staticmethod(lambda x, w: F.rms_norm(x, (HIDDEN,), w, 1e-6))
    rope = staticmethod(torch_rope)
    attention = staticmethod(F.scaled_dot_product_attention)
    loss = staticmethod(F.cross_entropy)

    @staticmethod
    def swiglu(x):
        gate, linear = x.chunk(2, -1)
        return F.silu(gate) * linear

    @classmethod
    def add_norm(cls, x, w, residual):
        return cls.norm(x + residual, w), x + residual


class WithKiln:
    norm = staticmethod(ops.rms_norm)
    rope = staticmethod(ops.rope)
    attention = staticmethod(ops.scaled_dot_product_attention)
    loss = staticmethod(ops.cross_entropy)
    swiglu = staticmethod(ops.swiglu)
    add_norm = staticmethod(lambda x, w, residual: ops.rms_norm(x, w, residual=residual))


class Layer(torch.nn.Module):
    def __init__(self, using):
        super().__init__()
        self.using = using
        self.first = torch.nn.Parameter(torch.ones(HIDDEN))
        self.second = torch.nn.Parameter(torch.ones(HIDDEN))
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up = torch.nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = torch.nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        using = self.using
        qkv = self.qkv(using.norm(x, self.first)).view(BATCH, LENGTH, 3, HEADS, DIM)
        q, k, v = qkv.unbind(2)
        q, k = using.rope(q, k, cos, sin)
        heads = (each.transpose(1, 2) for each in (q, k, v))
        o = using.attention(*heads, is_causal=True).transpose(1, 2)
        y, x = using.add_norm(self.out(o.reshape(BATCH, LENGTH, HIDDEN)), self.second, x)
        return x + self.down(using.swiglu(self.up(y)))


class Model(torch.nn.Module):
    def __init__(self, using):
        super().__init__()
        torch.manual_seed(1)
        self.using = using
        self.words = torch.nn.Embedding(WORDS, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer(using) for _ in range(2))
        self.scale = torch.nn.Parameter(torch.ones(HIDDEN))

    def forward(self, words, targets):
        at = angles_of_halves(LENGTH, DIM)
        x = self.words(words)
        for layer in self.layers:
            x = layer(x, at.cos(), at.sin())
        logits = self.using.norm(x, self.scale) @ self.words.weight.t()
        return self.using.loss(logits.view(-1, WORDS), targets.flatten())


def losses(using, steps):
    model = Model(using)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    text = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(2))
    all_of_them = []
    for _ in range(steps):
        loss = model(text[:, :-1], text[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        all_of_them.append(loss.item())
    return torch.tensor(all_of_them)


def test_a_model_is_trained_to_the_same_losses():
    expected = losses(WithTorch, 20)
    before, copies = len(launched()), ops.copies()
    result = losses(WithKiln, 20)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert expected[-1] < expected[0] / 2
    assert len(launched()) >= before + 20 * (2 * 10 + 4)
    assert ops.copies() == copies  # nothing of a usual model is copied
