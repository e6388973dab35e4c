"""kiln.Kernel: how its arguments reach the device, on a simulated one with the real NVRTC."""

import json
import textwrap

import pytest
from conftest import KIT, ROOT, blocks, needs_torch

pytestmark = pytest.mark.usefixtures("nvrtc")

# Sets up `driver` and `np`; the kernel `mixed` takes every size of number.
SETUP = """
    import ctypes, enum
    import numpy as np
    import kiln, simulated
    driver = simulated.use("9.0,8.6")
    MIXED = '''struct Pair { int a; float b; };
    extern "C" __global__ void mixed(float* y, int i, long long l, float f, double d, bool b,
                                     short s, Pair p) {}'''

    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

    TYPES = (ctypes.c_uint64, ctypes.c_int, ctypes.c_longlong, ctypes.c_float, ctypes.c_double,
             ctypes.c_bool, ctypes.c_short, Pair)
    y = np.zeros(4, np.float32)
    address = y.ctypes.data
"""


def refusal(call, error="InvalidArgument"):
    return f"""
    try:
        {call}
        print("it was not refused")
    except kiln.{error} as error:
        print(error)
"""


def expect_refusals(run, code, cases):
    """Each call is refused in these words, all in one process."""
    said = json.loads(run(code + f"""
    import json
    said = []
    for call in {[call for call, _ in cases]!r}:
        try:
            said.append(f"it was not refused: {{eval(call)}}")
        except kiln.InvalidArgument as error:
            said.append(str(error))
    print(json.dumps(said))
    """))
    for (call, why), message in zip(cases, said, strict=True):
        assert why in message, call


def test_each_argument_arrives_in_the_size_of_its_parameter(run):
    said = run("""
    launches = simulated.record(driver, "mixed", *TYPES)
    k = kiln.Kernel(MIXED)
    k((2, 3), 64, y, -7, 2**40, 1.5, 2.5, True, 300, Pair(4, 0.5), shared=256, stream=0)
    (one,) = launches
    assert (one.grid, one.block, one.shared, one.device) == ((2, 3, 1), (64, 1, 1), 256, 0), one
    *scalars, pair = one.values
    assert scalars == [address, -7, 2**40, 1.5, 2.5, True, 300], one.values
    assert (pair.a, pair.b) == (4, 0.5)

    class Two(enum.IntEnum):
        TWO = 2
    k(1, np.int64(32), address, np.int32(5), np.int64(6), np.float32(7), np.float64(8), np.bool_(1),
      ctypes.c_short(9), bytes(8))
    assert launches[1].values[:7] == [address, 5, 6, 7.0, 8.0, True, 9], launches[1]
    k(1, 1, None, Two.TWO, 2**63 - 1, np.float32(1), 1, 0, -1, bytearray(8))
    assert launches[2].values[:3] == [0, 2, 2**63 - 1]
    k(1, 1, 2**64 - 1, 0, 2**64 - 1, 0.0, 0, 0, 0, bytes(8))  # as of an unsigned long long
    assert launches.pop().values[:3] == [2**64 - 1, 0, -1]

    class Foreign:
        __cuda_array_interface__ = {"data": (address, False), "shape": (4,), "typestr": "<f4",
                                    "version": 3}
    k(1, 1, Foreign(), 0, 0, 0.0, 0.0, False, 0, bytes(8))
    assert launches[3].values[0] == address
    k(1, 1, y, 0, 0, 3, -4, 0, 0, bytes(8))  # ints for a float and a double
    assert launches.pop().values[3:5] == [3.0, -4.0]
    print(len(launches))
    """)
    assert said == "4"


