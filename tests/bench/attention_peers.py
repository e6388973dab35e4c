"""Attention by PyTorch and by flash_attn, for compare_with_peers.py."""

import re


class AttentionSizes:
    """Those of "causal, bias, 2 x 8192 x 16/4 x 192/128": batch, length of queries and of
    keys, heads of queries and of keys, head dimension of both and of values."""

    FORM = re.compile(r"(\d+) x (\d+) x (\d+)(?:/(\d+))? x (\d+)(?:/(\d+))?$")

    def __init__(self, what):
        found = [int(n) if n else None for n in self.FORM.search(what).groups()]
        self.batch, self.length, self.heads, kv_heads, self.dqk, dv = found
        self.kv_heads = kv_heads or self.heads
        self.dv = dv or self.dqk
        self.is_causal = what.startswith("causal")
        self.has_bias = "bias" in what


class AttentionPeers:
    """`backends` is torch.nn.attention and `flash` flash_attn; None where there is none."""

    def __init__(self, peers, backends, flash):
        self.peers = peers
        self.backends = backends
        self.flash = flash

    def inputs(self, entry, sizes):
        """Query, key and value, [batch, length, heads, dim] as Kiln's lie. Their gradients
        are wanted in both passes: then the forward pass keeps statistics, as Kiln's does."""
        shapes = (
            (sizes.heads, sizes.dqk),
            (sizes.kv_heads, sizes.dqk),
            (sizes.kv_heads, sizes.dv),
        )
        return tuple(
            self.peers.tensor(entry, sizes.batch, sizes.length, *shape).requires_grad_()
            for shape in shapes
        )

    def bias(self, entry, sizes):
        """[1, heads, length, length]; where the mask is causal, with that in it: PyTorch
        takes one of the two."""
        bias = self.peers.tensor(entry, 1, sizes.heads, sizes.length, sizes.length).detach()
        if sizes.is_causal:
            hidden = self.peers.torch.ones_like(bias[0, 0], dtype=self.peers.torch.bool).triu(1)
            bias = bias.masked_fill(hidden, float("-inf"))
        return bias.requires_grad_(entry["operation"].endswith("backward"))

    def torch_attention(self, entry, backend):
        """scaled_dot_product_attention by that backend of PyTorch's alone."""
        sizes = AttentionSizes(entry["what"])
        inputs = self.inputs(entry, sizes)
        if sizes.has_bias:
            inputs += (self.bias(entry, sizes),)
        more = {"is_causal": sizes.is_causal and not sizes.has_bias}
        if sizes.kv_heads != sizes.heads:
            more["enable_gqa"] = True

        def attention(q, k, v, bias=None):
            q, k, v = (each.transpose(1, 2) for each in (q, k, v))
            with self.backends.sdpa_kernel(backend):
                o = self.peers.functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=bias, **more
                )
            return o.transpose(1, 2)

        return attention, inputs

    def flash_attention(self, entry):
        """None for what the library says it does not do."""
        sizes = AttentionSizes(entry["what"])
        if entry["dtype"] == "f32" or sizes.has_bias or sizes.dqk != sizes.dv:
            return None
        return (
            lambda q, k, v: self.flash.flash_attn_func(q, k, v, causal=sizes.is_causal),
            self.inputs(entry, sizes),
        )

    def forms(self, entry):
        """What compare_with_peers.Peers.forms() gives of attention."""
        names = ("efficient",) if entry["dtype"] == "f32" else ("flash", "cudnn")
        known = getattr(self.backends, "SDPBackend", None)  # PyTorch 2.3 and later
        for name in names:
            backend = getattr(known, f"{name.upper()}_ATTENTION", None)
            if backend is not None:
                yield f"torch {name}", lambda of=backend: self.torch_attention(entry, of)
        if self.flash is not None:
            yield "flash_attn", lambda: self.flash_attention(entry)
