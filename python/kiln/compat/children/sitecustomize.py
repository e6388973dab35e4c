"""Installs kiln.compat in a Python process that `python -m kiln run` has begun, or one
of its processes. Then the environment's own sitecustomize module has its turn."""

import importlib.util
import os
import sys
import warnings


def _install():
    if sys.version_info < (3, 10):  # another Python, of a tool that the program calls
        return
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != here]
    if importlib.util.find_spec("kiln") is None:  # it was found by the current folder
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))
    value = os.environ.get("KILN_COMPAT") or os.environ.get("PYTHON_KILN_COMPAT", "")
    names = [name for name in value.split(",") if name]
    if not names:
        print(
            "kiln: nothing is replaced in this process: KILN_COMPAT is lost, which "
            "`kiln run` had set; a launcher has to pass it on",
            file=sys.stderr,
        )
        return
    from kiln import compat

    with warnings.catch_warnings():  # the first process has said it
        warnings.simplefilter("ignore")
        try:
            compat.install(*names)
        except compat.errors.Unavailable as error:  # KILN_PYTHON_STRICT: not without
            print(f"kiln: {error}", file=sys.stderr, flush=True)
            os._exit(1)  # Python takes an exception here for a warning


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
