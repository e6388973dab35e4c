"""The Slurm recipes of docs/admin.md on a Slurm of four nodes, which the test starts as this user.

Slurm is Debian's packages slurmctld, slurmd and slurm-client; without them nothing is tried here.
"""

import getpass
import os
import re
import shutil
import socket
import subprocess
import time

import pytest
import servers
from conftest import KIT
from servers import PRIVATE, free_ports
from test_admin import PAGE, PRESET, machine, recipe

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
missing = [each for each in ("slurmctld", "slurmd", "sbatch") if not shutil.which(each, path=PATH)]
if missing:
    pytest.skip(f"Slurm is not installed: no {', '.join(missing)}", allow_module_level=True)
machine = machine  # a fixture


NODES = 4


def may_mount():
    mount = [*PRIVATE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A controller and nodes, each in a mount namespace, whose /var/lib/kiln and /tmp are theirs, with the page's prolog."""
    if not may_mount():
        pytest.skip("no mount namespace can be made here")
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)
    local = folder / "local"
    local.mkdir()
    host, user, ports = socket.gethostname().split(".")[0], getpass.getuser(), free_ports(NODES + 1)
    prolog = folder / "prolog"
    prolog.write_text(
        recipe("prolog").replace("PATH=/usr/bin:", f"PATH={KIT.parent}/bin:/usr/bin:")
        .replace("/srv/kiln", str(folder / "srv/kiln")).replace("/var/lib/kiln", str(local / "kiln"))
    )
    prolog.chmod(0o755)
    nodes = "\n".join(
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
        for i, port in enumerate(ports[1:])
    )
    (folder / "slurm.conf").write_text(
        f"""ClusterName=kiln
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=1000
Prolog={prolog}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
    )
    env = os.environ | {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    mounted = f'mount -t tmpfs none {local} && mkdir {local}/kiln {local}/tmp && exec slurmd -D -N "$0"'
    daemons = []
    try:
        for command in [["slurmctld", "-D", "-c"], *([*PRIVATE, "sh", "-c", mounted, f"n{i}"] for i in range(NODES))]:
            log = (folder / f"{command[-1].strip('-')}.log").open("wb")
            daemons.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        for _ in range(100):
            states = subprocess.run(
                ["sinfo", "-h", "-N", "-o", "%T"], env=env, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False,
            ).stdout.split()
            if states == ["idle"] * NODES:
                break
            time.sleep(0.2)
        assert states == ["idle"] * NODES, (folder / "c.log").read_text()[-2000:] + str(states)
        yield folder
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(timeout=20)


@pytest.fixture
def cluster(machine, slurm):
    """submit(ARGUMENTS or SCRIPT) of sbatch: the job's number, and what each of its outputs says."""
    places = {"/srv/kiln": "srv/kiln", "/var/lib/kiln": "local/kiln", "/tmp/": "local/tmp/"}
    shutil.rmtree(slurm / "srv", ignore_errors=True)
    (slurm / "srv/kiln").mkdir(parents=True)

    def here(code):
        return re.sub("|".join(places), lambda found: f"{slurm}/{places[found[0]]}", code)

    def submit(script, arguments=""):
        path = slurm / "job.sh"
        path.write_text(here(script if script.startswith("#!") else f"#!/bin/sh\nset -eu\n{script}\n"))
        said = machine(
            f"sbatch --parsable --wait --output={slurm}/%A-%a.out {arguments} {path}",
            SLURM_CONF=str(slurm / "slurm.conf"), root=True,
        )
        job = said.strip()
        return job, [each.read_text() for each in sorted(slurm.glob(f"{job}-*.out"))]

    submit.folder = slurm
    return submit


def hits(said):
    """How many requests each line of the kind reports, all of them hits."""
    counts = re.findall(r"^(\d+) requested: (\d+) hits, 0 compiled", said, re.M)
    assert counts and all(requested == hit for requested, hit in counts), said
    return [int(requested) for requested, _ in counts]


def test_an_array_warms_a_second_job_packs_and_the_prolog_brings_the_cache_to_each_node(cluster):
    array, parts = cluster(recipe("kiln-warm"))
    built = [int(re.search(r"^\d+ requested: 0 hits, (\d+) compiled", said, re.M)[1]) for said in parts]
    assert len(built) == 4 and min(built) > 0
    wrapped = re.search(r"--wrap '([^']*)'", PAGE)[1].replace("\n", " ")
    cluster(wrapped, f"--dependency=afterok:{array}")
    use = f"KILN_NO_JIT=1 KILN_CACHE_DIR=/var/lib/kiln/cache srun kiln {PRESET},10.0"
    _, (said,) = cluster(use, f"--nodes={NODES} --ntasks-per-node=1")
    assert hits(said) == [sum(built)] * NODES


def test_a_job_sends_its_pack_to_the_nodes_by_sbcast_and_builds_nothing(cluster):
    _, parts = cluster(recipe("kiln-warm"))
    cluster("kiln pack -o /srv/kiln/sent.kpack --cache-dir /srv/kiln/cache")
    shutil.rmtree(cluster.folder / "srv/kiln/cache")
    _, (said,) = cluster(recipe("train").replace("job.kpack", "sent.kpack"))
    assert len(hits(said)) == 2 * NODES


def test_nodes_that_share_by_a_remote_cache_build_each_kernel_once_and_have_all(cluster, machine, tmp_path):
    machine("kiln key new signing.key", root=True)  # as Slurm's jobs here
    shared = cluster.folder / "srv/kiln"
    for file in ("signing.key", "signing.key.pub"):
        (machine.folder / file).rename(shared / file)
    auth = shared / "push.auth"
    auth.touch(0o600)
    auth.write_text("basic kiln:any")
    with servers.nginx(tmp_path / "nginx", "dav_methods PUT; create_full_put_path on;") as nginx:
        _, (said,) = cluster(recipe("kiln-share").replace("http://cache.example:8080", nginx.url))
        counts = re.findall(r"^(\d+) requested: (\d+) hits, (\d+) compiled", said, re.M)
        total = sum(int(compiled) for _, _, compiled in counts)
        assert len(counts) == NODES and all(int(requested) == total for requested, _, _ in counts), said
        puts = [path for method, path, _ in nginx.requests() if method == "PUT"]
        assert len(puts) == len(set(puts)) == total
    use = f"KILN_NO_JIT=1 KILN_CACHE_DIR=/tmp/kiln-$(id -u) srun kiln {PRESET},10.0"
    _, (said,) = cluster(use, f"--nodes={NODES} --ntasks-per-node=1")
    assert hits(said) == [total] * NODES
