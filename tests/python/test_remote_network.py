"""Remote caches beyond a network that loses packets and names: network namespaces of the tests' own.

In them 10.9.0.2 is a machine that never answers; /etc/hosts and /etc/resolv.conf are files of the test.
"""

import os
import subprocess
import time

import pytest
import servers
from test_remote import WARM, built, node

built, node = built, node  # fixtures
PRIVATE = [*servers.PRIVATE, "--net"]
NETWORK = """
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
ip link add void type veth peer name nobody
ip addr add 10.9.0.1/24 dev void
ip link set void up
ip link set nobody up
ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev void
mount --bind "$FILES/hosts" /etc/hosts
mount --bind "$FILES/resolv.conf" /etc/resolv.conf
"""


@pytest.fixture
def network(tmp_path):
    """network(NODE, CODE): runs shell code of that machine where the network is as above; its stdout and stderr."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    (tmp_path / "resolv.conf").write_text("nameserver 10.9.0.2\n")

    def run(machine, code):
        env = machine.env | {"FILES": str(tmp_path)}
        done = subprocess.run(
            [*PRIVATE, "sh", "-euc", NETWORK + code], env=env, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    probe = subprocess.run(
        [*PRIVATE, "sh", "-euc", NETWORK], env=os.environ | {"FILES": str(tmp_path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {probe.stdout}")
    return run


@pytest.mark.parametrize(
    "row, url, resolver",
    [
        ("packets are dropped", "http://10.9.0.2:8080", "10.9.0.2"),
        ("the name server is silent", "http://cache.example", "10.9.0.2"),
        ("there is no name server", "http://cache.example", "127.0.0.1"),
        ("nothing leads there", "http://192.0.2.1", "127.0.0.1"),
        ("the connection is refused", "http://127.0.0.1:9", "127.0.0.1"),
    ],
)
def test_a_server_that_cannot_be_reached_makes_a_node_of_8_ranks_a_second_later(
    row, url, resolver, built, node, network, tmp_path
):
    (tmp_path / "resolv.conf").write_text(f"nameserver {resolver}\n")
    ranks = f"for rank in 0 1 2 3 4 5 6 7; do SLURM_PROCID=$rank kiln {' '.join(WARM)} & done; wait"

    def seconds(name, **settings):
        machine = node(name, **settings)
        began = time.monotonic()
        out, err = network(machine, ranks)
        took = time.monotonic() - began
        assert (out + err).count(f"{built.number} requested") == 8, out + err
        assert machine.payloads() == built.reference
        return took

    # The machine is shared: the quickest of each kind counts.
    alone = min(seconds(f"alone-{i}") for i in range(2))
    beside = min(seconds(f"beside-{i}", KILN_REMOTE=url, **built.trusted) for i in range(2))
    print(f"{row}: {beside:.2f} s, and {alone:.2f} s without a server")
    assert beside - alone <= 1


def test_a_name_that_has_moved_is_found_at_its_new_address(built, node, network, tmp_path):
    """The old server has nothing and ends; the new one, under the same name, has it all."""
    (tmp_path / "hosts").write_text("127.0.0.2 cache.example\n")
    out, _ = network(
        node("job", **built.trusted),
        f"""
python3 -m http.server 8080 --bind 127.0.0.2 --directory "$FILES" >/dev/null 2>&1 & old=$!
sleep 0.7
kiln pull {' '.join(WARM[1:])} --remote http://cache.example:8080 --wait 20 >"$FILES/out" 2>&1 & pull=$!
sleep 1
kill $old
echo "127.0.0.3 cache.example" >"$FILES/hosts"
mkdir "$FILES/new"
KILN_CACHE_DIR={built.cache} kiln push --remote "file://$FILES/new" --sign {built.key}
python3 -m http.server 8080 --bind 127.0.0.3 --directory "$FILES/new" >/dev/null 2>&1 & new=$!
wait $pull || {{ cat "$FILES/out"; kill $new; exit 1; }}
kill $new
cat "$FILES/out"
""",
    )
    assert f"{built.number} pulled" in out, out
