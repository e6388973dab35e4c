"""What the tests beneath Triton share: jobs whose assembler runs are counted."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from beneath import KILN, PROGRAMS
from conftest import ROOT, WITHOUT_TORCH, environment

FOLDERS = [each for each in (ROOT / ".deps/triton", ROOT / ".deps/oldest-triton") if (each / "triton").is_dir()]
if not FOLDERS:
    pytest.skip("there is no Triton here: run ./tools/test.sh, which puts it into .deps/triton", allow_module_level=True)
NEWEST = FOLDERS[0]
PROGRAM = PROGRAMS / "triton_kernels.py"
MANAGER = "kiln.triton:CacheManager"


class Job:
    """Processes in a folder, with the home, the cache and the count of assembler runs in it."""

    def __init__(self, folder, triton=NEWEST):
        self.folder, self.triton, self.log = folder, triton, folder / "assembled"
        folder.mkdir(exist_ok=True)
        self.assemblers = {}
        for real in (triton / "triton/backends/nvidia/bin").glob("ptxas*"):
            assembler = folder / real.name
            assembler.write_text(
                f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo $PPID >> {self.log}; sleep "${{SLOW:-0}}";; esac\n'
                f'exec {real} "$@"\n'
            )
            assembler.chmod(0o755)
            self.assemblers[f"TRITON_{real.name.upper().replace('-', '_')}_PATH"] = str(assembler)

    def environment(self, manager, **changes):
        env = environment(self.folder, TRITON_CACHE_MANAGER=manager, **self.assemblers, **changes)
        return env | {"PYTHONPATH": f"{self.triton}:{PROGRAMS}:{env['PYTHONPATH']}"}

    def start(self, *words, code=None, manager=MANAGER, stdin=subprocess.DEVNULL, **changes):
        command = [sys.executable, "-W", "ignore", *(("-c", WITHOUT_TORCH + textwrap.dedent(code)) if code else words)]
        return subprocess.Popen(
            command,
            env=self.environment(manager, **changes),
            cwd=self.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def compile(self, *blocks, **options):
        """A process that compiles kernels of triton_kernels.py."""
        code = f"import triton_kernels; triton_kernels.main({list(map(str, blocks))})"
        return self.start(code=code, **options)

    def run(self, *blocks, **options):
        return ended(self.compile(*blocks, **options))

    def assembled(self):
        return len(self.log.read_text().split()) if self.log.exists() else 0

    def wait_until_it_assembles(self):
        deadline = time.monotonic() + 60
        while not self.assembled():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kiln(self, *words, **changes):
        done = subprocess.run(
            [KILN, *words], env=environment(self.folder, **changes), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def ended(process, status=0):
    out, errors = process.communicate(timeout=120)
    assert process.returncode == status, f"status {process.returncode}\n{out}\n{errors}"
    return out if status == 0 else errors


def end(process):
    """With the assembler that it has started, which has its output open."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
