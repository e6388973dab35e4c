#!/usr/bin/env python3
"""Holds the simulation against a fleet of real processes: 8 nodes, each a network namespace with a cache of
its own and 4 ranks, and nginx behind a link of a set rate that serves a set number of requests a second.

calibrate.py SIMULATION BIN [--print]: fails unless the simulation foresees, to 20 %, when the last rank is
warm, by object and by pack; --print gives the rows of docs/fleet.md. Needs nginx and leave to make network
namespaces; says why if it has not, and exits with 77. Takes a minute and ends by itself. BIN is the
folder of a build's programs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import servers  # noqa: E402 # of the tests of Python

NODES, RANKS, JOBS = 8, 4, 2  # `kiln warm` gets one more at a time than it builds
# Of the server, a second: requests, bytes. So few that what 32 processes cost these cores hardly counts.
REQUESTS, LINK = 30, 800_000
WAIT = 1  # KILN_REMOTE_WAIT: nobody builds because the server is slow
SERVER, PORT = "10.77.0.1", 8077
URL = f"http://{SERVER}:{PORT}"
TEMPLATE = ["--template", "scaled_softmax_fwd", "--arch", "7.5,8.0,8.6,9.0"]
CLOSE, SKIPPED = 0.2, 77
INSIDE = "KILN_CALIBRATION_INSIDE"


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def sh(*command, **how):
    return subprocess.run([str(each) for each in command], check=True, **how)


def enter_namespaces():
    """Once more, in a network, mount and process namespace: what is left there ends with this process."""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        skip("no network namespace can be made here")
    done = subprocess.run(
        ["timeout", "--kill-after=5", "240", *command, sys.executable, *sys.argv],
        env=os.environ | {INSIDE: "1"}, check=False,
    )
    sys.exit(done.returncode)


def make_networks():
    """The nodes n0, n1 ... at a bridge, at which the server is. What that sends goes with the rate LINK."""
    try:
        sh("mount", "-t", "tmpfs", "none", "/run")
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "bridge", "type", "bridge")
        sh("ip", "addr", "add", f"{SERVER}/16", "dev", "bridge")
        sh("ip", "link", "set", "bridge", "up")
        sh("tc", "qdisc", "add", "dev", "bridge", "root", "tbf", "rate", f"{LINK}bps", "burst", "32kb", "latency", "30s")
        for i in range(NODES):
            sh("ip", "netns", "add", f"n{i}")
            sh("ip", "link", "add", f"to-n{i}", "type", "veth", "peer", "name", "eth", "netns", f"n{i}")
            sh("ip", "link", "set", f"to-n{i}", "master", "bridge", "up")
            sh("ip", "-n", f"n{i}", "addr", "add", f"10.77.1.{i + 1}/16", "dev", "eth")
            sh("ip", "-n", f"n{i}", "link", "set", "eth", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        skip(f"no network can be made here: {error}")


class Fleet:
    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        self.env = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder),
            "KILN_REMOTE_WAIT": f"{WAIT}s", "KILN_NVRTC": str(programs.parent / "lib/libkiln-fake-nvrtc.so"),
        }

    def command(self, node, *arguments):
        return ["nsenter", f"--net=/run/netns/{node}", "kiln", *arguments]

    def run(self, *arguments, **env):
        done = sh("kiln", *arguments, "--json", env=self.env | env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(done.stdout)

    def start(self, processes):
        """Starts (node, arguments, environment) at once; seconds until the last ends, and their reports."""
        began = time.monotonic()
        running = []
        for number, (node, arguments, env) in enumerate(processes):
            out = (self.folder / f"out-{number}").open("w+")
            err = (self.folder / f"err-{number}").open("w")
            running.append((out, subprocess.Popen(
                self.command(node, *arguments), env=self.env | env, stdout=out, stderr=err,
            )))
        reports = []
        for number, (out, process) in enumerate(running):
            status = process.wait(timeout=100)
            assert status == 0, (status, (self.folder / f"err-{number}").read_text())
        took = time.monotonic() - began
        for out, _ in running:
            out.seek(0)
            reports.append(json.loads(out.read() or "{}"))
            out.close()
        return took, reports

    def ranks(self, **env):
        """Each rank of each node wants every kernel."""
        return [
            (f"n{node}", ["warm", *TEMPLATE, "--jobs", str(JOBS - 1), "--json"], {
                "KILN_CACHE_DIR": str(self.folder / f"node-{node}"),
                "SLURM_PROCID": str(node * RANKS + rank), "SLURM_NTASKS": str(NODES * RANKS),
            } | env)
            for rank in range(RANKS) for node in range(NODES)
        ]

    def forget(self):
        for node in range(NODES):
            shutil.rmtree(self.folder / f"node-{node}", ignore_errors=True)


def foreseen(simulation, way, **parameters):
    words = [f"way={way}", *(f"{name}={value}" for name, value in parameters.items())]
    return json.loads(sh(simulation, *words, stdout=subprocess.PIPE).stdout)


def measure(fleet, files):
    """What the simulation is told of this machine."""
    built = fleet.run("warm", *TEMPLATE, "--jobs", "1", KILN_CACHE_DIR=str(files))
    (files / "packs").mkdir()
    fleet.run("pack", "-o", str(files / "packs/job.kpack"), KILN_CACHE_DIR=str(files))
    sizes = [each.stat().st_size for each in files.glob("objects/v1/*/*")]
    return {
        "nodes": NODES, "ranks": RANKS, "jobs": JOBS, "kernels": len(sizes),
        "object_bytes": sum(sizes) // len(sizes), "requests_per_second": REQUESTS, "bytes_per_second": LINK,
        "wait_s": WAIT, "build_s": built["seconds"] / len(sizes),
        "compression": sum(sizes) / (files / "packs/job.kpack").stat().st_size,
    }


def hit_seconds(fleet, files):
    """Of a rank, while all find everything on disk: with the start of their processes, on these few cores."""
    took, reports = fleet.start(fleet.ranks(KILN_CACHE_DIR=str(files)))
    return took / reports[0]["hits"]


def by_object(fleet):
    """Every rank asks the server kernel by kernel."""
    return fleet.start(fleet.ranks(KILN_REMOTE=f"{URL};unsigned=1"))


def by_pack(fleet):
    """Each node fetches the pack; then its ranks find everything in its cache."""
    pull = ["pull", "--pack", "job", "--json"]
    fetched, _ = fleet.start([
        (f"n{node}", pull, {
            "KILN_CACHE_DIR": str(fleet.folder / f"node-{node}"), "KILN_REMOTE": f"{URL};unsigned=1",
            "SLURM_PROCID": str(node), "SLURM_NTASKS": str(NODES),
        })
        for node in range(NODES)
    ])
    warmed, reports = fleet.start(fleet.ranks(KILN_NO_JIT="1"))
    return fetched + warmed, reports


def main(simulation, programs, prints):
    with tempfile.TemporaryDirectory(prefix="kiln-calibration-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        files = folder / "files"
        files.mkdir()
        fleet = Fleet(folder, programs)
        told = measure(fleet, files)
        print(json.dumps(told), file=sys.stderr)
        far = []
        listens = f"listen {SERVER}:{PORT}; location /objects/ {{ limit_req zone=all burst=10000; }}"
        zone = f"limit_req_zone $server_port zone=all:1m rate={REQUESTS}r/s;"
        with servers.nginx(folder, listens, zone):
            for way, run, words in (("objects", by_object, "by object"), ("pack", by_pack, "pack")):
                fleet.forget()
                hits = [hit_seconds(fleet, files)]
                took, reports = run(fleet)
                hits.append(hit_seconds(fleet, files))
                wanted = told["kernels"]
                assert all(each["hits"] + each["compiled"] + each["waited"] == wanted for each in reports), reports
                answer = foreseen(simulation, way, **told, hit_s=sum(hits) / 2)
                builds = sum(each["compiled"] for each in reports)
                row = (f"| {words} | {answer['foreseen_s']:.2f} | {answer['last_rank_s']:.2f} | {took:.2f} | "
                       f"{answer['builds']} | {builds} |")
                print(row if prints else f"simulated, measured: {row}")
                if abs(took - answer["last_rank_s"]) > CLOSE * answer["last_rank_s"]:
                    far.append(words)
        if far:
            sys.exit(f"the simulation did not foresee it to {CLOSE:.0%}: {', '.join(far)}")


if __name__ == "__main__":
    if servers.NGINX is None:
        skip("no nginx here")
    if INSIDE not in os.environ:
        enter_namespaces()
    make_networks()
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), "--print" in sys.argv[3:])
