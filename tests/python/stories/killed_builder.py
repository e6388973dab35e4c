"""Eight ranks of a GPT-NeoX job want the causal softmax. The first of them is killed,
as by `kill -9`, while it builds the kernel and the seven others wait for it."""

import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import torch

import kiln
import kiln.compat
import kiln.testing

kiln.testing.use_simulated_device("8.0")
kiln.compat.install("neox")
import scaled_upper_triang_masked_softmax_cuda as extension

fork = multiprocessing.get_context("fork")
folder = Path(tempfile.mkdtemp())
compiler = folder / "compiler"
logs = [folder / f"log.{rank}" for rank in range(8)]


def run(rank, done):
    os.dup2(os.open(logs[rank], os.O_WRONLY), sys.stderr.fileno())
    if rank == 0:
        kiln.configure(worker=compiler)
    scores = torch.randn(4, 64, 64, dtype=torch.float16)
    y = extension.forward(scores, torch.tensor(0.125))
    later = torch.ones(64, 64, dtype=torch.bool).triu(1)
    exact = torch.softmax((scores.double() / 8).masked_fill(later, -torch.inf), -1)
    is_right = torch.allclose(y.double(), exact, atol=1e-3)
    done.put((time.monotonic(), is_right, kiln.statistics()["compiled"]))


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


# Another kernel is there, so that the compiler is known and is started for this one.
kiln.warm(template="scaled_softmax_fwd:dtype=f16,max_cols=32", arch="8.0")
compiler.write_text('#!/bin/sh\n: > "$0.began"\nexec cat <&3  # no answer\n')
compiler.chmod(0o700)
done = fork.Queue()
ranks = [fork.Process(target=run, args=(rank, done), daemon=True) for rank in range(8)]
for log, rank in zip(logs, ranks):
    log.touch()
    rank.start()
    wait_until((folder / "compiler.began").exists)
wait_until(lambda: all("waiting for another" in log.read_text() for log in logs[1:]))
print("rank 1:", logs[1].read_text().splitlines()[-1])
ranks[0].kill()
killed = time.monotonic()
ends, are_right, builds = zip(*(done.get(timeout=60) for _ in range(7)))
print(f"the other ranks are done {max(ends) - killed:.1f} s after the death of rank 0")
print("right:", all(are_right), "- builds:", sum(builds))
