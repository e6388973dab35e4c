"""What a program's own calls of NVRTC get beneath `kiln run`: from the cache, from a worker, or from the real
library, and always what that library gives."""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import servers
from beneath import (  # noqa: F401
    AUDIT, KILN, NEWEST, NVRTCS, SETUP, SMALL, TWELVE, alike, compiler, is_running, program, run, runtime, statistics,
)
from conftest import KIT, environment


# ---- What it is

EVERY_KIND = """
T = "template <class T> __global__ void t(T* x) { int unused; *x += 1; } __constant__ int c;"
for options in ([], [SM], ["-arch=compute_90"], [SM, "-dlto"], [SM, "-G"], [SM, "-lineinfo", "-rdc=true"]):
    print(json.dumps(compiled(nvrtc, T, *options, names=["t<int>", "&c", "t<float>"])))
print(json.dumps(compiled(nvrtc, "int x = y;", SM)))
print(json.dumps(compiled(nvrtc, '#include "a.h"\\n', SM, headers=[("a.h", "__device__ int a;")])))
"""


@pytest.mark.parametrize("version", NVRTCS)
def test_a_second_process_has_hits_with_the_bytes_logs_names_and_codes_of_the_library(version, alike, program):
    first = alike(EVERY_KIND, NVRTCS[version])
    assert first.compiles == "0 hits, 7 built, 1 failed"
    second = program(EVERY_KIND, NVRTCS[version])
    assert second.compiles == "7 hits, 0 built, 1 failed"
    assert second.said == first.said and second.said[6][0] == 6


def test_no_hit_opens_the_real_library(program):
    code = """
        print(json.dumps(compiled(nvrtc, K.format(2), SM)[0]))
        print(json.dumps(any("/.//.//" in line or "libnvrtc-builtins" in line for line in open("/proc/self/maps"))))
        print(json.dumps(sum("libnvrtc.so" in line and "kiln" not in line for line in open("/proc/self/maps"))))
    """
    assert program(code).compiles == "0 hits, 1 built"
    again = program(code)
    assert (again.said, again.compiles) == ([0, False, 0], "1 hits, 0 built")


def test_two_major_versions_in_one_process_have_their_own_results(alike):
    if TWELVE is None:
        pytest.skip("there is no NVRTC 12 here")
    code = f"""
        other = ctypes.CDLL({TWELVE!r})
        for each in (nvrtc, other, nvrtc, other): print(json.dumps(compiled(each, K.format(2), SM)))
    """
    ended = alike(code)
    assert ended.said[0] == ended.said[2] != ended.said[1] == ended.said[3]
    assert ended.compiles == "2 hits, 2 built"


def test_paths_are_below_the_current_folder_at_each_compile(alike, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "inc").mkdir(parents=True)
        (tmp_path / name / "inc/h.h").write_text(f'__device__ const char* file = __FILE__ "{name}";\n')
    code = """
        text = '#include "h.h"\\n'
        for folder, spelled in (("a", "inc"), ("b", "inc"), ("b", "./inc"), ("b", os.path.abspath("b/inc")), ("a", "inc")):
            top = os.getcwd()
            os.chdir(folder)
            print(json.dumps(compiled(nvrtc, text, SM, "-I" + spelled)))
            os.chdir(top)
    """
    ended = alike(code)
    assert ended.compiles == "1 hits, 4 built" and [each[0] for each in ended.said] == [0] * 5


def test_a_header_that_changes_is_seen_by_the_next_compile(alike):
    code = """
        for value in (1, 2, 1):
            open("h.h", "w").write(f"#define N {value}\\n")
            print(json.dumps(compiled(nvrtc, '#include "h.h"\\n__device__ int n = N;', SM)))
    """
    ended = alike(code)
    assert ended.said[0] == ended.said[2] != ended.said[1]
    assert ended.compiles == "1 hits, 2 built"


