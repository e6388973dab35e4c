"""The cases of tests/python where there may be no pytest."""

import importlib
import importlib.util
import sys
import types
from pathlib import Path


def use_cases():
    """Lets the modules of tests/python be imported."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
    if importlib.util.find_spec("pytest") is None:
        # All that they take of it while they are imported.
        sys.modules["pytest"] = types.SimpleNamespace(
            importorskip=lambda name, **_: importlib.import_module(name),
            fixture=lambda **_: lambda function: function,
        )


def run(tests, of):
    """Runs tests of a name and a function; returns the exit status."""
    passed, failed = 0, []
    for name, test in tests:
        try:
            test()
            passed += 1
        except Exception as error:  # the others run all the same
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            failed.append(name)
    print(f"{of}: {passed} passed, {len(failed)} failed")
    return 1 if failed else 0
