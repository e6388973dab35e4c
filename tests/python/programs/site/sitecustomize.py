"""Of a program's process: the CPU is its device, and at its end it says what the device launched.

Python imports this at its start, behind the sitecustomize module of `python -m kiln run`, so that the
program itself is as a user has it. What cannot be here is stood in for: Triton, and the compiled part of
TransformerEngine. None of their kernels can run.
"""

import atexit
import collections
import importlib.abc
import importlib.util
import json
import os
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMON = "transformer_engine.common"


class _OfTransformerEngine(importlib.abc.MetaPathFinder):
    """TransformerEngine itself loads its extension, but from here."""

    is_asking = False

    def find_spec(self, name, path=None, target=None):
        if name != COMMON or self.is_asking:
            return None
        self.is_asking = True
        spec = importlib.util.find_spec(name)
        self.is_asking = False
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            find, ours = module._get_shared_object_file, HERE / "transformer_engine_torch.py"
            module._get_shared_object_file = lambda name: ours if name == "torch" else find(name)

        spec.loader.exec_module = exec_module
        return spec


def _make_cpu_the_device():
    """What a program makes on "cuda" is on the CPU, and says that it is on a device."""
    import torch

    import kiln.testing

    def moved(value):
        is_device = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        return "cpu" if is_device else value

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = {name: moved(value) for name, value in (kwargs or {}).items()}
            return function(*map(moved, args), **kwargs)

    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(major=9, minor=0)
    for module in (torch.cuda, torch.cuda.random):
        module.get_rng_state = lambda device="cuda": torch.get_rng_state()
    torch.Tensor.is_cuda = property(lambda tensor: True)
    Mode().__enter__()
    kiln.testing.use_simulated_device()
    return kiln.testing.launches


def _say(launches):
    counts = collections.Counter(each.kernel.partition(":")[0] for each in launches())
    Path(os.environ["KILN_TEST_LAUNCHES"]).write_text(json.dumps(counts))


if sys.orig_argv[1:3] != ["-m", "kiln"]:  # the program's own process, not the one before it
    sys.path.append(str(HERE.parents[1]))
    import no_triton

    no_triton.stand_in("triton", "onnx", "onnxscript")
    if hidden := os.environ.get("KILN_TEST_HIDDEN"):
        sys.modules[hidden] = None  # as if it were not installed
    sys.meta_path.insert(0, _OfTransformerEngine())
    atexit.register(_say, _make_cpu_the_device())
