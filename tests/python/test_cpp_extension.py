"""torch.utils.cpp_extension with Kiln's cache beneath it: real compilers, and faults while they run."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import KIT, ROOT, check_session, environment, needs_torch

pytestmark = [
    needs_torch,
    pytest.mark.skipif(not (shutil.which("ninja") and shutil.which("c++")), reason="no ninja and c++"),
]
KILN = str(KIT.parent / "bin/kiln")
MODULE = """
#include <Python.h>
#include "number.h"
static PyObject* number(PyObject*, PyObject*) { return PyLong_FromLong(NUMBER); }
static PyMethodDef methods[] = {{"number", number, METH_NOARGS, ""}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ext", 0, -1, methods};
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
extern "C" PyObject* INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
PROGRAM = """
import os, sys, time
import kiln.compat
kiln.compat.install("cpp_extension")
from torch.utils.cpp_extension import load, load_inline

HERE = os.getcwd()

def ext(**changes):
    arguments = {"sources": ["ext.cpp"], "extra_include_paths": [HERE + "/include"]} | changes
    return load("ext", **arguments)

"""


class Place:
    """A folder with an extension, a header, and a compiler that logs its runs."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "compiled"
        (folder / "include").mkdir()
        (folder / "ext.cpp").write_text(MODULE)
        self.number(1)
        self.compiler("first")

    def number(self, value):
        (self.folder / "include/number.h").write_text(f"#define NUMBER {value}\n")

    def compiler(self, text, before=""):
        (self.folder / "bin").mkdir(exist_ok=True)
        program = self.folder / "bin/c++"
        program.write_text(
            f'#!/bin/sh\n# {text}\ncase "$*" in *" -c "*) echo run >> {self.log}; {before} ;; esac\nexec {shutil.which("c++")} "$@"\n'
        )
        program.chmod(0o755)

    def compiled(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def start(self, code, mount="", **changes):
        """`mount`: a command for a mount namespace of its own."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        env = environment(self.folder, **{"PATH": path, "TORCH_NO_COMPILER_WRAPPER": "1", **changes})
        shell = f'{mount} && exec "$0" "$@"'
        return subprocess.Popen(
            [
                *(["unshare", "-rm", "sh", "-c", shell] if mount else []),
                sys.executable,
                "-c",
                PROGRAM + textwrap.dedent(code),
            ],
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, code="print(ext().number())", status=0, **changes):
        process = self.start(code, **changes)
        out, err = process.communicate(timeout=120)
        if "unshare:" in err or "mount:" in err:
            pytest.skip("no mount namespaces here")
        assert process.returncode == status, f"status {process.returncode}\n{out}\n{err}"
        self.err = err
        return out.strip()

    def wait_for_compile(self, count=1):
        deadline = time.monotonic() + 60
        while self.compiled() < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_what_a_login_node_builds_is_loaded_where_no_compiler_and_no_header_is(place):
    assert place.run() == "1" and place.err.count("kiln: building the extension ext") == 1
    assert place.run() == "1" and "building" not in place.err and place.compiled() == 1
    subprocess.run(
        [KILN, "pack", "-o", "job.kpack"],
        cwd=place.folder,
        env=environment(place.folder),
        check=True,
        capture_output=True,
    )
    (place.folder / "include/number.h").unlink()
    node = {
        "KILN_CACHE_DIR": str(place.folder / "node"),
        "KILN_SEED": "job.kpack",
        "KILN_NO_JIT": "1",
        "PATH": "/nowhere",
        "CUDA_HOME": None,
    }
    assert place.run(**node) == "1"
    missing = "import pytest\ntry: ext(extra_cflags=['-DX'])\nexcept RuntimeError as error: print(error)"
    told = place.run(missing, **node)
    assert "ext" in told and "KILN_NO_JIT" in told
    assert place.compiled() == 1


def test_a_changed_header_compiler_flag_or_variable_is_a_new_library(place):
    assert place.run() == "1"
    place.number(2)
    assert (
        place.run(
            "print(ext().number()); open('include/number.h', 'w').write('#define NUMBER 3\\n'); print(ext().number())"
        )
        == "2\n3"
    )
    place.number(2)
    assert place.run() == "2" and place.compiled() == 3
    place.compiler("second")
    assert (
        place.run("ext(); ext(extra_cflags=['-DA']); os.environ['CPATH'] = HERE; ext(); print(ext().number())") == "2"
    )
    assert place.compiled() == 6


def test_a_failed_build_says_all_that_the_compilers_said(place):
    place.compiler("failing", before="seq 300000; exit 1")
    told = place.run("""
        try:
            ext()
        except RuntimeError as error:
            said = str(error)
            print(said.startswith("Error building extension 'ext': "), "\\n1\\n" in said, "\\n150000\\n" in said, "\\n300000\\n" in said)
    """)
    assert told == "True True True True"
    place.compiler("mended")
    assert place.run() == "1"


def test_options_of_load_mean_what_they_mean_in_torch(place):
    (place.folder / "main.cpp").write_text('#include <cstdio>\nint main() { std::puts("ran"); }')
    out = place.run("""
        import subprocess
        named = ext(build_directory=HERE + "/named", verbose=True)
        print(named.number(), sorted(os.listdir("named")), named.__file__.startswith(HERE))
        path = load("ext", sources="ext.cpp", extra_include_paths=[HERE + "/include"], is_python_module=False)
        print(os.path.basename(path))
        program = load("program", ["main.cpp"], is_python_module=False, is_standalone=True, build_directory=HERE + "/named")
        assert program == HERE + "/named/program"
        print(subprocess.run([program], capture_output=True, text=True).stdout.strip())
    """)
    lines = out.splitlines()
    assert any(" -c " in line and "ext.cpp" in line for line in lines)  # of ninja
    assert lines[-3:] == ["1 ['build.ninja', 'ext.so'] False", "ext.so", "ran"]
    assert "kiln: extension ext: compiled" in place.err
    assert "mutually exclusive" in place.run("try: ext(is_standalone=True)\nexcept ValueError as error: print(error)")


INLINE = "".join(f"{line}\n" for line in MODULE.splitlines() if "number.h" not in line)


def test_sources_of_two_programs_with_one_name_and_one_folder_do_not_mix(place):
    (place.folder / "inline.txt").write_text(INLINE)
    if (
        place.run("import inspect; print('no_implicit_headers' in inspect.signature(load_inline).parameters)")
        == "False"
    ):
        pytest.skip("this torch compiles its own headers, each time for half a minute")
    code = """
        source = f"#define NUMBER {sys_number}\\n" + open("inline.txt").read()
        for _ in range(2):
            print(load_inline("ext", source, no_implicit_headers=True, build_directory=HERE + "/named").number())
    """
    processes = [place.start(f"sys_number = {i}\n" + textwrap.dedent(code)) for i in range(4)]
    assert [each.communicate(timeout=120)[0].split() for each in processes] == [[str(i)] * 2 for i in range(4)]
    assert place.compiled() == 4 and sorted(os.listdir(place.folder / "named")) == [
        "build.ninja",
        "ext.so",
        "main.cpp",
    ]


def test_functions_that_were_imported_before_kiln_are_kilns_too(place):
    assert place.run("", status=0) == ""
    code = "from torch.utils.cpp_extension import load\n" + PROGRAM.replace(
        "import load, load_inline", "import load_inline"
    )
    (place.folder / "early.py").write_text(code + "\nprint(ext().number())")
    env = environment(place.folder, TORCH_NO_COMPILER_WRAPPER="1", PATH=f"{place.folder / 'bin'}:{os.environ['PATH']}")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "early.py"], env=env, cwd=place.folder, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "1"
    assert place.compiled() == 1