# Its symbol has the program's name.
OF_FUNCTION = "'static __device__ __noinline__ int f(int x) { return x * x; } __global__ void k(int* p) { *p = f(*p); }'"
NAMED = {  # how often three programs of other names and a fourth of the first one's are built
    "K.format(2), SM": 1,
    "K.format(2)": 1,
    "K.replace('{{', '{{ int unused;', 1).format(2), SM": 1,  # a log that begins with the name
    "'__device__ int n;\\n#pragma message(\"of /tmp/a/x.cu\")', SM": 2,  # the first one's name is in the source
    f"{OF_FUNCTION}, SM": 3,
    "'__device__ const char* f = __FILE__;', SM": 3,
    "'__global__ void k(int* p) { assert(*p); }', SM": 3,
    "'__device__ const char* f = FILE;', SM, '-DFILE=__FILE__'": 3,
    "'#include \"h.h\"\\n__device__ const char* f = HERE;', '-I.'": 3,
    "K.format(2), SM, '-lineinfo'": 3,
    "K.format(2), SM, '-dlto'": 3,
    "'int x = y;', SM": 0,
}


@pytest.mark.parametrize("arguments", NAMED)
def test_a_program_in_a_temporary_file_is_built_again_only_if_its_name_is_in_a_result(arguments, alike, tmp_path):
    (tmp_path / "h.h").write_text("#define HERE __FILE__\n")
    code = f"""
        for name in ("/tmp/a/x.cu", "/tmp/b/x.cu", "y.cu", "/tmp/a/x.cu"):
            print(json.dumps(compiled(nvrtc, {arguments}, name=name)))
    """
    ended = alike(code)
    built = NAMED[arguments]
    assert ended.compiles == (f"{4 - built} hits, {built} built" if built else "0 hits, 0 built, 4 failed")


def test_a_header_beside_the_program_is_spelled_with_the_folder_of_its_name(alike, tmp_path):
    for folder in ("sub", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "h.h").write_text("__device__ const char* f = __FILE__;\n")
    code = """
        for name in ("sub/k.cu", "other/k.cu", os.path.abspath("sub/k.cu"), "sub/k.cu"):
            print(json.dumps(compiled(nvrtc, '#include "h.h"', SM, name=name)))
    """
    assert alike(code).compiles == "1 hits, 3 built"


def test_what_was_recorded_under_two_names_is_warmed_and_packed_for_both(program, run, tmp_path):
    code = """
        own = "static __device__ __noinline__ int f(int x) { return x * x; } __global__ void k(int* p) { *p = f(*p); }"
        for name in ("a.cu", "b.cu"): print(json.dumps(compiled(nvrtc, own, SM, name=name)))
    """
    manifest, fresh, pack = (str(tmp_path / name) for name in ("job.jsonl", "fresh", "job.kpack"))
    first = program(code, KILN_RECORD=manifest)
    assert first.compiles == "0 hits, 2 built" and first.said[0] != first.said[1]
    for words in (("warm", "--manifest", manifest), ("pack", "-o", pack, "--manifest", manifest)):
        done = run(KILN, *words, mode=None, KILN_CACHE_DIR=fresh)
        assert done.status == 0, done.errors
    again = program(code, KILN_CACHE_DIR=str(tmp_path / "node"), KILN_SEED=pack, KILN_NO_JIT="1")
    assert (again.said, again.compiles) == (first.said, "2 hits, 0 built")


def test_a_lowered_name_is_there_as_long_as_its_program(alike):
    ended = alike("""
        program = Program(nvrtc, "template <class T> __global__ void t(T*) {}")
        program.add("t<int>")
        name = ctypes.c_char_p()
        codes = [program.compile(SM), nvrtc.nvrtcGetLoweredName(program.handle, b"t<int>", ctypes.byref(name))]
        kept = ctypes.cast(name, ctypes.c_void_p).value
        codes.append(program.compile(SM, "-G"))
        print(json.dumps([codes, ctypes.string_at(kept).decode()]))
    """)
    assert ended.said == [[[0, 0, 0], "_Z1tIiEvPT_"]]


