"""kiln.triton beneath Triton itself, which compiles with no GPU: how often its assembler ran is counted."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import KIT, ROOT, WITHOUT_TORCH, check_session
from triton_job import FOLDERS, MANAGER, Job, end, ended

every_triton = pytest.mark.parametrize("triton", FOLDERS, ids=lambda each: each.name)


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "job")


@every_triton
def test_a_kernel_is_found_by_another_process_and_listed_by_name(tmp_path, triton):
    job = Job(tmp_path / "job", triton)
    itself = Job(tmp_path / "itself", triton).run(64, 128, manager=None)
    assert [job.run(64, 128) for _ in range(2)] == [itself] * 2
    assert job.assembled() == 2 and not (job.folder / ".triton").exists()
    entries = json.loads(job.kiln("ls", "--kind", "files", "--json"))["entries"]
    version = next(triton.glob("triton-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    assert [(each["name"], each["arch"], each["toolchain"]) for each in entries] == [
        ("add_kernel", "sm_90", f"triton-{version}")
    ] * 2
    assert "add_kernel.cubin" in job.kiln("show", entries[0]["key"])


@every_triton
def test_on_a_fresh_node_a_pack_is_enough(tmp_path, triton):
    built = Job(tmp_path / "login", triton)
    out = built.run(64, 128)
    built.kiln("pack", "-o", str(tmp_path / "job.kpack"))
    node = Job(tmp_path / "node", triton)
    seed = {"KILN_SEED": str(tmp_path / "job.kpack"), "KILN_NO_JIT": "1"}
    assert node.run(64, 128, **seed) == out and node.assembled() == 0
    errors = ended(node.compile(64, 256, **seed), status=1)
    assert "kiln.errors.Unavailable: add_kernel (key " in errors and "KILN_NO_JIT" in errors


def test_of_processes_one_compiles_each_kernel(job):
    others = [job.compile(64, 128, SLOW="0.2") for _ in range(16)]
    assert len({ended(each) for each in others}) == 1
    assert job.assembled() == 2


def test_a_process_that_is_killed_or_fails_holds_nobody_up(job):
    killed = job.compile(64, SLOW="60")
    job.wait_until_it_assembles()
    begun = time.monotonic()
    other = job.compile(64)
    end(killed)
    ended(other)
    assert job.run("broken", 64) and time.monotonic() - begun < 30
    assert job.assembled() == 2


def test_a_kernel_that_fails_holds_nobody_up_while_its_process_lives(job):
    """Whether or not its exception is kept, and in another thread."""
    code = """
    import sys, threading, time, triton_kernels as kernels
    kept = []
    def fails(keeps):
        try:
            kernels.compiled(kernels.broken_kernel, 64)
        except Exception as error:
            kept.extend([error] if keeps else [])
    def in_thread(*arguments):
        thread = threading.Thread(target=fails, args=arguments)
        thread.start()
        thread.join()
    begun = time.monotonic()
    in_thread(True)
    in_thread(False)
    fails(False)
    in_thread(True)
    fails(True)
    fails(False)
    kernels.main(["64"])  # what comes next gives back what an exception still holds
    print("ready", time.monotonic() - begun < 30, flush=True)
    sys.stdin.read()
    """
    first = job.start(code=code, stdin=subprocess.PIPE)
    assert first.stdout.readline().startswith("64 ") and first.stdout.readline() == "ready True\n"
    begun = time.monotonic()
    assert job.run("broken", 64).startswith("broken 2\n64 ") and time.monotonic() - begun < 30
    first.communicate("")
    assert job.assembled() == 1


def test_a_forked_child_finds_and_compiles_without_a_turn_and_obeys_no_jit(job):
    code = """
    import os, triton_kernels as kernels
    kernels.main(["64"])
    def child(*blocks):
        if os.fork() == 0:
            try:
                kernels.main(blocks)
            except Exception as error:
                print(type(error).__name__, error, flush=True)
            os._exit(0)
        os.wait()
    child("64", MORE)
    """
    said = ended(job.start(code=code.replace("MORE", "'128'"))).split()
    assert said[0::2] == ["64", "64", "128"] and job.assembled() == 2
    (job.folder / "assembled").unlink()
    refused = ended(job.start(code=code.replace("MORE", "'256'"), KILN_NO_JIT="1")).splitlines()[-1]
    assert refused.startswith("ForkError add_kernel (key ") and job.assembled() == 0


def test_a_process_that_stops_is_waited_for_until_the_limit(job):
    code = "import kiln.triton, triton_kernels; kiln.triton._LIMIT_SECONDS = 1.0; triton_kernels.main(['64'])"
    stopped = job.start(code=code, SLOW="60")
    job.wait_until_it_assembles()
    stopped.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        ended(job.start(code=code))
        assert 4 < time.monotonic() - begun < 15 and job.assembled() == 2
    finally:
        end(stopped)


def test_a_damaged_kernel_is_compiled_again(job):
    out = job.run(64)
    (path,) = [
        each for each in (job.folder / "cache/objects").rglob("*") if each.is_file()
    ]
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert job.run(64) == out and job.assembled() == 2
    assert job.run(64) == out and job.assembled() == 2


def test_without_a_cache_triton_compiles(job):
    assert len({job.run(64, KILN_CACHE_DIR="/proc/kiln") for _ in range(2)}) == 1 and job.assembled() == 2


def test_a_distributed_file_system_fails_triton_and_not_kiln(tmp_path):
    """Files are not seen at once, and empty folders cannot be removed; lock calls never return."""

    def ends(folder, manager):
        job = Job(folder)
        late = {"LD_PRELOAD": str(KIT / "libkiln-preload.so"), "KILN_PRELOAD_LATE": str(folder)}
        late |= {"KILN_PRELOAD_NETWORK": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
        others = [job.compile(64, manager=manager, **late) for _ in range(8)]
        outs = {each.communicate(timeout=120)[0] for each in others}
        return {each.returncode for each in others}, outs, job.assembled()

    status, _, _ = ends(tmp_path / "itself", None)
    assert status == {1}, "else what follows would prove nothing"
    status, outs, assembled = ends(tmp_path / "kiln", MANAGER)
    assert status == {0} and len(outs) == 1 and assembled >= 1, "who sees no file in time compiles"


def test_what_users_change_by_hand_is_left_to_triton(job):
    job.run(64, TRITON_KERNEL_DUMP="1", TRITON_DUMP_DIR=str(job.folder / "dump"))
    assert list((job.folder / "dump").rglob("add_kernel.ptx"))
    entries = json.loads(job.kiln("ls", "--json"))["entries"]
    over = {"TRITON_KERNEL_OVERRIDE": "1", "TRITON_OVERRIDE_DIR": str(job.folder / "override")}
    job.run(64, 128, **over)
    assert job.assembled() == 3, "an overridden kernel is not one of the cache"
    assert len(entries) == len(json.loads(job.kiln("ls", "--json"))["entries"]) == 1


FILES = """
from kiln.triton import CacheManager
manager = CacheManager("KEY")
path = manager.get_file(NAME)
print("found" if path else "missing", open(path).read() if path else "")
"""


def file_of(job, name, content, setup="", **changes):
    """What one process finds, and what it then puts where it finds nothing."""
    code = f"NAME = {name!r}\n{setup}{FILES}"
    code += f"if not path: print(open(manager.put({content!r}, NAME)).read())\n"
    return ended(job.start(code=code, **changes)).split()


def test_a_launcher_is_kept_and_one_that_cannot_be_used_is_replaced(job):
    assert file_of(job, "launcher.so", b"one") == ["missing", "one"]
    assert file_of(job, "launcher.so", b"two") == ["found", "one"]
    code = f"NAME = 'launcher.so'\n{FILES}print(open(manager.put(b'two', NAME)).read())"
    assert ended(job.start(code=code)).split() == ["found", "one", "two"]
    assert file_of(job, "launcher.so", b"three") == ["found", "two"]
    assert file_of(job, "other.so", b"one", KILN_NO_JIT="1") == ["missing", "one"], "it is host code, of this machine"


def test_what_is_put_twice_is_the_second(job):
    code = """
    from kiln.triton import CacheManager
    for text in ("one", "two"):
        for _ in range(2):
            manager = CacheManager("KEY")
            print(open(manager.put(text, "f.txt")).read(), open(manager.get_file("f.txt")).read())
    """
    assert ended(job.start(code=code)).split() == ["one"] * 4 + ["two"] * 4
    assert file_of(job, "f.txt", "three") == ["found", "two"]


def in_namespace(job, mount, *blocks):
    """What triton_kernels.py prints where the job's cache is a mount of its own."""
    (job.folder / "cache").mkdir(mode=0o700, exist_ok=True)
    program = job.folder / "compile.py"
    program.write_text(f"{WITHOUT_TORCH}import triton_kernels\ntriton_kernels.main({list(blocks)})")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && exec {sys.executable} -W ignore {program}"],
        env=job.environment(MANAGER),
        cwd=job.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_read_only_and_a_full_cache_are_no_failure(job):
    out = job.run(64, 128)
    assert in_namespace(job, "mount --bind cache cache && mount -o remount,bind,ro cache", "64", "128") == out
    assert job.assembled() == 2
    read_only = in_namespace(job, "mount --bind cache cache && mount -o remount,bind,ro cache", "64", "256")
    assert read_only.split()[::2] == ["64", "256"] and job.assembled() == 3
    full = in_namespace(job, "mount -t tmpfs -o size=24k,mode=700 none cache", "64", "128")
    assert full == out and job.assembled() == 5


