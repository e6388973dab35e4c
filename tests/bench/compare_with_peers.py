#!/usr/bin/env python3
"""Kiln's operations beside PyTorch, Liger and Triton, where they can be imported.

    compare_with_peers.py [--kiln PROGRAM] [--rounds N] [NAME[:dtype=D] ...]

Runs `kiln bench --json`, then the same mathematics on the same sizes with what is
installed, timed the same way: CUDA events around one call, the median of N after three
that do not count. Every bandwidth is of the bytes that the operation has to move at
least, so that columns can be compared. What cannot be imported is named and left out.
Exit status: that of `kiln bench`; 3 where there is no PyTorch with a CUDA device.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys


def module(name):
    """The module, or None with a word on stderr."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever an import may raise
        print(f"{name} is left out: {error}", file=sys.stderr)
        return None


def median_ms(torch, rounds, call):
    times = []
    for run in range(rounds + 3):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def sizes_of(entry):
    """The numbers of "residual, 8192 x 4096" and the like: [8192, 4096]."""
    words = entry["what"].replace("(", " ").replace(")", " ").replace(",", " ").split()
    return [int(word) for word in words if word.isdigit()]


def gradient_call(torch, output, inputs, gradient):
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


class Peers:
    """What each library calls an operation: a function of the entry, or None."""

    def __init__(self, torch):
        self.torch = torch
        self.functional = torch.nn.functional
        self.liger = module("liger_kernel.ops")
        self.compiled = torch.compile if module("triton") else None

    def tensor(self, entry, *shape, grad=False):
        dtype = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[entry["dtype"]]
        return self.torch.randn(
            *shape, device="cuda", dtype=getattr(self.torch, dtype), requires_grad=grad
        )

    def both_ways(self, entry, function, *inputs):
        """The call to time: forward, or backward through it, as the entry says."""
        if not entry["operation"].endswith("backward"):
            return lambda: function(*inputs)
        output = function(*inputs)
        wanted = [each for each in inputs if each.requires_grad]
        return gradient_call(self.torch, output, wanted, self.torch.randn_like(output))

    def eager(self, entry):
        """(function, inputs) in PyTorch's own words, or None."""
        torch, functional = self.torch, self.functional
        name, sizes = entry["operation"], sizes_of(entry)
        grad = name.endswith("backward")
        if name.startswith("softmax") and entry["what"].startswith("plain"):
            return (
                lambda x: functional.softmax(x * 0.125, dim=-1),
                (self.tensor(entry, *sizes, grad=grad),),
            )
        if name.startswith("layernorm"):
            rows, cols = sizes
            return (
                lambda x, w, b: functional.layer_norm(x, (cols,), w, b),
                (
                    self.tensor(entry, rows, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                ),
            )
        if name.startswith("rmsnorm") and "residual" not in entry["what"]:
            rows, cols = sizes
            return (
                lambda x, w: functional.rms_norm(x, (cols,), w),
                (
                    self.tensor(entry, rows, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                ),
            )
        if name.startswith("activation"):
            rows, cols = sizes
            form = "tanh" if "tanh" in entry["what"] else "none"
            return (
                lambda x, b: functional.gelu(x + b, approximate=form),
                (
                    self.tensor(entry, rows, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                ),
            )
        if name.startswith("glu"):
            rows, _, cols = sizes
            act = functional.silu
            if "geglu" in entry["what"]:
                act = lambda x: functional.gelu(x, approximate="tanh")  # noqa: E731
            return (
                lambda x: act(x[:, :cols]) * x[:, cols:],
                (self.tensor(entry, rows, 2 * cols, grad=grad),),
            )
        if name == "cross_entropy":
            rows, vocabulary = sizes
            targets = torch.zeros(rows, dtype=torch.int64, device="cuda")
            logits = self.tensor(entry, rows, vocabulary, grad=True)

            def loss_and_gradient(x):
                loss = functional.cross_entropy(x, targets, reduction="sum")
                return torch.autograd.grad(loss, x)[0]

            return loss_and_gradient, (logits,)
        return None

    def liger_form(self, entry):
        """The same in Liger, for the operations that both have."""
        if self.liger is None:
            return None
        name, sizes = entry["operation"], sizes_of(entry)
        grad = name.endswith("backward")
        if name.startswith("rmsnorm") and "residual" not in entry["what"]:
            rms = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
            rows, cols = sizes
            return (
                lambda x, w: rms.apply(x, w, 1e-6, 0.0, "none", False),
                (
                    self.tensor(entry, rows, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                ),
            )
        if name.startswith("layernorm"):
            norm = importlib.import_module("liger_kernel.ops.layer_norm")
            rows, cols = sizes
            return (
                lambda x, w, b: norm.LigerLayerNormFunction.apply(x, w, b, 1e-5),
                (
                    self.tensor(entry, rows, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                    self.tensor(entry, cols, grad=grad),
                ),
            )
        if name.startswith("glu") and "swiglu" in entry["what"]:
            glu = importlib.import_module("liger_kernel.ops.swiglu").LigerSiLUMulFunction
            rows, _, cols = sizes
            return (
                lambda a, b: glu.apply(a, b),
                (
                    self.tensor(entry, rows, cols, grad=grad),
                    self.tensor(entry, rows, cols, grad=grad),
                ),
            )
        return None

    def forms(self, entry):
        """Each library's (function, inputs)."""
        yield "torch", lambda: self.eager(entry)
        if self.compiled is not None:
            yield "torch.compile", lambda: self.compile(entry)
        yield "liger", lambda: self.liger_form(entry)

    def compile(self, entry):
        eager = self.eager(entry)
        if eager is None or entry["operation"] == "cross_entropy":
            return None
        function, inputs = eager
        return self.compiled(function), inputs

    def ms(self, entry, form, rounds):
        """The time of one library's form; None where it has none or fails."""
        try:
            found = form()
            if found is None:
                return None
            function, inputs = found
            return median_ms(self.torch, rounds, self.both_ways(entry, function, *inputs))
        except Exception as error:  # a peer's failure is the peer's
            print(f"{entry['operation']} {entry['what']}: {error}", file=sys.stderr)
            return None
        finally:
            self.torch.cuda.empty_cache()


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
    peers = Peers(torch)
    print(f"{report['device']['name']}: GB/s")
    for entry in report["entries"]:
        shown = [f"copy {entry['copy_gb_per_s'] or 0:.0f}", f"kiln {entry['gb_per_s'] or 0:.0f}"]
        for name, form in peers.forms(entry):
            ms = peers.ms(entry, form, options.rounds)
            if ms:
                shown.append(f"{name} {entry['bytes'] / ms * 1e-6:.0f}")
        print(f"{entry['operation']} {entry['dtype']} {entry['what']}: {', '.join(shown)}")
    return bench.returncode


if __name__ == "__main__":
    sys.exit(main())