def test_a_failure_names_the_program_of_each_thread_that_waited_for_it(alike):
    code = """
        logs, together = {}, threading.Barrier(8)
        def fail(name):
            together.wait()
            logs[name] = compiled(nvrtc, "int x = y;" + "// " * 100000, SM, name=name)[1]
        threads = [threading.Thread(target=fail, args=(f"{i}.cu",)) for i in range(8)]
        for each in threads: each.start()
        for each in threads: each.join()
        print(json.dumps(logs, sort_keys=True))
    """
    assert alike(code).compiles == "0 hits, 0 built, 8 failed"


def test_a_header_whose_path_is_composed_of_macros_is_in_the_key(alike, tmp_path):
    (tmp_path / "inc/system/cuda").mkdir(parents=True)
    (tmp_path / "inc/config.h").write_text(
        "#ifdef OTHER\n#define NAME omp\n#else\n#define NAME cuda\n#endif\n"
        "#define ROOT system/NAME\n#define TAG <ROOT/tag.h>\n#include TAG\n"
    )
    code = """
        for value in (1, 1, 2):
            open("inc/system/cuda/tag.h", "w").write(f"#define N {value}\\n")
            for _ in range(2):
                print(json.dumps(compiled(nvrtc, '#include "config.h"\\n__device__ int n = N;', SM, "-Iinc")))
    """
    assert alike(code).compiles == "4 hits, 2 built"


def test_a_header_in_memory_may_have_the_name_of_a_file(alike, tmp_path):
    code = """
        for value in (1, 2):
            open("h.h", "w").write(f"#define N {value}\\n")
            for _ in range(2):
                print(json.dumps(compiled(
                    nvrtc, '#include "h.h"\\n__device__ int n = N;', SM, headers=[("h.h", "#define N 3\\n")])))
    """
    assert alike(code).compiles == "2 hits, 2 built"  # NVRTC looks at the file, too


def test_a_changed_source_or_header_in_memory_is_told_by_its_line(program, tmp_path):
    header = 'print(json.dumps(compiled(nvrtc, "#include <x.h>\\n" + K.format(2), SM, headers=[("x.h", "\\n__device__ int x{};")])[0]))'
    source = 'print(json.dumps(compiled(nvrtc, K.format("1;\\n*x = {}"), SM)[0]))'

    def told(code, **changes):
        """The reason of a build, which log and event give alike."""
        (line,) = (line for line in program(code, KILN_LOG="info", KILN_EVENTS="events", **changes).errors if "built k.cu" in line)
        nearest = json.loads((tmp_path / "events").read_text().splitlines()[-1])["nearest"]
        assert nearest and line.endswith(nearest)
        return nearest

    for code, field, text in ((source, "source_sha256", "*x = "), (header, "memory_header/x.h", "__device__ int x")):
        told(code.format(3))
        reason = told(code.format(4))
        assert f"differs in {field}: sha256 " in reason
        assert f", line 2: {text}4" in reason and ", in the entry sha256 " in reason and f", line 2: {text}3" in reason
        private = told(code.format(5), KILN_STORE_SOURCE="0")
        assert f"differs in {field}" in private and text not in private and ", line " not in private


def test_threads_and_processes_build_each_key_once(program, run, tmp_path, runtime):
    code = f"""{SETUP}
nvrtc = ctypes.CDLL({NEWEST!r})
def work(t):
    for i in range(3): assert compiled(nvrtc, K.format(3 * t + i), SM)[0] == 0
threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
for each in threads: each.start()
for each in threads: each.join()
"""
    env = environment(tmp_path, XDG_RUNTIME_DIR=str(runtime), LD_AUDIT=str(AUDIT), KILN_NVRTC_STANDIN="trace")
    children = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE, text=True) for _ in range(8)
    ]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0 and "passed" not in errors, errors
    counted = statistics(tmp_path)
    assert (counted["compiled"], counted["nvrtc_built"], counted["nvrtc_hits"]) == (12, 12, 84)


# ---- What is the real library's

