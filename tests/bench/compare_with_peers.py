#!/usr/bin/env python3
"""Kiln's operations beside PyTorch, Liger, Triton and FlashAttention, where they can be
imported.

    compare_with_peers.py [--kiln PROGRAM] [--rounds N] [NAME[:dtype=D] ...]

Runs `kiln bench --json`, then the same mathematics on the same sizes with what is
installed, timed the same way: CUDA events around one call, behind copies that keep the
device busy until it is queued, the median of N after three that do not count. Every
bandwidth is of the bytes that the operation has to move at least, so that columns can
be compared. Attention is in TFLOP/s, as `kiln bench` counts them: Kiln's own kernel,
cuDNN through Kiln, PyTorch's scaled_dot_product_attention by each of its backends that
takes the type, and flash_attn; forward with what the backward pass needs of it, and the
backward pass alone. What cannot be imported is named and left out.
Exit status: that of `kiln bench`; 3 where there is no PyTorch with a CUDA device.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys

from attention_peers import AttentionPeers


def module(name):
    """The module, or None with a word on stderr."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever an import may raise
        print(f"{name} is left out: {error}", file=sys.stderr)
        return None


def liger_function(file, name):
    return getattr(importlib.import_module(f"liger_kernel.ops.{file}"), name)


class Clock:
    """Times calls on the device, without what the host needs to make them."""

    MOST_AHEAD = 256  # copies; the driver queues four times as many, at least

    def __init__(self, torch):
        self.torch = torch
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.source = torch.zeros(64 << 20, device="cuda")  # 256 MiB
        self.copy = torch.empty_like(self.source)

    def is_queued_in_time(self, call, copies):
        for _ in range(copies):
            self.copy.copy_(self.source)
        self.begin.record()
        call()
        self.end.record()
        was_busy = not self.begin.query()
        self.end.synchronize()
        return was_busy

    def median_ms(self, rounds, call):
        for _ in range(3):
            call()
        self.torch.cuda.synchronize()
        times, copies = [], 1
        while len(times) < rounds:
            if self.is_queued_in_time(call, copies):
                times.append(self.begin.elapsed_time(self.end))
            elif copies < self.MOST_AHEAD:
                copies *= 2
            else:
                raise RuntimeError(f"the host needs longer than {copies} copies")
        return statistics.median(times)


def sizes_of(entry):
    """The numbers of "residual, 8192 x 4096" and the like: [8192, 4096]."""
    words = entry["what"].replace("(", " ").replace(")", " ").replace(",", " ").split()
    return [int(word) for word in words if word.isdigit()]