def test_what_kiln_does_not_build_is_torchs_with_one_line(place):
    process = place.start(
        "ext(with_cuda=True)", TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES="1", TORCH_CUDA_ARCH_LIST="8.0"
    )
    said = process.communicate(timeout=120)[1]  # without a toolkit torch fails
    assert said.count("torch does: nvcc does not say which headers it reads") == 1, said


def test_device_code_for_no_device_names_the_variable_to_set(place):
    (place.folder / "kernel.cu").write_text("__global__ void k() {}")
    told = place.run("try: ext(sources=['ext.cpp', 'kernel.cu'])\nexcept RuntimeError as error: print(error)")
    assert "no GPU here" in told and "set TORCH_CUDA_ARCH_LIST" in told and place.compiled() == 0


TOOLKITS = [ROOT / ".deps/tests/test-nvcc/nvidia/cu13", Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
TOOLKIT = next((each for each in TOOLKITS if (each / "bin/nvcc").exists()), None)
NVML = """
#include <string.h>
int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** handle) { *handle = (void*)1; return i != 0; }
int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) { *major = 7; *minor = 5; return 0; }
int nvmlDeviceGetName(void* handle, char* name, unsigned size) { strncpy(name, "Tesla T4", size); return 0; }
"""


@pytest.mark.skipif(TOOLKIT is None, reason="no nvcc")
def test_device_code_that_fails_on_a_device_here_is_an_error_before_it_is_loaded(place):
    (place.folder / "kernel.cu").write_text("__global__ void k() {}")
    code = """
        os.environ["TORCH_CUDA_ARCH_LIST"] = sys_list
        try:
            with_static_runtime = ["-l:libcudart_static.a", "-ldl", "-lrt", "-lpthread"]  # this torch's is a stub
            given = {"extra_ldflags": with_static_runtime, "build_directory": HERE + "/include"}
            print(ext(sources=["ext.cpp", "kernel.cu"], **given).number())
        except RuntimeError as error:
            print(error)
    """
    cuda = {"CUDA_HOME": str(TOOLKIT), "KILN_DRIVER": str(KIT / "libkiln-simulated-driver.so")}

    def told(architectures, **changes):
        lines = f"sys_list = {architectures!r}\n{textwrap.dedent(code)}"
        return place.run(lines, **(cuda | changes))

    assert told("8.0", KILN_SIMULATED_DEVICES="8.6") == "1" and "compute" not in place.err
    assert told("8.0", KILN_SIMULATED_DEVICES="9.0,8.0").startswith(
        "the extension ext does not run on a device (compute capability 9.0): no kernel image is available"
    )
    assert place.compiled() == 1, "a hit is checked, too"
    assert told("8.0", KILN_SIMULATED_DEVICES="8.0", CUDA_HOME="/nowhere") == "1" and place.compiled() == 1
    other = place.folder / "toolkit"
    other.symlink_to(TOOLKIT)
    assert told("8.0", KILN_SIMULATED_DEVICES="8.0", CUDA_HOME=str(other)) == "1" and place.compiled() == 2
    assert told("9.0;8.0", KILN_SIMULATED_DEVICES="9.0,8.0") == "1", "another list, another library"
    assert told("8.0", KILN_SIMULATED_DEVICES="8.0") == "1" and place.compiled() == 3, "of one folder for all"
    assert told("8.0+PTX", KILN_SIMULATED_DEVICES="9.0") == "1" and "compute capability 9.0" in place.err
    assert told("8.0", KILN_DRIVER=None) == "1", "no driver, no device"
    (place.folder / "nvml.c").write_text(NVML)
    library = place.folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, place.folder / "nvml.c"], check=True)
    paths = f"{place.folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    said = told("8.0", KILN_DRIVER=None, LD_LIBRARY_PATH=paths)
    assert "cuda:0, Tesla T4 (compute capability 7.5)" in said and 'TORCH_CUDA_ARCH_LIST="7.5"' in said