PASSED = {
    "option": 'print(json.dumps(compiled(nvrtc, K.format(2), "--nope")))',
    "option ": 'print(json.dumps(compiled(nvrtc, K.format(2), SM, "-DX=", "--time=/dev/null")))',
    "option  ": """
        program = Program(nvrtc, K.format(2))
        print(json.dumps([program.compile("-arch=compute_90", "--optix-ir"), program.output("OptiXIR").hex()]))
    """,
    "callback": """
        stop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 0)
        program = Program(nvrtc, K.format(2))
        if hasattr(nvrtc, "nvrtcSetFlowCallback"):
            nvrtc.nvrtcSetFlowCallback(program.handle, stop, None)
        print(json.dumps([program.compile(SM), program.output("CUBIN").hex()]))
    """,
    "ptxas": """
        print(json.dumps(compiled(nvrtc, "__device__ int u(); __global__ void k(int* x) { *x = u(); }", SM)))
    """,
    "arguments": """
        program = Program(nvrtc, K.format(2))
        print(json.dumps([nvrtc.nvrtcCompileProgram(program.handle, -1, None),
                          nvrtc.nvrtcCompileProgram(program.handle, 1, None), program.compile(SM)]))
    """,
}


@pytest.mark.parametrize("reason", PASSED)
def test_what_kiln_does_not_keep_passes_and_is_counted(reason, alike, tmp_path):
    word = reason.strip()
    ended = alike(PASSED[reason])
    assert ended.compiles == f"0 hits, 0 built, 1 passed ({word})"
    assert statistics(tmp_path)[f"nvrtc_passed.{word}"] == 1


def test_after_a_pass_the_program_has_all_that_it_had(alike):
    ended = alike("""
        program = Program(nvrtc, "template <class T> __global__ void t(T* x) { *x += 1; }")
        print(json.dumps([program.add("t<int>"), program.compile(SM), program.compile("--nope")]))
        print(json.dumps([program.output(each).hex() for each in ("PTX", "CUBIN", "ProgramLog")]))
        print(json.dumps([program.lowered("t<int>"), program.add("t<float>"), program.destroy()]))
    """)
    assert ended.compiles == "0 hits, 1 built, 1 passed (option)" and ended.said[0] == [0, 0, 5]


@pytest.mark.parametrize("reason, changes", [
    ("no_worker", {"KILN_WORKER": "/nowhere"}),
    ("no_service", {"KILN_JOBS": "abc"}),
])
def test_a_kiln_that_cannot_work_leaves_the_program_as_it_is(reason, changes, alike, program, tmp_path):
    if reason == "no_worker":  # else the first question is what NVRTC it is
        program("print(json.dumps(compiled(nvrtc, K.format(3), SM)[0]))")
    assert alike(SMALL, **changes).compiles.endswith(f"1 passed ({reason})")


def test_where_nothing_can_be_written_the_program_runs_as_it_is(run):
    """Neither beside the program nor below the temporary folder, where a cache would take the named one's place."""
    bare = f"{SETUP}nvrtc = ctypes.CDLL({NEWEST!r})\n{SMALL}"
    hide = [*servers.PRIVATE, "sh", "-c", 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && exec "$@"', "sh",
            "unshare", "--user", "--map-user=54321"]  # who has no folder there yet
    ended = run(sys.executable, "-c", bare, prefix=hide, KILN_CACHE_DIR="/dev/null/cache", XDG_RUNTIME_DIR="/dev/null")
    assert ended.compiles == "0 hits, 0 built, 1 passed (cache_off)", ended.errors
    assert json.loads(ended.out) == json.loads(run(sys.executable, "-c", bare, mode=None).out)


def test_a_forked_child_compiles_by_itself(alike):
    ended = alike("""
        before = Program(nvrtc, K.format(2))
        kept = Program(nvrtc, K.format(3))
        codes = [kept.compile(SM)]
        child = os.fork()
        if child == 0:
            codes += [before.compile(SM), compiled(nvrtc, K.format(4), SM)[0], len(kept.output("CUBIN")) > 1000]
            codes += [kept.compile(SM, "-G"), before.destroy(), kept.destroy()]
            os._exit(codes != [0, 0, 0, True, 0, 0, 0])
        codes += [os.waitpid(child, 0)[1], before.compile(SM)]
        print(json.dumps(codes))
    """)
    assert ended.said == [[0, 0, 0]] and ended.compiles == "0 hits, 2 built"


