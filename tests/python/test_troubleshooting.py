"""docs/troubleshooting.md: the state behind each symptom is made here, and each command of the page prints what the
page shows, but for figures. A line "…" of the page stands for lines that it leaves out."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
import servers
from conftest import HERE, KIT, ROOT, as_shown, blocks, commands, doctor, environment, with_programs

PAGE = (ROOT / "docs/troubleshooting.md").read_text()
SECTIONS = dict(re.findall(r"(?ms)^## (\d)\..*?\n(.*?)(?=^## |\Z)", PAGE))
FAKE = str(KIT / "libkiln-fake-nvrtc.so")
PLACE, HOST = "/srv/kiln", "node7"  # what the page calls the folder of the test, and this machine
# Why an NVRTC is taken where the test's own environment names it.
NAMED, FOUND = "(KILN_NVRTC names it)", "(it is the newest found that the driver accepts)"
JOB = """
import sys
sys.modules["torch"] = None
import kiln
for name, text, options in %r:
    kiln.Kernel(text, file_name=name, device=%r, options=options).prepare()
"""
SCALE = ("scale.cu", 'extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n', [])
SHIFT = ("shift.cu", 'extern "C" __global__ void shift(float* x) { x[threadIdx.x] += 2; }\n', [])
MIX = """extern "C" __global__ void mix(float* x, int n) {
  float a[48];
  for (int i = 0; i < 48; ++i) a[i] = x[i * n + threadIdx.x];
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < 48; ++i) a[i] = a[i] * a[(i + 7) % 48] + a[(i + 13) % 48];
  for (int i = 0; i < 48; ++i) x[i * n + threadIdx.x] = a[i];
}
"""


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Machine:
    """Runs the page's commands in a folder that they call /srv/kiln, and keeps what jobs are started for them."""

    def __init__(self, folder):
        self.folder, self.names, self.started, self.prefix = folder, {}, [], []
        (folder / "run").mkdir(mode=0o700)
        self.env = with_programs(folder, environment(folder, XDG_RUNTIME_DIR=str(folder / "run")))

    def command(self, text):
        return [*self.prefix, "sh", "-c", f"cd '{self.folder}'\n{text}"]

    def run(self, text, **changes):
        """What it prints, with the page's name of the folder."""
        for shown, said in {PLACE: str(self.folder), **self.names}.items():
            text = re.sub(rf"(?<![\w.]){re.escape(shown)}(?!\w)", said, text)
        done = subprocess.run(
            self.command(text), env=self.env | changes, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
        )
        out = re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, done.stdout)
        return out.replace(str(self.folder), PLACE).replace(NAMED, FOUND)

    def start(self, text, **changes):
        """A process of its own, which ends with the test."""
        job = subprocess.Popen(
            self.command("exec " + text), env=self.env | changes, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.started.append(job)
        return job

    def end_jobs(self):
        for job in self.started:
            job.kill()
            job.wait()
        self.started.clear()

    def job(self, *kernels, device=0):
        """What `python train.py` asks for from now on."""
        (self.folder / "train.py").write_text(JOB % (list(kernels), device))

    def objects(self):
        return [path for path in self.folder.glob("cache/objects/v1/*/*") if path.is_file()]

    def mount(self, how):
        """From now on commands run in a mount namespace in which the cache is mounted so."""
        (self.folder / "cache").mkdir(mode=0o700, exist_ok=True)
        holder = subprocess.Popen(
            [*servers.PRIVATE, "sh", "-ec", f"{how}\necho done\nexec sleep 600"], cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        self.started.append(holder)
        if shutil.which("nsenter") is None or holder.stdout.readline() != "done\n":
            pytest.skip("no mount namespace here")
        self.prefix = ["nsenter", f"--target={holder.pid}", "--mount"]
        if os.geteuid() != 0:
            self.prefix += ["--user", "--preserve-credentials"]


@pytest.fixture
def machine(nvrtc, tmp_path):
    made = Machine(tmp_path)
    yield made
    made.end_jobs()


def check(machine, command, shown):
    """Runs a command of the page, and takes the keys and process ids that its output has for the page's."""
    said = machine.run(command).splitlines()
    at, may_skip = 0, False
    for line in shown.splitlines():
        if line == "…":
            may_skip = True
            continue
        if line.startswith("(built in)") and not any(each.startswith("(built in)") for each in said):
            continue  # both took the same time
        while may_skip and at < len(said) and as_shown(said[at]) != as_shown(line):
            at += 1
        assert at < len(said) and as_shown(said[at]) == as_shown(line), (command, line, said)
        for a, b in zip(line.split(), said[at].split(), strict=False):
            if re.fullmatch(r"[0-9a-f]{12}|\d{4,}", a) and re.fullmatch(r"[0-9a-f]{12}|\d+", b):
                machine.names[a] = b
        at, may_skip = at + 1, False
    assert may_skip or at == len(said), (command, said)


# ---- The state of each section: what is yielded is before each of its blocks


def hanging(machine):
    machine.job(SCALE)
    fake = {"KILN_NVRTC": FAKE, "KILN_FAKE_NVRTC": "hang"}
    now = lambda: json.loads(machine.run("kiln ps --json"))["builds"]  # noqa: E731
    builder = machine.start("python train.py", **fake)
    until(lambda: now() and now()[0]["phase"] == "compiling")
    waiters = [machine.start("python train.py", **fake) for _ in range(2)]
    until(lambda: len(now()[0]["waiting"]) == len(waiters))
    for each in (builder, *waiters):  # so that none of these builds before the page's own job does
        os.kill(each.pid, signal.SIGSTOP)
    until(lambda: now()[0]["stopped"])
    env = dict(machine.env)
    machine.env |= {"KILN_NVRTC": FAKE, "KILN_FAKE_NVRTC": ""}
    yield
    machine.env = env
    machine.end_jobs()
    machine.job(SCALE, (*SHIFT[:2], ["--fmad=true"]))
    machine.run("rm -rf cache; python train.py")
    machine.job(SCALE, (*SHIFT[:2], ["--fmad=false"]))
    yield


def two_kinds(machine):
    shutil.copy(ROOT / "tests/examples/kernel.fatbin", machine.folder / "fused.so")
    machine.env["KILN_SIMULATED_DEVICES"] = "9.0,7.5"
    machine.job(SCALE)
    machine.run("python train.py")
    machine.job(SCALE, device=1)
    yield


def full(machine):
    machine.mount("mount -t tmpfs -o size=256k,mode=0700 none cache")
    machine.job(SCALE)
    machine.run("python train.py; head -c 400K /dev/zero > cache/fill")
    machine.job(SHIFT)
    machine.env["KILN_CACHE_SIZE"] = "4K"
    yield


def slower(machine):
    (machine.folder / "mix.cu").write_text(MIX)
    machine.run("kiln compile mix.cu --arch 9.0; kiln compile mix.cu --arch 9.0 --option --maxrregcount=32")
    yield


def missing(machine):
    (machine.folder / "scale.cu").write_text('#include "scale.h"\n' + SCALE[1])
    (machine.folder / "scale.h").write_text("#define N 2\n")
    machine.run("kiln compile scale.cu --arch 9.0")
    (machine.folder / "scale.h").write_text("#define N 3\n")
    machine.job(SCALE, (*SHIFT[:2], ["--fmad=true"]))
    machine.run("python train.py")
    machine.job(SCALE, (*SHIFT[:2], ["--fmad=false"]))
    machine.run("KILN_CACHE_DIR=other KILN_RECORD=asked.jsonl python train.py")
    machine.run("kiln doctor --json > node3.json")
    node = json.loads((machine.folder / "node3.json").read_text())
    for each in node["checks"]:
        if each["name"] == "nvrtc chosen":
            each["detail"] = "nvrtc-12.9-31f50d4d: KILN_TOOLCHAIN is 12.9"
    for each in node["settings"]:
        if each["variable"] == "KILN_TOOLCHAIN":
            each |= {"value": "12.9", "origin": "environment"}
    (machine.folder / "node3.json").write_text(json.dumps(node))
    yield


def refused(machine):
    machine.job(SCALE)
    machine.run("python train.py; cp -r cache shared; chmod 777 shared/objects")
    machine.mount("mount --bind cache cache\nmount -o remount,ro,bind cache")
    yield


def set_in_vain(machine):
    for name in ("KILN_DRIVER", "KILN_WORKER", "KILN_NVRTC", "KILN_SIMULATED_KERNELS"):
        machine.env.pop(name, None)
    yield


def corrupt(machine):
    machine.job(SCALE, SHIFT)
    machine.run("python train.py")
    with machine.objects()[0].open("r+b") as file:
        file.seek(900)
        file.write(b"corrupt")
    yield


def passing(machine):
    if not (KIT.parent / "bin/libkiln-audit.so").exists():
        pytest.skip("this build has no kiln run")
    library = doctor()["toolchains"][0]["path"]
    code = f"import ctypes, sys\nsys.path.insert(0, {str(HERE / 'programs')!r})\nfrom nvrtc import compiled\n"
    code += f"library = ctypes.CDLL({library!r})\n"
    for name, text, options in SCALE, (*SHIFT[:2], ["--time=times.csv"]):
        code += f"compiled(library, {text!r}, '--gpu-architecture=sm_90', *{options!r}, name={name!r})\n"
    (machine.folder / "train.py").write_text(code)
    yield


STATES = {
    "1": hanging, "2": two_kinds, "3": full, "4": slower, "5": missing, "6": refused, "7": set_in_vain, "8": corrupt,
    "9": passing,
}


@pytest.mark.parametrize("section", STATES)
def test_each_command_of_a_symptom_prints_what_the_page_shows(section, machine):
    with contextlib.closing(STATES[section](machine)) as state:
        for block in blocks(SECTIONS[section], "text"):
            next(state)
            for command, shown in commands(block):
                check(machine, command, shown)
        assert next(state, "no more") == "no more", "a state without a block"


def test_nothing_of_the_page_is_left_out():
    assert list(SECTIONS) == list(STATES)
    assert len(blocks(PAGE, "text")) == PAGE.count("\n```") / 2 == sum(
        len(blocks(section, "text")) for section in SECTIONS.values()
    )
    assert len(PAGE.splitlines()) <= 250