def test_without_a_place_for_its_files_triton_keeps_them(job):
    out = job.run(64)
    both = job.run(64, 128, TMPDIR=str(job.folder / "absent"))
    assert both.startswith(out) and job.run(64, 128) == both and job.assembled() == 3



DEVICE = """
import triton
from triton.backends.compiler import GPUTarget
class Driver:
    utils = property(lambda self: self)
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_device = lambda self: 0
    get_device_properties = lambda self, device: {"sm_clock_rate": CLOCK, "multiprocessor_count": 132}
triton.runtime.driver.set_active(Driver())
"""


def test_results_of_autotuning_are_never_those_of_another_device(job):
    name = "add_kernel.autotune.json"
    (job.folder / "lib").mkdir()
    (job.folder / "lib/libcuda.so.1").symlink_to(KIT / "libkiln-simulated-driver.so")
    with_driver = {"LD_LIBRARY_PATH": f"{job.folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def tuned(content, clock=1980, devices="9.0", **changes):
        setup = f"CLOCK = {clock}\n{DEVICE}"
        return file_of(job, name, content, setup, KILN_SIMULATED_DEVICES=devices, **with_driver, **changes)

    assert tuned("{1}") == ["missing", "{1}"]
    assert tuned("{2}") == ["found", "{1}"]
    assert tuned("{3}", clock=1755) == ["missing", "{3}"]
    assert tuned("{4}", KILN_NO_JIT="1", clock=1000) == ["missing", "{4}"], "a measurement is no build"
    for _ in range(2):  # without a driver nothing tells the device
        assert file_of(job, name, "{5}") == ["missing", "{5}"]


def test_install_puts_it_beneath_a_process(job):
    code = "import kiln.compat; kiln.compat.install('triton')\nimport triton_kernels as t; t.main(['64'])"
    assert len({ended(job.start(code=code, manager=None)) for _ in range(2)}) == 1
    assert job.assembled() == 1 and not (job.folder / ".triton").exists()


def test_kiln_run_puts_it_beneath_a_job(job):
    (job.folder / "train.py").write_text(f"{WITHOUT_TORCH}import triton_kernels as t; t.main(['64'])")
    command = ("-m", "kiln", "run", "--compat", "triton", "--", "train.py")
    process = job.start(*command, manager=None)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and "kiln: replaced for triton: triton.runtime.cache" in errors, errors
    assert ended(job.start(*command, manager=None)) == out and job.assembled() == 1


def test_the_session_of_the_page_is_as_it_is_shown(job):
    (job.folder / "train.py").write_text(f"{WITHOUT_TORCH}import triton_kernels as t; t.main(['64', '128'])")
    page = (ROOT / "docs/files.md").read_text().replace("/tmp/node", str(job.folder / "node"))
    assert check_session(page, job.folder, job.environment(None)) == 4
    assert job.assembled() == 2