def test_a_kiln_that_was_removed_or_replaced_leaves_the_program_as_it_is(run, tmp_path, compiler):
    """The stand-in is made first, and stays when its libkiln.so goes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    for name in ("bin/libkiln-audit.so", "bin/kiln-worker", "lib/libkiln.so.0.2"):
        (tmp_path / name).write_bytes((KIT.parent / name).read_bytes())
        (tmp_path / name).chmod(0o755)
    library = tmp_path / "lib/libkiln.so.0.2"
    text = f"{SETUP}nvrtc = ctypes.CDLL({NEWEST!r})\n{SMALL}"
    expected = run(sys.executable, "-c", text, mode=None).out

    def ended():
        return run(sys.executable, "-c", text, audit=str(tmp_path / "bin/libkiln-audit.so"))

    assert ended().compiles == "0 hits, 1 built"
    source = tmp_path / "other.c"
    source.write_text("void* kiln_nvrtc_engine(const char* layout) { return 0; }\n")
    for change in ("another version", "no library", "gone"):
        library.unlink()
        if change == "another version":
            compiler("-shared", "-fPIC", source, "-o", library)
        elif change == "no library":
            library.write_text("none")
        done = ended()
        assert (done.out, done.status, done.compiles) == (expected, 0, ""), change
        assert "there is no engine" in done.errors[0], change


# ---- What a source does to a worker, and not to the program


def test_a_compile_over_its_time_is_an_internal_error_that_says_so(program):
    ended = program("""
        for source in (ENDLESS, K.format(2)):
            code, log, _, _ = compiled(nvrtc, source, SM)
            print(json.dumps([code, log]))
    """, KILN_COMPILE_TIMEOUT="1s")
    assert [each[0] for each in ended.said] == [11, 0]
    assert "limit of 1.0 s" in ended.said[0][1] and "passed" not in ended.compiles


def test_a_worker_that_is_killed_is_an_internal_error_that_says_so(program, tmp_path):
    """By SIGSEGV: what comes from outside, as SIGKILL may, is tried once more."""
    worker = tmp_path / "worker"
    worker.write_text(
        "#!/bin/sh\n"
        f"[ -e '{tmp_path}/once' ] && exec '{KIT.parent}/bin/kiln-worker' \"$@\"\n"
        f"(sleep 1; kill -SEGV $$; touch '{tmp_path}/once') & exec '{KIT.parent}/bin/kiln-worker' \"$@\"\n"
    )
    worker.chmod(0o755)
    program(SMALL)  # so that NVRTC is known
    ended = program("""
        for source in (ENDLESS, K.format(2)):
            code, log, _, _ = compiled(nvrtc, source, SM)
            time.sleep(1)
            print(json.dumps([code, log]))
    """, KILN_WORKER=str(worker))
    assert [each[0] for each in ended.said] == [11, 0]
    assert "signal 11" in ended.said[0][1]


def test_a_compile_over_its_memory_is_an_internal_error_that_says_so(program):
    ended = program("""
        many = "\\n".join(f"__device__ int a{i}[] = {{{','.join(map(str, range(300)))}}};" for i in range(3000))
        code, log, _, _ = compiled(nvrtc, many, SM)
        print(json.dumps([code, log]))
        print(json.dumps(compiled(nvrtc, K.format(2), SM)[0]))
    """, KILN_WORKER_MEMORY="140MiB")
    assert ended.said[0][0] == 11 and "140 MiB" in ended.said[0][1]
    assert ended.said[1] == 0


def test_a_miss_where_nothing_may_be_built_is_a_compile_error_that_names_key_and_remedy(program):
    code = "code, log, _, _ = compiled(nvrtc, K.format(2), SM); print(json.dumps([code, log]))"
    (said,) = program(code, KILN_NO_JIT="1").said
    assert said[0] == 6 and "KILN_NO_JIT" in said[1] and "warm" in said[1] and "key " in said[1]
    program(code)
    assert program(code, KILN_NO_JIT="1").said == [[0, "\0"]]


# ---- Faults


def test_a_damaged_object_is_built_again(alike, program, tmp_path):
    alike(SMALL)
    (file,) = [each for each in (tmp_path / "cache/objects").rglob("*") if each.is_file()]
    whole = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])
    ended = alike(SMALL)
    assert ended.compiles == "0 hits, 1 built"
    assert program(SMALL).compiles == "1 hits, 0 built"


def test_a_full_disk_costs_the_entry_alone(alike, program, tmp_path):
    folder = tmp_path / "small"
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c",
              f"mkdir -p {folder} && mount -t tmpfs -o size=64k none {folder} && mkdir -m 0700 {folder}/c && "
              f"head -c 60k /dev/zero >{folder}/full; exec \"$@\"", "sh")
    if subprocess.run([*prefix, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no mount namespaces here")
    ended = alike("for _ in range(2): print(json.dumps(compiled(nvrtc, K.format(2), SM)))", prefix=prefix,
                  KILN_CACHE_DIR=str(folder / "c"))
    assert ended.compiles == "1 hits, 1 built", "the second is in memory"


def test_without_a_place_for_the_cache_the_program_runs(alike, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)
    for changes in ({"HOME": str(home), "KILN_CACHE_DIR": None}, {"KILN_CACHE_DIR": "/dev/null/cache"}):
        assert " built" in alike(SMALL, XDG_CACHE_HOME=None, **changes).compiles


def test_a_remote_that_is_gone_costs_little(alike):
    begin = time.perf_counter()
    ended = alike(SMALL, KILN_REMOTE="http://127.0.0.1:9;unsigned=1")
    assert ended.compiles == "0 hits, 1 built" and time.perf_counter() - begin < 10


def test_a_remotes_result_of_another_name_is_not_taken_for_ones_own(alike, program, tmp_path):
    """It may come before the build of the same key, and then answers that build's caller."""
    code = f"print(json.dumps(compiled(nvrtc, {OF_FUNCTION}, SM, name=%r)))"
    with servers.nginx(tmp_path / "nginx", "dav_methods PUT; create_full_put_path on;") as server:
        remote = {"KILN_REMOTE": f"{server.url};mode=rw;unsigned=1"}
        program(code % "/tmp/a/x.cu", KILN_CACHE_DIR=str(tmp_path / "first"), **remote)
        node = {"KILN_CACHE_DIR": str(tmp_path / "second"), **remote}
        assert alike(code % "/tmp/b/x.cu", **node).compiles == "0 hits, 1 built"
        assert ("GET", 200) in [(method, status) for method, _, status in server.requests()]
        assert alike(code % "/tmp/b/x.cu", **node).compiles == "1 hits, 0 built"


