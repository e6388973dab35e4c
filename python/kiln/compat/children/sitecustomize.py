"""Installs kiln.compat in a Python process that `python -m kiln run` has begun, or one
of its processes. Then the environment's own sitecustomize module has its turn."""

import importlib.util
import os
import sys
import warnings


def _install():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != here]
    if importlib.util.find_spec("kiln") is None:  # it was found by the current folder
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))
    names = [name for name in os.environ.get("KILN_COMPAT", "").split(",") if name]
    if names:
        from kiln import compat

        with warnings.catch_warnings():  # the first process has said it
            warnings.simplefilter("ignore")
            compat.install(*names)


def _import_own():
    this = sys.modules.pop(__name__)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


_install()
_import_own()