DO_NOT_FIT = [
    ("y, 2**64 - 1, 0, 0.0, 0.0, 0, 0, Pair()", "argument 1 (counted from 0) takes 4 bytes"),
    ("y, 0, 2**64, 0.0, 0.0, 0, 0, Pair()", "18446744073709551616 fits into no parameter"),
    ("y, 2**32, 0, 0.0, 0.0, 0, 0, Pair()", "argument 1 (counted from 0) is 4294967296, which"),
    ("y, 0, 0, 0.0, 0.0, 0, 1.5, Pair()", "argument 6 (counted from 0) is a float, and the parameter"),
    ("y, 0.0, 0, 0.0, 0.0, 0, 0, Pair()", "argument 1 (counted from 0) is a float, and the parameter"),
    ("1.0, 0, 0, 0.0, 0.0, 0, 0, Pair()", "argument 0 (counted from 0) is a float, and the parameter"),
    ("y, 0, 0, np.float64(0), 0.0, 0, 0, Pair()", "argument 3 (counted from 0) takes 4 bytes"),
    ("y, np.float32(4), 0, 0.0, 0.0, 0, 0, Pair()", "argument 1 (counted from 0) is a floating-point scalar"),
    ("y, ctypes.c_float(4), 0, 0.0, 0.0, 0, 0, Pair()", "argument 1 (counted from 0) is a floating-point"),
    ("y, 0, 0, np.int32(2), 0.0, 0, 0, Pair()", "argument 3 (counted from 0) is a scalar that is a whole"),
    ("y, 0, 0, 0.0, ctypes.c_long(2), 0, 0, Pair()", "argument 4 (counted from 0) is a scalar that is a"),
    ("y, 0, 0, 0.0, 0.0, 0, 0, 5", "argument 7 (counted from 0) is a number of Python, and nothing tells"),
    ("y, 0, 0", "it takes 8 arguments"),
    ("y, 0, 0, 0.0, 0.0, 0, 0, Pair(), 9", "it takes 8 arguments"),
    ("y, 0, 0, 0.0, 0.0, 0, 0, object()", "an argument is of the type object"),
    ("y, 0, 0, 0.0, 0.0, 0, 0, 'text'", "an argument is of the type str"),
]


def test_an_argument_that_does_not_fit_is_refused_before_the_launch(run):
    expect_refusals(run, "", [(f"kiln.Kernel(MIXED)(1, 1, {arguments})", why) for arguments, why in DO_NOT_FIT])


def test_of_an_enumeration_the_ptx_tells_the_kind_and_of_a_linked_kernel_nothing_does(run):
    code = '''
    KINDS = "enum E {{ZERO, ONE}}; {} void kinds(E e, float f) {{}}"
    launches = simulated.record(driver, "_Z5kinds1Ef", ctypes.c_int, ctypes.c_float)
    kiln.Kernel(KINDS.format("__global__"))(1, 1, 1, 2)
    assert launches[0].values == [1, 2.0], launches
    linked = kiln.Kernel(KINDS.format('extern "C" __global__'), options="-rdc=true")
    simulated.record(driver, "kinds", ctypes.c_int, ctypes.c_float)
    linked(1, 1, np.int32(1), np.float32(2))
    '''
    for arguments in ("1.0, 1", "np.float32(1), 1"):
        call = f"kiln.Kernel(KINDS.format('__global__'))(1, 1, {arguments})"
        assert "the parameter is a whole number" in run(code + refusal(call))
    call = "linked(1, 1, np.int32(1), 2)"
    assert "nothing tells which type" in run(code + refusal(call))


WRONG = [
    ("k(1, 2048, y)", "block.x is 2048"),
    ("k(1, (64, 32), y)", "a block of 64 x 32 x 1 threads has 2048"),
    ("k((1, 2, 3, 4), 1, y)", "grid is (1, 2, 3, 4): give one to three whole numbers"),
    ("k(1, 1000 / 256, y)", "block is 3.90625: give one to three whole numbers"),
    ("k(1, None, y)", "block is None: give one to three whole numbers"),
    ("k(1, 1, y, shared=0.5)", "shared is 0.5, and not a whole number"),
    ("k(-1, 1, y)", "grid, block, cluster and shared must be"),
    ("k(1, 1, y, cluster=2)", "no multiple of cluster"),
    ("k(1, 1, y, shared=10**6)", "1000000 bytes of dynamic shared memory"),
    ("k(1, 1, y, stream='s')", "it has no __cuda_stream__"),
    ("k.prepare(2)", "there is no device 2"),
    ("k.prepare('cpu')", "possible are numbers and 'cuda:N'"),
    ("k.prepare(0.5)", "device is 0.5, and not a whole number"),
    ("kiln.Kernel(3)", "source is 3, and not a text"),
    ("kiln.Kernel([])", "source is missing"),
    ("kiln.Kernel('', options=[80])", "options is 80, and not a text"),
    ("kiln.Kernel('', headers=['a.h'])", "headers have their texts by their names"),
    ("kiln.Kernel('', headers={'a.h': Path('b.h')})", "headers['a.h'] is PosixPath('b.h')"),
    ("kiln.Kernel(TWO).attributes", "choose one with entry()"),
]


