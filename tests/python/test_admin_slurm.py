"""The Slurm recipes of docs/admin.md on a Slurm of one node, which the test starts as this user.

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
from test_admin import PAGE, PRESET, here, machine, recipe

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
missing = [each for each in ("slurmctld", "slurmd", "sbatch") if not shutil.which(each, path=PATH)]
if missing:
    pytest.skip(f"Slurm is not installed: no {', '.join(missing)}", allow_module_level=True)
machine = machine  # a fixture


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture
def slurm(machine):
    """A controller and one node, with the page's prolog; ended with the test."""
    folder = machine.folder / "slurm"
    folder.mkdir()
    host, user, ports = socket.gethostname().split(".")[0], getpass.getuser(), free_ports(2)
    prolog = folder / "prolog"
    prolog.write_text(here(recipe("prolog"), machine.folder))
    prolog.chmod(0o755)
    (folder / "slurm.conf").write_text(
        f"""ClusterName=kiln
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
Prolog={prolog}
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
    )
    env = {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    try:
        for command in (["slurmctld", "-D", "-c"], ["slurmd", "-D"]):
            log = (folder / f"{command[0]}.log").open("wb")
            daemons.append(subprocess.Popen(command, env=os.environ | env, stdout=log, stderr=log))
        for _ in range(100):
            state = subprocess.run(
                ["sinfo", "-h", "-o", "%T"], env=os.environ | env, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False,
            ).stdout.strip()
            if state == "idle":
                break
            time.sleep(0.2)
        assert state == "idle", (folder / "slurmctld.log").read_text()[-2000:] + state
        yield env["SLURM_CONF"]
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=20)


def test_an_array_warms_a_second_job_packs_and_the_prolog_brings_the_cache_to_the_node(machine, slurm):
    def submit(arguments):
        said = machine(f"sbatch --wait --output={machine.folder}/%j.out {arguments}", SLURM_CONF=slurm)
        job = re.search(r"Submitted batch job (\d+)", said)[1]
        out = machine.folder / f"{job}.out"
        return job, out.read_text() if out.exists() else ""

    script = machine.folder / "warm.sh"
    script.write_text(here(recipe("kiln-warm"), machine.folder))
    array, _ = submit(str(script))
    wrapped = re.search(r"--wrap '([^']*)'", PAGE)[1].replace("\n", " ")
    submit(f"--dependency=afterok:{array} --wrap '{wrapped}'")
    assert not (machine.folder / "var/kiln/cache").exists()
    use = f"KILN_NO_JIT=1 KILN_CACHE_DIR=/var/lib/kiln/cache kiln {PRESET},10.0"
    _, said = submit(f"--wrap '{use}'")
    assert re.search(r"^(\d+) requested: \1 hits, 0 compiled", said, re.M), said
