"""kiln.compat where nothing is computed: what is installed, what an import finds, and
`python -m kiln run`. Without torch, which these processes would wait for."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, environment, needs_torch

from kiln import compat, errors
from kiln.compat import _finder, _table
from kiln.compat._run import CHILDREN

EXTENSION = "scaled_masked_softmax_cuda"


def package(folder, name, text=""):
    """A Python package, with those that it is in."""
    path = folder.joinpath(*name.split("."))
    path.mkdir(parents=True, exist_ok=True)
    while path != folder:
        (path / "__init__.py").touch()
        path = path.parent
    folder.joinpath(*name.split("."), "__init__.py").write_text(text)


# ---- What is provided


def test_what_stands_in_for_what_is_one_line():
    line = str(compat.describe("neox", "apex", "liger"))
    assert "\n" not in line and line.startswith("kiln: replaced for neox: scaled_")
    assert "; for apex: generic_scaled_masked_softmax_cuda, scaled_softmax_" in line
    assert "FusedLinearCrossEntropyFunction (kiln has no operation that joins" in line
    assert "megatron.fused_kernels.load (megatron is not installed)" in line
    assert "for liger: liger_kernel.ops.rms_norm.LigerRMSNormFunction.apply, " in line
    of_apex = compat.describe("neox", "apex").replaced["apex"]
    assert "scaled_softmax_cuda" in of_apex
    assert EXTENSION not in of_apex, "that is GPT-NeoX's"
    assert "fused_rotary_positional_embedding" in of_apex, "it has more functions"


def test_the_line_tells_what_the_installed_frameworks_have(tmp_path, monkeypatch):
    package(tmp_path, "transformer_engine.pytorch")
    package(tmp_path, "transformer_engine.pytorch.attention", "raise RuntimeError")
    package(tmp_path, "megatron.legacy.fused_kernels")
    monkeypatch.syspath_prepend(tmp_path)
    line = str(compat.describe("transformer_engine", "apex"))
    assert "for transformer_engine: transformer_engine_torch; for apex" in line
    assert "megatron.legacy.fused_kernels.load. Not" in line
    for name in ("transformer_engine.pytorch.attention.rope", "megatron.fused_kernels"):
        assert f" that is installed has no {name})" in line
    assert not any(each.startswith("transformer_engine") for each in sys.modules)


@pytest.mark.parametrize("names", [("neox", "megatron"), ()])
def test_other_names_are_refused_with_the_list(names):
    with pytest.raises(errors.InvalidArgument, match="neox, apex, transformer_"):
        compat.install(*names)


def test_without_kilns_library_nothing_is_replaced(python):
    said = python(
        """
        import importlib.util, os, kiln.compat
        print(kiln.compat.install("neox"))
        print(importlib.util.find_spec("scaled_masked_softmax_cuda"))
        os.environ["KILN_PYTHON_STRICT"] = "1"
        try:
            kiln.compat.install("neox")
        except kiln.Unavailable as error:
            print(error)
        """,
        KILN_FFI_LIBRARY="/nowhere.so",
    ).splitlines()
    assert said[0].startswith("kiln: replaced nothing. Not replaced: scaled_upper_")
    assert said[1:] == ["None", "there is no /nowhere.so: install kiln-jit again"]


def test_each_function_of_the_table_is_in_its_file():
    for modules in _table.FRAMEWORKS.values():
        for module in modules:
            for where in module.functions.values():
                of_kiln = module.kind == _table.VARIABLE  # "kiln.triton:CacheManager"
                file, _, name = where.removeprefix("kiln.").partition(":") if of_kiln else where.partition(".")
                text = (ROOT / "python/kiln" / ("" if of_kiln else "compat") / f"{file}.py").read_text()
                assert re.search(rf"\b{name}\b", text), where


def test_the_readme_has_the_table():
    assert _table.markdown() in (ROOT / "python/README.md").read_text()


# ---- What an import finds


def test_the_first_framework_that_is_named_has_a_module_and_others_add_to_it():
    finder = _finder.Finder()
    for framework in ("neox", "apex"):
        for module in _table.FRAMEWORKS[framework]:
            finder.add(module)
    assert finder.entries[EXTENSION].functions["backward"] == "neox.masked_backward"
    rope = finder.entries["fused_rotary_positional_embedding"].functions
    assert {"forward", "forward_cached", "forward_thd"} < set(rope)


def test_extensions_are_found_without_being_built_and_before_those_that_were(python):
    said = python(
        """
        import importlib.util, sys, kiln.compat
        assert sys.modules["torch"] is None and "tvm_ffi" not in sys.modules
        names = ("scaled_masked_softmax_cuda", "fused_layer_norm_cuda", "xentropy_cuda")
        assert [importlib.util.find_spec(each) for each in names] == [None] * 3
        kiln.compat.install("neox", "apex")
        kiln.compat.install("neox")
        for each in names:
            assert "kiln" in type(importlib.util.find_spec(each).loader).__module__
        assert importlib.util.find_spec("transformer_engine") is None
        print(len([each for each in sys.meta_path if "kiln" in type(each).__module__]))
        """
    )
    assert said == "1"


def test_apex_that_is_installed_stays_and_is_provided_where_it_is_not(tmp_path, python):
    code = """
        import importlib.util, kiln.compat
        installation = kiln.compat.install("apex")
        name = "apex.normalization.fused_layer_norm"
        loader = type(importlib.util.find_spec(name).loader).__name__
        print(loader, name in installation.kept)
        import apex
        try:
            apex.optimizers
        except AttributeError as error:
            print(error)
        try:
            from apex.normalization import FusedAdam
        except ImportError as error:
            print("ImportError")
        """
    assert python(code).splitlines() == [
        "_Loader False",
        "package 'apex' is not installed, and kiln provides no 'optimizers'",
        "ImportError",
    ]
    package(tmp_path, "apex.normalization.fused_layer_norm")
    path = f"{tmp_path}:{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    assert python(code, PYTHONPATH=path).splitlines()[0] == "SourceFileLoader True"


# ---- python -m kiln run

PROGRAM = """
import importlib.util, os, subprocess, sys
def loader(name):
    spec = importlib.util.find_spec(name)
    return None if spec is None else type(spec.loader).__module__