def test_a_wrong_launch_is_refused_in_words(run):
    code = """
    from pathlib import Path
    k = kiln.Kernel('extern "C" __global__ void one(float* y) {}')
    TWO = 'extern "C" __global__ void a() {} extern "C" __global__ void b() {}'
    """
    expect_refusals(run, code, WRONG)


def test_the_device_may_be_chosen_and_a_tensor_of_another_is_refused(run):
    said = run("""
    from kiln._library import library
    launches = simulated.record(driver, "one", ctypes.c_uint64)
    source = 'extern "C" __global__ void one(float* y) {}'
    library().use_cpu_device(1)
    k = kiln.Kernel(source, device="cuda:1")
    k(1, 1, y)
    assert launches[-1].device == 1
    assert kiln.Kernel(source, device=kiln.devices()[1]).key == k.key != kiln.Kernel(source).key
    """ + refusal("kiln.Kernel(source, device=0)(1, 1, y)"))
    assert said == "argument 0 (counted from 0) is on cuda:1, and the kernel is loaded on cuda:0"


def test_a_tensor_in_the_memory_of_the_host_is_refused(run):
    said = run("""
    from kiln._library import library
    library().use_cpu_device(-1)
    k = kiln.Kernel('extern "C" __global__ void one(float* y) {}')
    """ + refusal("k(1, 1, y)"))
    assert said == "argument 0 (counted from 0) is not on a CUDA device"


def test_memory_that_only_has_an_address_is_that_of_the_kernels_device(run):
    """Of __cuda_array_interface__, which says no device."""
    said = run("""
    from kiln._library import library
    library().use_cpu_device(-1)
    kiln.devices()
    context, memory = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64)) == 0

    class Foreign:
        def __init__(self, address):
            self.__cuda_array_interface__ = {"data": (address, False), "shape": (4,),
                                             "typestr": "<f4", "version": 3}
    source = 'extern "C" __global__ void one(float* y) {}'
    kiln.Kernel(source, device=1)(1, 1, Foreign(memory.value))
    kiln.Kernel(source, device=1)(1, 1, Foreign(0))
    """ + "".join(refusal(f"kiln.Kernel(source)(1, 1, Foreign({each}))") for each in ("memory.value", "address")))
    other, of_host = said.splitlines()
    assert other.startswith("argument 0 (counted from 0) cannot be used on device 0"), said
    assert "it is memory of device 1" in other, said
    assert "it is no memory that the driver knows" in of_host, said


def test_streams_are_numbers_or_objects_with_the_protocol(run):
    said = run("""
    launches = simulated.record(driver, "one", ctypes.c_uint64)
    kiln.devices()
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0

    class Stream:
        def __cuda_stream__(self):
            return (0, stream.value)
    class OldTorchStream:
        cuda_stream = stream.value
    k = kiln.Kernel('extern "C" __global__ void one(float* y) {}')
    for each in (stream.value, Stream(), OldTorchStream(), None, 0):
        k(1, 1, y, stream=each)
    print([one.stream == stream.value for one in launches])
    """)
    assert said == "[True, True, True, False, False]"


