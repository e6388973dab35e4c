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
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module of that name, as soon as it has been imported."""

    def __init__(self, name, call):
        self.name, self.call = name, call

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            self.call(module)

        spec.loader.exec_module = exec_module
        return spec


def _extension(common):
    """TransformerEngine loads its own extension, but from here."""
    common._get_shared_object_file = lambda library: HERE / f"transformer_engine_{library}.py"


def _current_device(torch):
    torch.cuda.current_device = lambda: "cpu"


def _say_launches(testing):
    counts = collections.Counter(each.kernel.partition(":")[0] for each in testing.launches())
    Path(os.environ["KILN_TEST_LAUNCHES"]).write_text(json.dumps(counts))


def _prepare():
    import no_triton

    import kiln.testing

    no_triton.stand_in()
    sys.meta_path.insert(0, _AfterImport("transformer_engine.common", _extension))
    sys.meta_path.insert(0, _AfterImport("torch", _current_device))
    kiln.testing.use_simulated_device()
    atexit.register(_say_launches, kiln.testing)


if sys.orig_argv[1:3] != ["-m", "kiln"]:  # the program's own process, not the one before it
    _prepare()