print(__name__, sys.argv[1:], loader("scaled_masked_softmax_cuda"), loader("apex"))
own_folder = os.path.dirname(os.path.abspath(__file__))
print(own_folder == sys.path[0], sys.stdout.write_through)
if "child" in sys.argv:
    code = "import importlib.util as u; print(u.find_spec('xentropy_cuda').loader)"
    subprocess.run([sys.executable, "-c", code], check=True)
sys.exit(7)
"""


def run(folder, *arguments, python=(), **changes):
    """python -m kiln run ..., in another folder than the script's."""
    return subprocess.run(
        [sys.executable, *python, "-m", "kiln", "run", *arguments],
        env=environment(folder, **changes), cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_script_runs_as_by_python_in_all_its_processes(script, tmp_path):
    arguments = ("--compat", "neox,apex", script, "--help", "--compat", "x", "child")
    done = run(tmp_path, *arguments, python=("-u",))
    assert done.returncode == 7, done.stderr
    finder = "kiln.compat._finder"
    first, second, third = done.stdout.splitlines()
    given = ["--help", "--compat", "x", "child"]
    assert first == f"__main__ {given} {finder} {finder}"
    assert second == "True True", "it finds its own folder, and -u is passed on"
    assert finder in third, "so has its child"
    assert done.stderr.startswith("kiln: replaced for neox: ")
    assert done.stderr.count("\n") == 1


def test_the_first_rank_alone_prints_the_line(script, tmp_path):
    lines = []
    for rank in ("0", "1"):
        settings = {"RANK": rank, "WORLD_SIZE": "2", "SLURM_PROCID": "5"}
        done = run(tmp_path, "--compat=apex", script, **settings)
        assert done.returncode == 7 and "kiln.compat._finder" in done.stdout
        lines.append(done.stderr)
    assert lines[0].startswith("kiln: replaced for apex: ") and lines[1] == ""


def test_a_module_runs_and_the_environments_own_site_module_has_its_turn(tmp_path):
    (tmp_path / "train.py").write_text("import os; print(__name__, os.environ['OWN'])")
    own = "import importlib.util, os\nos.environ['OWN'] = str(importlib.util.find_spec("
    (tmp_path / "sitecustomize.py").write_text(f"{own}'{EXTENSION}') is not None)\n")
    path = f"{tmp_path}:{ROOT / 'python'}"
    done = run(tmp_path, "--compat", "neox", "-m", "train", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (0, "__main__ True\n"), done.stderr


def test_a_launcher_of_path_runs_and_its_ranks_are_prepared(script, tmp_path):
    launcher = tmp_path / "bin" / "torchrun"
    launcher.parent.mkdir()
    # As that of DeepSpeed on another node: what does not begin with PYTHON is lost.
    launcher.write_text(
        '#!/bin/sh\nexec env -u KILN_COMPAT RANK=0 "$PYTHON" -u "$@"\n'
    )
    launcher.chmod(0o700)
    settings = {
        "PATH": f"{launcher.parent}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
    }
    package(tmp_path, "megatron.fused_kernels")
    names = ("--compat", "neox,apex")
    done = run(tmp_path, *names, "torchrun", script, "child", **settings)
    assert done.returncode == 7, done.stderr
    assert done.stdout.count("kiln.compat._finder") == 3, "twice the rank, its child"
    assert done.stderr.count("\n") == 1
    assert "megatron.fused_kernels.load; for apex" in done.stderr, "beside the script"
    missing = run(tmp_path, "--compat", "neox", "no-launcher", script)
    assert missing.returncode == 2 and "can't open file" in missing.stderr


@needs_torch
def test_torchrun_starts_ranks_that_are_prepared(tmp_path):
    (tmp_path / "train.py").write_text(
        "import importlib.util, os, pathlib\n"
        "said = pathlib.Path(__file__).with_name('rank' + os.environ['RANK'])\n"
        "said.write_text(repr(importlib.util.find_spec('xentropy_cuda').loader))\n"
    )
    arguments = ("--standalone", "--nproc-per-node=2", str(tmp_path / "train.py"))
    done = run(tmp_path, "--compat", "apex", "-m", "torch.distributed.run", *arguments)
    assert done.returncode == 0, done.stderr
    said = [(tmp_path / f"rank{rank}").read_text() for rank in range(2)]
    assert all("kiln.compat._finder" in each for each in said)
    assert done.stderr.count("kiln: replaced for apex") == 1


def test_a_process_that_a_launcher_gave_no_setting_says_so(script, tmp_path):
    settings = {"KILN_COMPAT": None, "PYTHON_KILN_COMPAT": None}
    env = environment(tmp_path, **settings)
    env["PYTHONPATH"] = f"{CHILDREN}:{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", ""], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stderr.startswith("kiln: nothing is replaced in this process: KILN_COMPAT")


def test_a_rank_without_kilns_library_ends_where_it_must_be_kiln(tmp_path):
    settings = {"KILN_PYTHON_STRICT": "1", "KILN_FFI_LIBRARY": "/nowhere.so"}
    env = environment(tmp_path, KILN_COMPAT="neox", **settings)
    env["PYTHONPATH"] = f"{CHILDREN}:{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", "print('on')"], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kiln: there is no /nowhere.so: install kiln-jit again\n"


def test_help_and_what_is_refused(script, tmp_path):
    asked = run(tmp_path, "--help")
    assert asked.returncode == 0
    assert "--compat NAMES" in asked.stdout and "liger" in asked.stdout
    for arguments, says in (
        (("--compat", "neox,megatron", script), "'megatron' is none of the frameworks"),
        (("--compat", "neox"), "no program to run"),
        (("--compat", "", script), "--compat needs one or more of neox, apex, "),
        (("--jobs", "3", script), "no option --jobs"),
    ):
        done = run(tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert says in done.stderr and "usage: python -m kiln run" in done.stderr
    isolated = run(tmp_path, "--compat", "neox", script, python=("-s", "-S"))
    assert isolated.returncode == 2 and "-E, -I and -S" in isolated.stderr


def test_where_it_must_be_kiln_nothing_else_runs(script, tmp_path):
    settings = {"KILN_PYTHON_STRICT": "1", "KILN_FFI_LIBRARY": "/nowhere.so"}
    done = run(tmp_path, "--compat", "neox", script, **settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert "KILN_PYTHON_STRICT" in done.stderr