def test_the_session_of_the_page_is_as_it_is_shown(place):
    (place.folder / "train.py").write_text(PROGRAM.replace('kiln.compat.install("cpp_extension")', "") + "ext()")
    env = environment(place.folder, TORCH_NO_COMPILER_WRAPPER="1", PATH=f"{place.folder / 'bin'}:{os.environ['PATH']}")
    assert check_session((ROOT / "docs/extensions.md").read_text(), place.folder, env) == 4
    assert place.compiled() == 1


def test_a_cache_that_cannot_be_written_gives_the_library_all_the_same(place):
    assert place.run("print(ext().number(), ext().number())", KILN_CACHE_DIR="/proc/nowhere") == "1 1"
    assert place.compiled() == 1 and "is not stored" in place.err


def test_a_full_disk_is_said_and_loses_nothing(place):
    (place.folder / "cache").mkdir(mode=0o700)
    full = {"mount": "mount -t tmpfs -o size=40k,mode=700 none cache"}
    assert place.run("print(ext().number())", **full) == "1" and "ext is not stored: " in place.err
    (place.folder / "tmp").mkdir()
    full = {"mount": "mount -t tmpfs -o size=16k none tmp", "TMPDIR": str(place.folder / "tmp")}
    code = "try: ext()\nexcept Exception as error: print(type(error).__name__, error)"
    told = place.run(code, **full)
    assert "No space left on device" in told, told
    assert place.run() == "1", "no failure is kept"