@pytest.mark.parametrize("end", ("sys.exit()", "os._exit(0)", "os.kill(os.getpid(), 15)"))
def test_a_process_that_ends_during_a_compile_ends_at_once_and_leaves_no_worker(end, program):
    begin = time.perf_counter()
    ended = program(f"""
        thread = threading.Thread(target=compiled, args=(nvrtc, ENDLESS, SM), daemon=True)
        thread.start()
        time.sleep(1)
        print(json.dumps(workers()), flush=True)
        {end}
    """, status=-15 if "kill" in end else 0)
    assert time.perf_counter() - begin < 10
    ((worker,),) = ended.said
    deadline = time.perf_counter() + 5
    while is_running(worker) and time.perf_counter() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


def test_a_library_that_is_closed_between_two_calls_goes_on(alike):
    alike("""
        from _ctypes import dlclose
        program = Program(nvrtc, K.format(2))
        dlclose(nvrtc._handle)
        program.nvrtc = ctypes.CDLL(nvrtc._name)
        print(json.dumps([program.compile(SM), program.output("CUBIN").hex()]))
    """)


def test_one_worker_waits_for_the_next_compile(program):
    (count,) = program("""
        threads = [threading.Thread(target=compiled, args=(nvrtc, K.format(i), SM)) for i in range(6)]
        for each in threads: each.start()
        for each in threads: each.join()
        time.sleep(0.2)
        print(json.dumps(len(workers())))
    """).said
    assert count == 1