def test_names_headers_defines_entries_and_variables_are_found(run):
    said = run("""
    k = kiln.Kernel(
        '#include "own.h"\\n__constant__ double table[4];\\n'
        'template <typename T> __global__ void scale(TYPE* y) { *y *= FACTOR; }',
        ["scale<float>", "scale<double>", "&table"], headers={"own.h": "#define TYPE float\\n"},
        defines={"FACTOR": 2, "PLAIN": None}, options=["--maxrregcount=32"], file_name="mine.cu")
    assert k.attributes["max_threads_per_block"] > 0 and k.attributes["registers"] <= 32
    other = k.entry("scale<double>")
    assert other.key == k.key and len(k.key) == 64
    address, size = k.global_variable("table")
    assert address != 0 and size == 32
    assert k.image[:4] == b"\\x7fELF"
    assert kiln.statistics()["compiled"] == 1, "the module is shared"
    import pickle
    assert pickle.loads(pickle.dumps(k)).key == k.key
    try:
        k.entry("scale<int>").prepare()
    except kiln.NotFound as error:
        print("scale<int>" in str(error), isinstance(error, LookupError))
    """)
    assert said == "True True"


def test_what_python_asked_for_is_recorded_and_a_cache_warmed_from_that_has_it(python, tmp_path):
    for place in ("job", "other"):
        (tmp_path / place / "inc").mkdir(parents=True)
        (tmp_path / place / "inc/factor.h").write_text("#define FACTOR 5\n")
    record, warmed = tmp_path / "asked.jsonl", str(tmp_path / "warmed")
    code = """
    import os
    import kiln
    os.chdir(FOLDER)
    kiln.Kernel(
        '#include "own.h"\\n#include <factor.h>\\n'
        'template <typename T> __global__ void scale(TYPE* y) { *y *= FACTOR * BY; }',
        ["scale<float>"], headers={"own.h": "#define TYPE float\\n"}, include_dirs=["inc"],
        defines={"BY": 2}, options=["--std=c++20", "-G"], file_name="/x/mine.cu").prepare()
    print(kiln.statistics()["compiled"])
    """
    asked = code.replace("FOLDER", repr(str(tmp_path / "job")))
    assert python(asked, KILN_RECORD=str(record)) == "1"
    (line,) = map(json.loads, record.read_text().splitlines())
    source, arch = line.pop("source"), line.pop("arch")
    assert "FACTOR * BY" in source and arch
    assert line == {
        "file": "mine.cu", "headers": {"own.h": "#define TYPE float\n"}, "defines": ["BY=2"],
        "include_dirs": [str(tmp_path / "job/inc")], "std": "c++20", "options": ["-G"],
        "names": ["scale<float>"]}
    said = python(f"import kiln; print(kiln.warm(manifest={str(record)!r}).compiled)",
                  KILN_CACHE_DIR=warmed)
    assert said == "1"
    replay = code.replace("FOLDER", repr(str(tmp_path / "other")))
    assert python(replay, KILN_CACHE_DIR=warmed, KILN_NO_JIT="1") == "0"


def test_sources_are_linked_and_ptx_is_a_target(run):
    said = run("""
    two = ["extern __device__ float twice(float);\\n"
           "template <typename T> __global__ void scale(T* y) { *y = twice(*y); }",
           "__device__ float twice(float x) { return 2 * x; }"]
    try:
        linked = kiln.Kernel(two, "scale<float>", options=["-dlto"])
        print(linked.image[:4] == b"\x7fELF")
    except kiln.Unavailable as error:
        print("nvJitLink" in str(error))
    ptx = kiln.Kernel('extern "C" __global__ void k() {}', target="compute_80")
    print(b".target sm_80" in ptx.image)
    """)
    assert said.split() == ["True", "True"]