class Peers:
    """What each library calls an operation: (function, inputs) of an entry, or None."""

    def __init__(self, torch):
        self.torch = torch
        self.functional = torch.nn.functional
        self.clock = Clock(torch)
        self.liger = module("liger_kernel.ops")
        self.attention = AttentionPeers(
            self, module("torch.nn.attention"), module("flash_attn")
        )
        self.compiled = torch.compile if module("triton") else None
        functorch = module("torch._functorch.config")
        if hasattr(functorch, "donated_buffer"):
            functorch.donated_buffer = False  # a backward pass is to run again and again

    def tensor(self, entry, *shape):
        """Of the entry's type; for a backward pass one whose gradient is wanted."""
        dtype = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[entry["dtype"]]
        return self.torch.randn(
            *shape,
            device="cuda",
            dtype=getattr(self.torch, dtype),
            requires_grad=entry["operation"].endswith("backward"),
        )

    def both_ways(self, entry, function, *inputs):
        """The call to time: forward, or backward through it, as the entry says."""
        if not entry["operation"].endswith("backward"):
            return lambda: function(*inputs)
        outputs = function(*inputs)
        if not isinstance(outputs, tuple):
            outputs = (outputs,)
        wanted = [each for each in inputs if each.requires_grad]
        gradients = [self.torch.randn_like(each) for each in outputs]
        return lambda: self.torch.autograd.grad(
            outputs, wanted, gradients, retain_graph=True
        )

    # ---- In PyTorch's own words

    def eager(self, entry):
        families = {
            "softmax": self.eager_softmax,
            "rope": self.eager_rope,
            "layernorm": self.eager_norm,
            "rmsnorm": self.eager_norm,
            "activation": self.eager_activation,
            "glu": self.eager_glu,
            "cross": self.eager_cross_entropy,
        }
        family = families.get(entry["operation"].split("_")[0])
        return family(entry) if family else None

    def eager_softmax(self, entry):
        functional, (heads, rows, cols) = self.functional, sizes_of(entry)
        x = self.tensor(entry, heads, rows, cols)
        if entry["what"].startswith("plain"):
            return lambda x: functional.softmax(x * 0.125, dim=-1), (x,)
        mask = self.torch.zeros(rows, cols, dtype=self.torch.bool, device="cuda")
        if entry["what"].startswith("causal"):
            mask = (~mask).triu(diagonal=1)
        return (
            lambda x, mask: functional.softmax(
                (x * 0.125).masked_fill(mask, float("-inf")), dim=-1
            ),
            (x, mask),
        )

    def rope_inputs(self, entry):
        """Query and key, [batch, sequence, heads, dim], and angles, [sequence, dim]."""
        tokens, q_heads, k_heads, dim = sizes_of(entry)
        batch = 4
        sequence = tokens // batch
        angles = self.torch.rand(sequence, dim // 2, device="cuda")
        if entry["what"].startswith("interleaved"):
            angles = angles.repeat_interleave(2, dim=-1)
        else:
            angles = angles.repeat(1, 2)
        return (
            self.tensor(entry, batch, sequence, q_heads, dim),
            self.tensor(entry, batch, sequence, k_heads, dim),
            angles,
        )

    def eager_rope(self, entry):
        torch = self.torch
        q, k, angles = self.rope_inputs(entry)
        interleaved = entry["what"].startswith("interleaved")

        def turned(x):
            """Each element's partner in its pair, the first of them negative."""
            if interleaved:
                return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
            half = x.shape[-1] // 2
            return torch.cat((-x[..., half:], x[..., :half]), -1)

        def rotate(q, k, cos, sin):
            cos, sin = cos[:, None, :], sin[:, None, :]
            return tuple((x * cos + turned(x) * sin).to(x.dtype) for x in (q, k))

        def rotate_by(q, k, angles):
            return rotate(q, k, angles.cos(), angles.sin())

        if "angles" in entry["what"]:
            return rotate_by, (q, k, angles)
        return rotate, (q, k, angles.cos(), angles.sin())

    def norm_inputs(self, entry):
        """x, the residual if there is one, weight, and for LayerNorm the bias."""
        rows, cols = sizes_of(entry)
        inputs = [self.tensor(entry, rows, cols)]
        if "residual" in entry["what"]:
            inputs.append(self.tensor(entry, rows, cols))
        weights = 2 if entry["operation"].startswith("layernorm") else 1
        return (*inputs, *(self.tensor(entry, cols) for _ in range(weights)))

    def eager_norm(self, entry):
        inputs = self.norm_inputs(entry)
        norm = self.functional.rms_norm
        if entry["operation"].startswith("layernorm"):
            norm = self.functional.layer_norm

        def plain(x, *weights):
            return norm(x, (x.shape[-1],), *weights)

        def with_residual(x, residual, *weights):
            total = x + residual
            return plain(total, *weights), total

        return with_residual if "residual" in entry["what"] else plain, inputs

    def activation(self, name):
        """Of "gelu_tanh", "swiglu" and the like; None for one that PyTorch has not."""
        functional = self.functional
        return {
            "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
            "gelu_erf": functional.gelu,
            "squared_relu": lambda x: functional.relu(x).square(),
            "swiglu": functional.silu,
            "geglu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
            "geglu_erf": functional.gelu,
            "reglu": functional.relu,
        }.get(name)

    def eager_activation(self, entry):
        name, *rest = entry["what"].split(", ")
        act = self.activation(name)
        if act is None:
            return None
        rows, cols = sizes_of(entry)
        x = self.tensor(entry, rows, cols)
        if "bias" in rest:
            return lambda x, b: act(x + b), (x, self.tensor(entry, cols))
        return act, (x,)

    def eager_glu(self, entry):
        name, *rest = entry["what"].split(", ")
        rows, _, cols = sizes_of(entry)
        x = self.tensor(entry, rows, 2 * cols)
        if name == "clamped_swiglu":  # the numbers of `kiln bench`

            def gated(x):
                gate = x[:, :cols].clamp(max=7.0)
                linear = x[:, cols:].clamp(-7.0, 7.0)
                return gate * self.torch.sigmoid(1.702 * gate) * (linear + 1.0)

        else:
            act = self.activation(name)
            if act is None:
                return None

            def gated(x):
                return act(x[:, :cols]) * x[:, cols:]

        if "bias" in rest:
            return lambda x, b: gated(x + b), (x, self.tensor(entry, 2 * cols))
        if "weight" in rest:
            weight = self.tensor(entry, rows, 1).detach().float()
            weight.requires_grad_(x.requires_grad)
            return lambda x, w: (gated(x) * w).to(x.dtype), (x, weight)
        return gated, (x,)

    def eager_cross_entropy(self, entry):
        torch, functional = self.torch, self.functional
        rows, vocabulary = sizes_of(entry)
        targets = torch.zeros(rows, dtype=torch.int64, device="cuda")
        logits = self.tensor(entry, rows, vocabulary)
        if entry["operation"] != "cross_entropy":
            return (
                lambda x: functional.cross_entropy(x, targets, reduction="none"),
                (logits,),
            )
        logits.requires_grad_()

        def loss_and_gradient(x):
            loss = functional.cross_entropy(x, targets, reduction="sum")
            return torch.autograd.grad(loss, x)[0]

        return loss_and_gradient, (logits,)

    # ---- The others

    def compile(self, entry):
        eager = self.eager(entry)
        if eager is None or entry["operation"] == "cross_entropy":
            return None
        function, inputs = eager
        self.torch.compiler.reset()  # or the many shapes of one text end in eager code
        return self.compiled(function), inputs

    def liger_form(self, entry):
        """For the operations that Liger has as Kiln does."""
        if self.liger is None:
            return None
        name, what = entry["operation"], entry["what"]
        if name.startswith("rope") and what.startswith("half") and "angles" not in what:
            return self.liger_rope(entry)
        if name.startswith("rmsnorm"):
            return self.liger_rmsnorm(entry)
        if name.startswith("layernorm") and "residual" not in what:
            norm = liger_function("layer_norm", "LigerLayerNormFunction")
            return lambda x, w, b: norm.apply(x, w, b, 1e-5), self.norm_inputs(entry)
        if name.startswith("glu") and what.startswith("swiglu, packed"):
            glu = liger_function("swiglu", "LigerSiLUMulFunction")
            rows, _, cols = sizes_of(entry)
            return (
                lambda a, b: glu.apply(a, b),
                (self.tensor(entry, rows, cols), self.tensor(entry, rows, cols)),
            )
        return None

    def liger_rope(self, entry):
        """It works in place, on [batch, heads, sequence, dim] that lies as Kiln's."""
        rope = liger_function("rope", "LigerRopeFunction")
        q, k, angles = self.rope_inputs(entry)
        return (
            lambda q, k, cos, sin: rope.apply(
                q.transpose(1, 2), k.transpose(1, 2), cos, sin
            )[:2],
            (q, k, angles.cos()[None], angles.sin()[None]),
        )

    def liger_rmsnorm(self, entry):
        inputs = self.norm_inputs(entry)
        if "residual" in entry["what"]:
            norm = liger_function("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")
            # "gemma" is all in float, as Kiln's; what else that means, an offset, is 0.
            return lambda x, r, w: norm.apply(x, r, w, 1e-6, 0.0, "gemma", False), inputs
        norm = liger_function("rms_norm", "LigerRMSNormFunction")
        return lambda x, w: norm.apply(x, w, 1e-6, 0.0, "none", False), inputs

    def forms(self, entry):
        """Each library's (function, inputs)."""
        if entry["operation"].startswith("attention"):
            yield from self.attention.forms(entry)
            return
        yield "torch", lambda: self.eager(entry)
        if self.compiled is not None:
            yield "torch.compile", lambda: self.compile(entry)
        yield "liger", lambda: self.liger_form(entry)

    def ms(self, entry, name, form, rounds):
        """The time of one library's form; None where it has none or fails."""
        try:
            found = form()
            if found is None:
                return None
            function, inputs = found
            call = self.both_ways(entry, function, *inputs)
            return self.clock.median_ms(rounds, call)
        except Exception as error:  # a peer's failure is the peer's
            print(f"{name_of(entry)} by {name}: {error}", file=sys.stderr)
            return None
        finally:
            self.torch.cuda.empty_cache()


def name_of(entry):
    return f"{entry['operation']} {entry['dtype']} {entry['what']}"


def speed(entry, ms):
    """GB/s, or TFLOP/s of what arithmetic bounds."""
    return entry["bytes"] / ms * 1e-6 if entry["bytes"] else entry["flops"] / ms * 1e-9


def kilns_columns(report):
    """[(an entry of Kiln's kernels, the words for it and for its other backends)], in the
    report's order."""
    rows = {}
    for entry in report["entries"]:
        ms = (entry["microseconds"] or 0) * 1e-3
        told = f"{speed(entry, ms):.0f}" if ms else "-"
        if entry["backend"] == "kiln":
            copy = [f"copy {entry['copy_gb_per_s'] or 0:.0f}"] if entry["bytes"] else []
            rows[name_of(entry)] = (entry, [*copy, f"kiln {told}"])
        else:
            rows[name_of(entry)][1].append(f"{entry['backend']} by kiln {told}")
    return rows.values()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kiln", default="kiln", help="the program (default: kiln)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("names", nargs="*", metavar="NAME[:dtype=D]")
    options = parser.parse_args()

    torch = module("torch")
    if torch is None or not torch.cuda.is_available():
        print("there is no PyTorch with a CUDA device here", file=sys.stderr)
        return 3
    command = [options.kiln, "bench", "--json", "--rounds", str(options.rounds)]
    bench = subprocess.run(command + options.names, stdout=subprocess.PIPE, check=False)
    report = json.loads(bench.stdout)
    if "entries" not in report:
        print(report["error"]["message"], file=sys.stderr)
        return bench.returncode
    for left_out in report["left_out"]:
        print(f"{left_out['backend']} by kiln is left out: {left_out['reason']}", file=sys.stderr)
    peers = Peers(torch)
    print(f"{report['device']['name']}: GB/s; of attention TFLOP/s")
    for entry, shown in kilns_columns(report):
        for name, form in peers.forms(entry):
            ms = peers.ms(entry, name, form, options.rounds)
            if ms:
                shown.append(f"{name} {speed(entry, ms):.0f}")
        print(f"{name_of(entry)}: {', '.join(shown)}")
    return bench.returncode


if __name__ == "__main__":
    sys.exit(main())