# ---- Before a job


def test_what_was_recorded_is_warmed_packed_and_then_needs_no_compile(program, run, tmp_path):
    code = f"""
        others = [ctypes.CDLL(each) for each in {[*NVRTCS.values()]!r}]
        print(json.dumps([compiled(each, K.format(2), *options) for each in others
                          for options in ([SM], [], ["-dlto"], ["-arch=compute_80", "-DX=1"])]))
    """
    manifest = str(tmp_path / "job.jsonl")
    first = program(code, KILN_RECORD=manifest)
    count = 4 * len(NVRTCS)
    assert first.compiles == f"0 hits, {count} built"
    lines = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    assert len(lines) == count and {line["program"] for line in lines} == {os.path.basename(os.path.realpath(sys.executable))}
    assert len({line["toolchain"] for line in lines}) == len(NVRTCS)
    fresh, pack = str(tmp_path / "fresh"), str(tmp_path / "job.kpack")
    for words in (("warm", "--manifest", manifest), ("pack", "-o", pack, "--manifest", manifest)):
        done = run(KILN, *words, mode=None, KILN_CACHE_DIR=fresh)
        assert done.status == 0, done.errors
    again = program(code, KILN_CACHE_DIR=str(tmp_path / "node"), KILN_SEED=pack, KILN_NO_JIT="1")
    assert (again.said, again.compiles) == (first.said, f"{count} hits, 0 built")


@pytest.mark.parametrize("command, name", [
    (("train.py",), "train.py"),
    (("-m", "train"), "train"),
    ((b"tr\xffin.py",), "tr\ufffdin.py"),
    (("-m", "kiln", "run", "--compat", "neox", "train.py"), "train.py"),
])
def test_a_line_names_the_program(command, name, run, tmp_path):
    text = f"{SETUP}nvrtc = ctypes.CDLL({NEWEST!r})\n{SMALL}\n"
    for file in (b"train.py", b"tr\xffin.py"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + file)).write_text(text)
    ended = run(sys.executable, *command, KILN_RECORD=str(tmp_path / "job.jsonl"))
    assert (ended.status, ended.compiles) == (0, "0 hits, 1 built"), ended.errors
    (line,) = (tmp_path / "job.jsonl").read_text().splitlines()
    assert json.loads(line)["program"] == name


def test_a_line_whose_nvrtc_is_not_here_names_the_wheel(program, run, tmp_path):
    manifest = tmp_path / "job.jsonl"
    program(SMALL, KILN_RECORD=str(manifest))
    line = json.loads(manifest.read_text())
    version, ids, path = line["toolchain"].split()
    line["toolchain"] = f"{version} {'0' * len(ids.split('+')[0])}+{ids.split('+')[1]} {path}"
    manifest.write_text(json.dumps(line) + "\n")
    done = run(KILN, "warm", "--manifest", manifest, mode=None)
    assert done.status == 3 and f"nvidia-cuda-nvrtc=={version}.*" in done.errors[-1], done.errors


def test_ls_names_the_programs_file_and_its_kernels(program, run):
    program('print(json.dumps(compiled(nvrtc, K.format(2), SM, name="sub/mine.cu")[0]))')
    done = run(KILN, "ls", mode=None)
    assert "mine.cu: k" in done.out


# ---- Privacy