def test_one_text_stands_for_a_list_of_one(python, tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc/own.h").write_text("#define TYPE float\n")
    said = python(
        """
    import kiln
    source = '#include <own.h>\\nextern "C" __global__ void one(TYPE* y) { *y = FACTOR; }'
    one = kiln.Kernel(source, "one", options="-lineinfo", defines="FACTOR=2", include_dirs=FOLDER)
    several = kiln.Kernel([source], ["one"], options=["-lineinfo"], defines=["FACTOR=2"],
                          include_dirs=[FOLDER])
    print(one.key == several.key)
    """.replace("FOLDER", repr(str(tmp_path / "inc")))
    )
    assert said == "True"


def test_object_code_is_that_of_cuda_core(run):
    pytest.importorskip("cuda.core")
    said = run("""
    code = kiln.Kernel('extern "C" __global__ void one(float* y) {}').object_code()
    print(code.code_type)
    """)
    assert said == "cubin"


def test_a_profiler_sees_the_gets_and_loads_that_take_time(python, tmp_path):
    tool = KIT / "libkiln-nvtx-tool.so"
    if not tool.exists():
        pytest.skip("the CUDA headers are without NVTX's")
    log = tmp_path / "log"
    python(
        """
        import kiln, simulated
        simulated.use("9.0")
        fill = kiln.Kernel('extern "C" __global__ void fill(float* y) { *y = 1; }', name="fill")
        fill(1, 1, None)
        fill(1, 1, None)  # from memory: no range
        """,
        NVTX_INJECTION64_PATH=str(tool),
        KILN_NVTX_LOG=str(log),
    )
    ranges = ["domain kiln", "push get kernel.cu", "push load kernel.cu", "pop", "pop"]
    assert log.read_text().splitlines() == ranges


def test_the_kernel_of_the_readme_runs_as_it_stands_there(python):
    page = (ROOT / "python/README.md").read_text()
    (block,) = [block for block in blocks(page, "python") if "kiln.Kernel('" in block]
    code = textwrap.dedent(SETUP) + textwrap.dedent(
        """
        launches = simulated.record(driver, "scale", ctypes.c_uint64, ctypes.c_uint64,
                                    ctypes.c_float, ctypes.c_int)
        n = 1000
        x, y = np.ones(n, np.float32), np.empty(n, np.float32)
        """
    )
    said = python(code + block + "\nprint(launches[0].grid, launches[0].values[2:])")
    assert said == "(4, 1, 1) [2.0, 1000]"


def test_the_module_of_the_readme_runs(python, tmp_path):
    (tmp_path / "norms.cu").write_text("""
        template <typename T> __global__ void norm(T* y, const T* x, int n) {}
        extern "C" __global__ void fill(float* y, float x) {}""")
    (block,) = [block for block in blocks((ROOT / "python/README.md").read_text(), "python") if "kiln.Module" in block]
    code = textwrap.dedent(SETUP) + textwrap.dedent("""
        launches = simulated.record(driver, "fill", ctypes.c_uint64, ctypes.c_float)
        rows, n, x = 2, 4, np.zeros(8, np.float32)
        """)
    assert python(code + block + "print(launches[0].values[1])", folder=tmp_path) == "1.0"


def test_the_python_of_every_page_is_python():
    for page in ("README.md", "python/README.md", "docs/stories.md"):
        found = blocks((ROOT / page).read_text(), "python")
        assert found, page
        for block in found:
            compile(block, page, "exec")


@needs_torch
def test_tensors_of_torch_arrive_as_their_addresses(run):
    said = run("""
    import torch
    launches = simulated.record(driver, "two", ctypes.c_uint64, ctypes.c_uint64)
    k = kiln.Kernel('extern "C" __global__ void two(void* a, void* b) {}')
    plain = torch.zeros(4, dtype=torch.bfloat16)
    wants_grad = torch.zeros(8, requires_grad=True)
    view = torch.zeros(8, 8)[2:, ::2]
    parameter = torch.nn.Parameter(torch.zeros(3))
    empty = torch.empty(0)
    k(1, 1, plain, wants_grad)
    k(1, 1, view, parameter)
    k(1, 1, wants_grad * 1, empty)
    for tensors, launch in zip([(plain, wants_grad), (view, parameter)], launches):
        assert launch.values == [tensor.data_ptr() for tensor in tensors], launch
    assert launches[2].values[1] == empty.data_ptr()
    for lazy in (torch.zeros(4, dtype=torch.cfloat).conj(), torch._neg_view(torch.zeros(4))):
        try:
            k(1, 1, lazy, plain)
        except kiln.InvalidArgument as error:
            assert "resolve_conj()" in str(error), error
    print(len(launches))
    """, torch=True)
    assert said == "3"


def test_threads_whose_first_calls_coincide_open_one_library(python):
    said = python("""
    import threading
    import kiln
    said = []
    threads = [threading.Thread(target=lambda: said.append(len(kiln.statistics()))) for _ in range(8)]
    [each.start() for each in threads]; [each.join() for each in threads]
    print(said)
    """, KILN_NO_JIT="0")
    assert said == "[9, 9, 9, 9, 9, 9, 9, 9]"


def test_hints_of_a_launch_reach_the_driver(python):
    python("""
    import ctypes
    import kiln.testing
    kiln.testing.use_simulated_device("9.0")
    kiln.testing.define_kernel("fill", (ctypes.c_void_p, ctypes.c_float), lambda *_: None)
    k = kiln.Kernel('extern "C" __global__ void fill(float* y, float x) {}', device=0)
    y = None
    k(8, 32, y, 1, programmatic=True, priority=-1)
    k(8, 32, y, 1, cluster=2, preferred_cluster=(4, 1, 1))
    k(8, 32, y, 1)
    first, second, plain = kiln.testing.launches()
    assert first.programmatic and first.priority == -1 and first.cluster == (0, 0, 0)
    assert second.cluster == (2, 1, 1) and second.preferred_cluster == (0, 0, 0)  # of 10.0 and later
    assert not plain.programmatic and plain.priority is None
    for wrong in ({"priority": 0.5}, {"priority": 2**31}, {"preferred_cluster": 3, "cluster": 2}, {"preferred_cluster": ()}):
        try:
            k(8, 32, y, 1, **wrong)
            raise SystemExit(f"{wrong} was not refused")
        except kiln.InvalidArgument:
            pass
    """)


FILES = """
    import pathlib
    folder = pathlib.Path("sources")
    folder.mkdir()
    (folder / "own.h").write_text("#define FACTOR 3\\n")
    (folder / "k.cu").write_text('''#include "own.h"
    __device__ int table[4];
    template <typename T> __global__ void scale(T* x) { *x = FACTOR; }
    extern "C" __global__ void fill(float* y, float x) {}
    __global__ void plain(int n) {}''')
"""


def test_a_source_comes_from_a_file_with_the_headers_beside_it(run, tmp_path):
    code = FILES + """
    import os
    kernel = kiln.Kernel.from_file("sources/k.cu", "scale<float>", device=0).prepare()
    assert repr(kernel) == "<kiln.Kernel scale<float>>"
    same = kiln.Kernel(folder / "k.cu", "scale<float>", device=0)
    os.chdir("/")  # the folder was made absolute, and the text was read
    assert same.key == kernel.key
    """
    run(code, folder=tmp_path)


def test_a_file_that_cannot_be_a_source_is_said(run, tmp_path):
    said = run(
        FILES
        + refusal('kiln.Kernel.from_file("none.cu")', "NotFound")
        + refusal('kiln.Kernel.from_file(folder)', "IoError")
        + refusal('kiln.Kernel("sources/k.cu")')
        + '    (folder / "latin.cu").write_bytes(b"// \\xe9")\n'
        + refusal('kiln.Kernel(folder / "latin.cu")')
        + refusal("kiln.Kernel.from_file(3)")
        + refusal('kiln.Kernel.from_file("none.ptx")', "NotFound")
        + refusal('kiln.Module(iter([folder / "k.cu"]), device=0)[["fill"]]')
        + refusal('kiln.Kernel(folder / "k.cu", "fill", device=0)(1, 1, (1.0, 2))'),
        folder=tmp_path,
    ).splitlines()
    for line, words in zip(
        said,
        ("none.cu: there is no such file", "sources cannot be read", "Kernel.from_file('sources/k.cu') reads it",
         "no text in UTF-8", "file is 3", "none.ptx: there is no such file", "name is ['fill']", "give the arguments one by one"),
        strict=True,
    ):
        assert words in line, said


def test_a_module_has_the_kernels_of_a_source_that_is_built_once(run, tmp_path):
    code = FILES + """
    import copy, pickle
    launches = simulated.record(driver, "fill", ctypes.c_uint64, ctypes.c_float)
    module = kiln.Module.from_file(folder / "k.cu", ["scale<float>", "scale<double>", "&table"], device=0).prepare()
    module["scale<float>"](1, 1, y)
    module["scale<double>"](1, 1, y)
    module.fill(1, 32, y, 2)
    module.plain(1, 1, 4)
    assert module.fill is module["fill"] and launches[0].values == [address, 2.0]
    assert module.global_variable("&table")[1] == 16 and module.image[:4] == bytes([127]) + b"ELF"
    assert kiln.statistics()["compiled"] == 1, kiln.statistics()
    assert pickle.loads(pickle.dumps(module)).key == copy.copy(module).key == module.key
    try:
        module.nothing(1, 1)
    except kiln.NotFound as error:
        assert "fill" in str(error) and "plain" in str(error), error
    try:
        module["scale<int>"](1, 1, y)
    except kiln.NotFound as error:
        print(error)
    """
    assert "scale<int>" in run(code, folder=tmp_path)


def test_variables_alone_are_a_module_and_ptx_is_a_source(run, tmp_path):
    run(
        """
    import pathlib
    table = kiln.Module("__constant__ float w[4]; extern \\"C\\" __device__ int v;", device=0).prepare()
    assert table.global_variable("w")[1] == 16 and table.global_variable("v")[1] == 4
    pathlib.Path("k.ptx").write_text(kiln.Kernel('extern "C" __global__ void fill(float* y, float x) {}',
                                                 target="compute_80", device=0).prepare().image.decode().rstrip(chr(0)))
    launches = simulated.record(driver, "fill", ctypes.c_uint64, ctypes.c_float)
    for kernel in (kiln.Kernel.from_file("k.ptx", device=0), kiln.Module(pathlib.Path("k.ptx"), device=0).fill):
        kernel(1, 32, y, np.float32(3))
        assert kernel.image[:4] == bytes([127]) + b"ELF"
    assert [one.values for one in launches] == [[address, 3.0]] * 2
    try:
        kiln.Kernel(pathlib.Path("k.ptx").read_text(), device=0).prepare()
    except kiln.CompileFailed as error:
        assert "hint: the source is PTX" in str(error), error
    """,
        folder=tmp_path,
    )


def test_a_kernel_of_ptx_is_found_by_its_name(run, tmp_path):
    run(
        """
    import pathlib
    source = 'extern "C" __global__ void pk(float* y) {} namespace n { __global__ void other(int i) {} }'
    file = pathlib.Path("p.ptx")
    file.write_text(kiln.Kernel(source, "n::other", target="compute_80", device=0).prepare().image.decode().rstrip(chr(0)))
    simulated.record(driver, "pk", ctypes.c_uint64)
    by_name, from_file = kiln.Kernel(file, "pk", device=0), kiln.Kernel.from_file("p.ptx", ["pk", "n::other"], device=0)
    for kernel in (by_name, from_file):
        kernel(1, 32, y)
    assert by_name.key == from_file.key == kiln.Module(file, "pk", device=0).prepare().key
    from_file.entry("n::other").prepare()
    for wrong in (kiln.Kernel(file, "nope", device=0), kiln.Kernel(file, "pk<float>", device=0)):
        try:
            wrong.prepare()
            raise SystemExit("it was found")
        except kiln.NotFound as error:
            assert "p.ptx" in str(error) and str(error).endswith("; it has n::other, pk"), error
    """,
        folder=tmp_path,
    )


def test_a_wrong_name_lists_the_kernels_of_the_source(run):
    said = run(refusal('kiln.Kernel(MIXED, "mixd", device=0).prepare()', "CompileFailed"))
    assert "hint: there is no kernel 'mixd' in kernel.cu; it has mixed, did you mean 'mixed'?" in said
    said = run(refusal('kiln.Kernel(MIXED, options=["-O3"], device=0).prepare()'))
    assert "hint: nvcc's -O3: device code is always optimized" in said