def test_a_process_and_its_forked_children_load_one_copy_of_each_version_under_a_name_of_its_own(place):
    code = """
        mine = lambda: [ext(extra_cflags=flags).__file__ for flags in (["-DA"], ["-DB"], ["-DA"])]
        parent = mine()
        if os.fork() == 0:
            print(*map(os.path.basename, parent), mine() == parent, flush=True)
            os._exit(0)
        os.wait()
    """
    assert place.run(code) == "ext.so ext_v1.so ext.so True" and place.compiled() == 2


def test_a_library_whose_header_changed_while_it_was_built_is_not_loaded_again(place):
    real, header = shutil.which("c++"), place.folder / "include/number.h"
    place.compiler("edits", before=f'{real} "$@"; echo "#define NUMBER 2" > {header}; exit 0')
    code = "first = ext().number(); time.sleep(0.1); print(first, ext().number())"
    assert place.run(code) == "1 2" and "is not stored" in place.err and place.compiled() == 2


def test_inputs_behind_links_and_in_folders_with_odd_names_are_noticed(place):
    place.folder.joinpath("ext.cpp").unlink()
    (place.folder / "real/deep/src").mkdir(parents=True)
    (place.folder / "real/deep/inc").mkdir()
    (place.folder / "src").symlink_to("real/deep/src")
    source = MODULE.replace('"number.h"', '"../inc/two.h"\nextern "C" int of_library();')
    (place.folder / "src/ext.cpp").write_text(source.replace("(NUMBER)", "(TWO + of_library())"))
    library = place.folder / "real/k (1)/lib"
    library.mkdir(parents=True)

    def told(two, of_library):
        (place.folder / "real/deep/inc/two.h").write_text(f"#define TWO {two}\n")
        (place.folder / "of.c").write_text(f"int of_library() {{ return {of_library}; }}")
        subprocess.run(["cc", "-c", "-fPIC", "-o", place.folder / "of.o", place.folder / "of.c"], check=True)
        subprocess.run(["ar", "rcD", library / "libof.a", place.folder / "of.o"], check=True)
        flags = f"\"'-L{place.folder}/src/../../k (1)/lib'\", '-lof'"
        out = place.run(f"time.sleep(0.1); print(ext(sources=['src/ext.cpp'], extra_ldflags=[{flags}]).number())")
        assert "is not stored" not in place.err, place.err
        return out

    assert [told(20, 1), told(30, 1), told(30, 2), told(20, 1)] == ["21", "31", "32", "21"]
    assert place.compiled() == 3


def test_a_child_that_is_forked_while_a_thread_loads_an_extension_loads_its_own(place):
    code = """
        from kiln.compat import _torch_build
        ext()
        held = threading.Event()
        def hold():
            with _torch_build._torch_lock:
                held.set()
                time.sleep(1)
        threading.Thread(target=hold).start()
        held.wait()
        if os.fork() == 0:
            print(ext().number(), flush=True)
            os._exit(0)
        os.wait()
    """
    assert place.run("import threading\n" + textwrap.dedent(code)) == "1"