@pytest.mark.parametrize("kept", (True, False))
def test_sources_and_logs_leave_the_machine_only_when_asked_for(kept, alike, program, run, tmp_path):
    code = """
        for text in ("int SECRET;", "/* SECRET */", "SECRET;"):
            print(json.dumps(compiled(nvrtc, 'extern "C" __global__ void k(float* x) {%s *x = 1; }' % text, SM)))
    """
    setting = {} if kept else {"KILN_STORE_SOURCE": "0"}
    alike(code, **setting)

    def found(folder):
        return any(b"SECRET" in each.read_bytes() for each in Path(folder).rglob("*") if each.is_file())

    assert found(tmp_path / "cache") == kept
    for words, is_there in (((), False), (("--with-source",), kept)):
        pack = tmp_path / f"packs{len(words)}/a.kpack"
        pack.parent.mkdir()
        assert run(KILN, "pack", "-o", pack, *words, mode=None).status == 0
        assert found(pack.parent) == is_there
        ended = alike(code, KILN_CACHE_DIR=str(tmp_path / f"node{len(words)}"), KILN_SEED=str(pack), **setting)
        said = "2 hits, 0 built, 1 failed" + ("" if is_there else ", 1 passed (output)")
        assert ended.compiles == said, "the log of a warning"


def test_a_source_that_must_not_be_kept_is_in_no_reproduction(program, tmp_path):
    ended = program("print(json.dumps(compiled(nvrtc, ENDLESS, SM)[0]))", KILN_COMPILE_TIMEOUT="1s", KILN_STORE_SOURCE="0")
    assert ended.said == [11]
    assert not any(b"SECRET" in each.read_bytes() for each in (tmp_path / "cache").rglob("*") if each.is_file())


# ---- Programs of others


def test_cuda_core_has_hits_for_all_that_it_compiles(run, tmp_path):
    if find_spec("cuda") is None or find_spec("cuda.core") is None:
        pytest.skip("cuda.core is not installed")
    code = """
import hashlib
from cuda.core import Program, ProgramOptions
source = 'template <class T> __global__ void scale(T* x) { x[threadIdx.x] *= 2; }'
for kind in ("cubin", "ptx", "ltoir"):
    options = ProgramOptions(arch="sm_90", link_time_optimization=kind == "ltoir")
    made = Program(source, "c++", options).compile(kind, name_expressions=["scale<float>"])
    print(kind, dict(made.symbol_mapping), hashlib.sha256(bytes(made.code)).hexdigest())
try:
    Program("int x = y;", "c++", ProgramOptions(arch="sm_90")).compile("cubin")
except Exception as error:
    print(error)
"""
    (tmp_path / "libcuda.so.1").symlink_to(KIT / "libkiln-simulated-driver.so")
    without = run(sys.executable, "-c", code, mode=None, LD_LIBRARY_PATH=str(tmp_path))
    first, second = (run(sys.executable, "-c", code, LD_LIBRARY_PATH=str(tmp_path)) for _ in range(2))
    assert without.status == 0, without.errors
    assert first.out == second.out == without.out
    assert second.compiles.startswith("3 hits, 0 built"), second.compiles


def test_doctor_shows_what_would_be_caught(run, program):
    code = f"{SETUP}nvrtc = ctypes.CDLL({NEWEST!r})\n{SMALL}"
    done = run(KILN, "doctor", "--json", "--", sys.executable, "-c", code, mode=None)
    checks = [each for each in json.loads(done.out)["checks"] if each["name"] == "program"]
    assert [each["verdict"] for each in checks] == ["ok", "ok"]
    assert NEWEST in checks[0]["detail"] and checks[1]["detail"].endswith("; 0 hits, 1 built")
    done = run(KILN, "doctor", "--json", "--", "sh", "-c", "exit 3", mode=None)
    checks = [each["detail"] for each in json.loads(done.out)["checks"] if each["name"] == "program"]
    assert checks == ["sh loaded no NVRTC", "sh ended with 3"]
    shell = "trap - PIPE; kill -PIPE $$; exit 0"  # which cannot reset it where it was given ignored
    done = run(KILN, "doctor", "--json", "--", "sh", "-c", shell, mode=None)
    assert "sh was ended by signal 13" in done.out
    done = run(KILN, "doctor", "--json", "--", "/nowhere", mode=None)
    assert done.status == 1 and "/nowhere cannot be run" in done.out
