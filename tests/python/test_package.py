"""The package as it is imported: what that opens, which names it has, what its wheel says."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import KIT, ROOT, environment, needs_torch

import kiln


def test_importing_opens_nothing_and_starts_nothing(python, tmp_path):
    said = python(
        """
        import os, sys
        sys.modules.pop("torch", None)
        before = set(sys.modules)
        import kiln
        assert len(os.listdir("/proc/self/task")) == 1, "it started a thread"
        assert "libkiln" not in open("/proc/self/maps").read(), "it opened the library"
        heavy = {"torch", "numpy", "tvm_ffi", "subprocess", "json", "typing"} & (set(sys.modules) - before)
        assert not heavy, heavy
        print(sorted(os.listdir("/proc/self/fd")) == ["0", "1", "2", "3"])
        """
    )
    assert said == "True"  # 3 is that of listdir itself
    assert not (tmp_path / "cache").exists()


def test_every_public_name_is_there_and_others_are_an_attribute_error():
    of_frameworks = {"explain", "jax", "ops", "prepare", "testing"}
    for name in set(kiln.__all__) - of_frameworks:
        assert getattr(kiln, name) is not None, name
        assert name in dir(kiln)
    assert callable(kiln.warm) and callable(kiln.why)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        kiln.nothing


def test_the_versions_agree(python):
    of_library = python("from kiln._library import library; print(library().version())")
    of_program = subprocess.run(
        [str(KIT.parent / "bin/kiln"), "--version"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    header = ROOT / "src/kiln/c.h"
    of_changes = re.search(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    of_status = re.search(r"Status:\*\* version ([0-9.]+),", (ROOT / "README.md").read_text())
    assert of_program == f"kiln {kiln.__version__}\n"
    assert kiln.__version__ == of_library == of_changes[1]
    assert f'testing = ["kiln-jit-testing=={kiln.__version__}"]' in (ROOT / "pyproject.toml").read_text()
    assert kiln.__version__.rsplit(".", 1)[0] == of_status[1]
    assert not re.search(r"version.*\"0\.", header.read_text()), "a version of its own"


def test_the_extra_nvrtc_has_the_pinned_wheels():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned, part = set(), ""
    for line in (ROOT / "tools/wheels.txt").read_text().splitlines():
        if line.startswith("# part "):
            part = line.split()[2]
        elif "==" in line and part in ("nvrtc", "headers"):
            pinned.add(line.split()[0])
    assert set(project["optional-dependencies"]["nvrtc"]) == pinned


def test_what_is_promised_of_older_versions_is_what_is_tested():
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "tools/python/oldest_torch.txt").read_text(), re.M))
    promised = re.search(r"every torch from ([\d.]+),", (ROOT / "python/README.md").read_text())[1]
    assert pinned["torch"] == f"{promised}.0"
    project = (ROOT / "pyproject.toml").read_text()
    assert set(re.findall(r"apache-tvm-ffi>=([\d.]+),<0.2", project)) == {pinned["apache-tvm-ffi"]}
    if folder := os.environ.get("KILN_TEST_TORCH"):
        assert Path(importlib.util.find_spec("tvm_ffi").origin).is_relative_to(folder)


def test_the_library_shows_the_functions_of_tvm_ffi_alone():
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(KIT / "libkiln_ffi.so")],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout
    names = [line.split()[-1] for line in listed.splitlines()]
    assert len(names) > 20
    assert [name for name in names if not name.startswith("__tvm_ffi_")] == []


def test_python_m_kiln_is_the_program(tmp_path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "kiln", *arguments],
            env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )

    shown = run("--version")
    assert shown.returncode == 0 and kiln.__version__ in shown.stdout
    assert run("no-such-verb").returncode == 2, "its status is the program's"


def test_the_readme_of_the_package_links_to_nothing_that_an_index_of_packages_lacks():
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "python/README.md").read_text())
    assert links and all(re.match("#|https://", each) for each in links), links


def test_warm_counts_what_a_build_would_make_and_why_finds_no_difference(nvrtc, python):
    said = python(
        """
        import kiln
        dry = kiln.warm(template="scaled_softmax_fwd:dtype=bf16,max_cols=128", arch="9.0",
                        dry_run=True, progress=False)
        assert (dry.requested, dry.missing, dry.compiled) == (1, 1, 0), dry
        done = kiln.warm(template="scaled_softmax_fwd:dtype=bf16,max_cols=128", arch=["9.0"],
                         progress=False)
        assert (done.compiled, done.failed) == (1, 0), done
        again = kiln.warm(template="scaled_softmax_fwd:dtype=bf16,max_cols=128", arch="9.0",
                          progress=False)
        assert (again.hits, again.compiled) == (1, 0), again
        reason = kiln.why(template="scaled_softmax_fwd:dtype=bf16,max_cols=128", arch="9.0")
        assert reason.same and reason.key == again.entries[0]["key"], reason
        try:
            kiln.warm(preset="no-such-model", arch="9.0", progress=False)
        except kiln.NotFound as error:
            print("no-such-model" in str(error))
        except kiln.InvalidArgument as error:
            print("no-such-model" in str(error))
        print(str(again))
        """
    )
    assert said.splitlines()[0] == "True"
    assert said.splitlines()[1].startswith("1 kernels: 1 hits, 0 compiled, in ")


def test_warm_takes_what_its_last_line_names_and_leaves_attention_out(nvrtc, python):
    python(
        """
        import kiln
        wanted = {"preset": "llama-3-8b", "arch": "9.0", "dry_run": True, "progress": False}
        all = kiln.warm(**wanted).requested
        named = [each["template"] for each in kiln.warm(**wanted, attention=False).entries]
        assert 0 < len(named) < all and not any("attention" in each for each in named), named
        for driver, kind in ("11.8", kiln.Unavailable), ("old", kiln.InvalidArgument), (12.4, kiln.InvalidArgument):
            try:
                kiln.warm(**wanted, driver=driver)
            except kind as error:
                assert "driver" in str(error) and str(driver) in str(error), error
            else:
                raise AssertionError(driver)
        """
    )


def make_package_with_seed(folder, value):
    """An installed package, which offers what `value` names in its module."""
    (folder / "kernels.py").write_text(
        "import pathlib\n"
        "pack = pathlib.Path(__file__).with_name('job.kpack')\n"
        "def packs():\n    return [pack]\n"
        "def breaks():\n    raise OSError('no kernels today')\n"
    )
    info = folder / "kernels-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kiln.seeds]\nours = kernels:{value}\n")


def test_a_pack_of_another_machine_is_unpacked_or_read_as_the_seed_of_a_package(nvrtc, python, tmp_path):
    made = python(
        """
        import kiln
        kiln.Kernel('extern "C" __global__ void fill(float* y) { *y = 1; }').prepare(0)
        packed = kiln.pack("job.kpack.zst", progress=False)
        assert (packed.objects, packed.missing, packed.failed) == (1, 0, 0), packed
        assert kiln.pack("job.kpack", serial=7, progress=False).header["serial"] == 7
        print(kiln.pack("job.kpack", progress=False).objects)
        """,
        KILN_CACHE_DIR=str(tmp_path / "login"),
        folder=tmp_path,
    )
    assert made == "1"
    unpacked = python(
        """
        import kiln
        print(kiln.unpack("job.kpack.zst", progress=False).stored)
        try:
            kiln.unpack("none.kpack", progress=False)
        except kiln.NotFound:
            print("not found")
        """,
        KILN_CACHE_DIR=str(tmp_path / "node"),
        folder=tmp_path,
    )
    assert unpacked.split("\n") == ["1", "not found"]
    use = """
        import kiln
        kiln.Kernel('extern "C" __global__ void fill(float* y) { *y = 1; }').prepare(0)
        print(kiln.statistics()["compiled"])
        """
    path = f"{tmp_path}:{ROOT / 'python'}"
    for number, value in enumerate(("pack", "packs")):
        make_package_with_seed(tmp_path, value)
        cache = str(tmp_path / f"job{number}")
        assert python(use, KILN_NO_JIT="1", KILN_CACHE_DIR=cache, PYTHONPATH=path) == "0"
        told = subprocess.run(
            [sys.executable, "-m", "kiln", "doctor"], stdout=subprocess.PIPE, text=True, check=False,
            env=environment(tmp_path, PYTHONPATH=path, KILN_SEED="/nowhere.kpack"),
        ).stdout
        assert f"{tmp_path}/job.kpack" in told and "/nowhere.kpack" in told, told
    make_package_with_seed(tmp_path, "breaks")
    cache = str(tmp_path / "other")
    assert python(use, KILN_CACHE_DIR=cache, PYTHONPATH=path) == "1", "it is passed over"
    make_package_with_seed(tmp_path, "pack")
    chosen = "import kiln\nkiln.configure(seeds=[])\n"
    assert python(chosen + use.replace("\n        ", "\n"), KILN_CACHE_DIR=str(tmp_path / "none"),
                  PYTHONPATH=path) == "1", "a setting of the program comes first"


@needs_torch
@pytest.mark.parametrize("first, second", [("torch", "kiln"), ("kiln", "torch")])
def test_torch_and_kiln_live_in_one_process_whichever_comes_first(first, second, nvrtc, python):
    use = {
        "torch": "import torch; assert torch.linalg.inv(torch.eye(8)).sum() == 8",
        "kiln": "import kiln; kiln.Kernel(SOURCE).prepare(0); assert len(kiln.devices()) == 1",
    }
    code = ["SOURCE = 'extern \"C\" __global__ void fill(float* y, float x) { *y = x; }'"]
    code += [use[first], use[second], use[first], "import hashlib, sqlite3, zlib"]
    code += ["hashlib.sha256(b'kiln'); sqlite3.connect(':memory:')", "print('both')"]
    assert python("\n".join(code), torch=True) == "both"


def test_the_readme_never_says_to_install_what_belongs_to_others():
    for page in ("README.md", "python/README.md"):
        text = (ROOT / page).read_text()
        assert not re.search(r"pip3? install (-U |--upgrade )?kiln\b(?!-jit)", text), page


def test_every_module_has_a_docstring_and_types():
    assert (ROOT / "python/kiln/py.typed").exists()
    for module in Path(ROOT / "python/kiln").rglob("*.py"):
        assert module.read_text().startswith('"""'), module


@needs_torch
@pytest.mark.usefixtures("nvrtc")
def test_the_lines_of_the_readme_run(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/python/readme_lines.py")],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"10 lines: rmsnorm_fwd rmsnorm_bwd \S* ?fill\n", done.stdout), done.stdout
