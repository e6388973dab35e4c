"""Remote caches with real servers: what nodes send, fetch and refuse, through the program.

The fake NVRTC builds. Each node is a cache folder of its own; what a server has lies where nginx serves it
from, or in the memory of a server of ours.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
import servers
from conftest import KIT, ROOT, blocks, environment

KERNELS = ["--template", "scaled_softmax_fwd", "--arch", "9.0"]
OTHERS = ["--template", "scaled_masked_softmax_fwd", "--arch", "9.0"]
WARM = ["warm", *KERNELS]
DAV = "dav_methods PUT; create_full_put_path on;"

if not (KIT.parent / "bin/kiln-remote").exists():
    pytest.skip("kiln-remote was not built: no libcurl with headers", allow_module_level=True)


class Node:
    """A machine: kiln with a cache of its own."""

    def __init__(self, folder, **settings):
        self.cache = folder / "cache"
        self.env = environment(folder) | {
            "KILN_CACHE_DIR": str(self.cache), "KILN_NVRTC": str(KIT / "libkiln-fake-nvrtc.so"),
            "PATH": f"{KIT.parent / 'bin'}:{os.environ['PATH']}",
        } | settings

    def start(self, *arguments, **env):
        return subprocess.Popen(
            ["kiln", *map(str, arguments)], env=self.env | env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def run(self, *arguments, status=0, **env):
        """stdout and stderr of kiln."""
        process = self.start(*arguments, **env)
        out, err = process.communicate(timeout=60)
        assert process.returncode == status, f"status {process.returncode} of {arguments}\n{out}\n{err}"
        self.said = err
        return out, err

    def json(self, *arguments, status=0, **env):
        return json.loads(self.run(*arguments, "--json", status=status, **env)[0])

    def warm(self, status=0, kernels=KERNELS, **env):
        """(hits, compiled) of the kernels, and the tiers that the hits came from."""
        report = self.json("warm", *kernels, status=status, **env)
        tiers = {each["tier"] for each in report["entries"] if each["outcome"] == "hit"}
        return report["hits"], report["compiled"], tiers

    def payloads(self):
        """What each key's kernel is, byte by byte."""
        found = {}
        file = self.cache.parent / "extracted"
        for entry in self.json("ls")["entries"]:
            self.run("show", entry["key"], "--extract", file)
            found[entry["key"]] = file.read_bytes()
        return found

    def counters(self):
        return self.json("stats")["counters"]


def report_of(process):
    """Of a kiln that was started with --json, and has to succeed."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)


def write_secret(path, text):
    """For its owner alone, at once: somebody may be reading it, or writing it, too."""
    new = path.with_suffix(f".{threading.get_ident()}")
    new.touch(0o600)
    new.write_text(text)
    new.replace(path)


@pytest.fixture
def node(tmp_path):
    """node(NAME, SETTING=value...): another machine."""

    def make(name, **settings):
        folder = tmp_path / name
        folder.mkdir()
        return Node(folder, **settings)

    return make


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A machine that has built everything, and whose key the others trust."""
    folder = tmp_path_factory.mktemp("built")
    node = Node(folder)
    node.key = folder / "signing.key"
    node.run("key", "new", node.key)
    node.trusted = {"KILN_REMOTE_KEYS": f"{node.key}.pub"}
    node.sign = {"KILN_REMOTE_SIGN": str(node.key), **node.trusted}
    hits, node.number, _ = node.warm()
    assert hits == 0 and node.number > 10
    node.reference = node.payloads()
    return node


def served(built, *servers_of_ours):
    """Gives servers of ours all that has been built, as `push` would send it."""
    for server in servers_of_ours:
        sent = built.json("push", "--remote", server.url, **built.sign)
        assert sent["sent"] == built.number, sent
        server.asked.clear()


# With nginx.


def test_what_is_pushed_is_fetched_by_machines_that_build_nothing(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        remote = {"KILN_REMOTE": f"{nginx.url}/kiln"}
        assert built.json("push", **remote, **built.sign)["sent"] == built.number
        assert [each[2] for each in nginx.requests()].count(201) == built.number
        again = built.json("push", **remote, **built.sign)
        assert (again["sent"], again["already_there"]) == (0, built.number)
        assert [each[0] for each in nginx.requests()].count("PUT") == built.number

        job = node("job", KILN_NO_JIT="1", **remote, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.warm(KILN_REMOTE="") == (built.number, 0, {"disk"})
        assert job.payloads() == built.reference

        pulled = node("pulled", **built.trusted)
        assert pulled.json("pull", *KERNELS, **remote)["pulled"] == built.number
        assert pulled.warm(KILN_NO_JIT="1") == (built.number, 0, {"disk"})


def test_a_pack_is_pushed_and_fetched_in_one_request(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        remote = {"KILN_REMOTE": nginx.url}
        for pack in ("job.kpack", "small.kpack.zst"):
            file = tmp_path / pack
            sent = f"/packs/{pack}"
            for signed, asked in ("in it", [sent]), ("beside it alone", [sent, f"{sent}.minisig"]):
                inside = ["--sign", built.key] if signed == "in it" else []
                built.run("pack", "-o", file, *inside)
                built.run("push", "--pack", file, *([] if inside else ["--sign", built.key]), **remote)
                assert (nginx.files / f"packs/{pack}.minisig").exists()
                before = len(nginx.requests())
                puller = node(f"to-{pack}-signed-{signed}", **built.trusted)
                assert puller.json("pull", "--pack", pack, **remote)["stored"] == built.number
                assert puller.warm(KILN_NO_JIT="1") == (built.number, 0, {"disk"})
                # nginx notes a request once it is done: perhaps one of the push after that.
                read = [path for method, path, _ in nginx.requests()[before:] if method == "GET"]
                assert read == asked
        # Whoever can write there cannot plant a pack.
        (nginx.files / "packs/job.kpack").write_bytes((tmp_path / "job.kpack").read_bytes()[:-1])
        careful = node("careful", **built.trusted)
        careful.run("pull", "--pack", "job.kpack", status=1, **remote)
        assert careful.json("ls")["entries"] == []


def test_a_cache_that_nginx_exports_is_a_remote_that_is_only_read(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", "") as nginx:
        shutil.copytree(built.cache / "objects", nginx.files / "objects")
        remote = {"KILN_REMOTE": f"{nginx.url};unsigned=1"}
        assert node("job", KILN_NO_JIT="1", **remote).warm() == (built.number, 0, {"remote"})
        # Without a word it would have to be signed.
        _, said = node("careful", KILN_REMOTE=nginx.url).run(*WARM, status=2)
        assert "KILN_REMOTE_KEYS" in said and "unsigned=1" in said, said
        # Uploads to it are refused; nobody waits for them, and it is said once.
        writer = node("writer", KILN_REMOTE_MODE="rw", **remote)
        hits, compiled, _ = writer.warm(kernels=OTHERS)
        assert hits == 0 and compiled > 0
        assert writer.said.count("it answers 405") == 1, writer.said
        refused = writer.json("push", status=1, **remote)
        assert refused["sent"] == 0 and "mode=r" in json.dumps(refused), refused


def test_behind_a_caching_proxy_a_fleet_asks_the_server_once_for_each_kernel(built, node, tmp_path):
    with servers.nginx(tmp_path / "origin", DAV) as origin:
        built.run("push", "--remote", origin.url, **built.sign)
        before = len(origin.requests())
        _, ours = blocks((ROOT / "docs/admin.md").read_text(), "nginx")
        for place, here in ("http://cache.example:8080", origin.url), ("/var/cache/kiln", f"{tmp_path}/proxied"):
            assert place in ours
            ours = ours.replace(place, here)
        with servers.nginx(tmp_path / "proxy", *servers.directives(ours)) as rack:
            nodes = [node(f"n{i}", KILN_NO_JIT="1", KILN_REMOTE=rack.url, **built.trusted) for i in range(6)]
            started = [each.start(*WARM, "--json") for each in nodes]
            assert [report_of(each)["hits"] for each in started] == [built.number] * 6
        asked = [path for method, path, _ in origin.requests()[before:] if method == "GET"]
        assert len(asked) == len(set(asked)) == built.number


# Who may ask.


def test_credentials_that_were_renewed_are_read_again(built, node, tmp_path):
    token = tmp_path / "token"

    def answer(request):
        return None if request.headers["Authorization"] == "Bearer new" else 401

    with servers.Server(answer) as server:
        write_secret(token, "bearer new")
        built.run("push", "--remote", server.url, "--auth", token, **built.sign)
        remote = {"KILN_REMOTE": server.url, "KILN_REMOTE_AUTH": str(token), **built.trusted}
        assert node("knows", KILN_NO_JIT="1", **remote).warm() == (built.number, 0, {"remote"})
        # It begins with the old one; the file has the new one when it is refused.
        write_secret(token, "bearer old")
        first = threading.Event()

        def renew(request):
            if request.headers["Authorization"] == "Bearer old":
                if not first.is_set():
                    write_secret(token, "bearer new")
                    first.set()
                return 401
            return answer(request)

        server.answer = renew
        hits, compiled, _ = node("renews", **remote).warm()
        assert hits + compiled == built.number and hits > built.number / 2
        # Refused for good: the job builds, asks hardly at all, and says why once.
        write_secret(token, "bearer old")
        server.answer = answer
        server.asked.clear()
        denied = node("denied", **remote)
        assert denied.warm() == (0, built.number, set())
        assert denied.said.count("answers 401") == 1 and "KILN_REMOTE_AUTH" in denied.said, denied.said
        assert len(server.asked) <= 6
        assert "Bearer" not in denied.said and "old" not in denied.said


def test_a_server_that_forbids_is_said_once_and_not_asked_again(built, node):
    with servers.Server(lambda request: 403) as server:
        denied = node("denied", KILN_REMOTE=server.url, **built.trusted)
        assert denied.warm() == (0, built.number, set())
        assert denied.said.count("answers 403") == 1, denied.said
        assert len(server.asked) <= 6
        assert denied.payloads() == built.reference


def test_requests_to_s3_have_the_signature_that_aws_asks_for(built, node, tmp_path):
    auth = tmp_path / "auth"
    wrong = []

    def answer(request):
        if servers.check_aws_signature(request, "a/secret+key", "eu-west-1"):
            return None
        wrong.append(request)
        return 403

    with servers.Server(answer) as server:
        remote = {"KILN_REMOTE": f"{server.url}/bucket/a%20b;region=eu-west-1", "KILN_REMOTE_AUTH": str(auth)}
        write_secret(auth, "aws AKID:a/secret+key")
        assert built.json("push", **remote, **built.sign)["sent"] == built.number
        job = node("job", KILN_NO_JIT="1", **remote, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"}) and not wrong
        write_secret(auth, "aws AKID:another")
        assert node("stranger", **remote, **built.trusted).warm() == (0, built.number, set())
        assert wrong


# TLS.


def test_a_certificate_of_our_own_authority_is_trusted_and_a_client_shows_its_own(built, node, tmp_path):
    ours, clients = servers.Authority(tmp_path / "ours"), servers.Authority(tmp_path / "clients")
    settings = {"KILN_REMOTE_CA": str(ours.file), "KILN_REMOTE_CERT": str(clients.issue("node"))}
    with servers.Server(tls=ours.server(clients=clients)) as server:
        assert built.json("push", "--remote", server.url, **settings, **built.sign)["sent"] == built.number
        job = node("job", KILN_NO_JIT="1", KILN_REMOTE=server.url, **settings, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})


def test_doctor_names_the_client_certificate_where_nginx_answers_400_for_want_of_one(node, built, tmp_path):
    ours = servers.Authority(tmp_path / "ours")
    page = (400, {}, b"<html>400 No required SSL certificate was sent</html>")
    with servers.Server(lambda request: page, tls=ours.server()) as server:
        job = node("job", KILN_REMOTE=server.url, KILN_REMOTE_CA=str(ours.file), **built.trusted)
        (check,) = [each for each in job.json("doctor", status=1)["checks"] if each["name"] == f"remote {server.url}"]
        assert check["verdict"] == "fail" and "KILN_REMOTE_CERT" in check["remedy"], check


@pytest.mark.parametrize(
    "row, reason",
    [
        ("expired a day ago", "expired"),
        ("valid from tomorrow on", "not yet valid"),
        ("of another host", "does not match|no alternative certificate subject name"),
        ("of an unknown authority", "unable to get local issuer|self.signed"),
        ("client without a certificate", "certificate required"),
        ("client with a certificate of others", "unknown ca"),
        ("no TLS at all", "wrong version number|packet length too long|record"),
        ("handshake that stalls", "time|Time"),
    ],
)
def test_what_tls_refuses_costs_the_wait_alone_and_doctor_says_why(row, reason, built, node, tmp_path):
    ours, others = servers.Authority(tmp_path / "ours"), servers.Authority(tmp_path / "others")
    settings = {"KILN_REMOTE_CA": str(ours.file), **built.trusted}
    tls = {
        "expired a day ago": lambda: ours.server(since=-2, until=-1),
        "valid from tomorrow on": lambda: ours.server(since=1, until=2),
        "of another host": lambda: ours.server(host="DNS:elsewhere.example"),
        "of an unknown authority": others.server,
        "client without a certificate": lambda: ours.server(clients=ours),
        "client with a certificate of others": lambda: ours.server(clients=ours),
    }
    if row == "client with a certificate of others":
        settings["KILN_REMOTE_CERT"] = str(others.issue("node"))
    listener = socket.create_server(("127.0.0.1", 0))  # accepts, and says nothing
    with listener, servers.Server(tls=tls[row]() if row in tls else None) as server:
        url = server.url.replace("http:", "https:")
        if row == "handshake that stalls":
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        job = node("job", KILN_REMOTE=url, **settings)
        began = time.monotonic()
        assert job.warm() == (0, built.number, set())
        beside = time.monotonic() - began
        began = time.monotonic()
        assert node("alone").warm() == (0, built.number, set())
        assert beside - (time.monotonic() - began) < 3 * 0.25 + 1  # the machine is shared
        assert job.payloads() == built.reference
        assert not server.asked
        (check,) = [each for each in job.json("doctor", status=1)["checks"] if each["name"] == f"remote {url}"]
        assert check["verdict"] == "fail" and re.search(reason, check["detail"]), check


# What is sent and does not arrive.


@pytest.mark.parametrize("keeps_parts", [False, True])
def test_a_push_that_is_killed_at_any_byte_leaves_whole_objects_or_none(keeps_parts, built, node):
    """The server has read so many bytes of a body when the sender dies. One that keeps what came is worse."""
    long = int(os.environ.get("KILN_FAULT_LENGTH", "1")) > 1
    for at in (1, 279, 280, 281, 700, 1500, 3000, 10000) if long else (1, 280, 3000):
        killed = threading.Event()

        def reading(_, size):
            if size >= at and not killed.is_set():
                killed.set()
                sender.kill()
                sender.wait()
                return True  # what lies in the socket's buffer would make it whole

        with servers.Server(reading=reading, keeps_parts=keeps_parts) as server:
            remote = {"KILN_REMOTE": server.url}
            sender = built.start("push", **remote, **built.sign)
            sender.communicate(timeout=60)
            assert killed.is_set()
            job = node(f"job-{at}", **remote, **built.trusted)
            hits, compiled, _ = job.warm()
            assert hits + compiled == built.number and compiled > 0
            assert job.payloads() == built.reference
            # Later all of it is sent; a part of an object is replaced by the whole.
            built.run("push", "--replace", **remote, **built.sign)
            late = node(f"late-{at}", KILN_NO_JIT="1", **remote, **built.trusted)
            assert late.warm() == (built.number, 0, {"remote"})


def test_two_that_send_different_bytes_of_a_key_at_once_are_both_right(built, node, tmp_path):
    others = [node(f"builder-{i}") for i in range(3)]
    for each in others:
        each.warm()
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        sending = [each.start("push", "--remote", nginx.url, **built.sign) for each in (built, *others)]
        for process in sending:
            assert process.wait(timeout=60) == 0, process.communicate()
        job = node("job", KILN_NO_JIT="1", KILN_REMOTE=nginx.url, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.payloads() == built.reference


@pytest.mark.parametrize("status", [507, 413, 405, 500])
def test_a_server_that_takes_no_object_costs_nobody_a_kernel(status, built, node):
    with servers.Server(lambda request: status if request.method == "PUT" else None) as server:
        refused = built.json("push", "--remote", server.url, status=1, **built.sign)
        assert refused["sent"] == 0 and str(status) in json.dumps(refused["problems"]), refused
        writer = node("writer", KILN_REMOTE=server.url, KILN_REMOTE_MODE="rw", **built.sign)
        assert writer.warm() == (0, built.number, set())
        assert writer.counters()["uploads_dropped"] == built.number
        assert not server.files


def test_a_server_whose_disk_is_full_keeps_whole_objects_alone(built, node, tmp_path):
    size = sum(each.stat().st_size for each in built.cache.glob("objects/v1/*/*"))
    with servers.nginx(tmp_path / "nginx", DAV, disk=size // 2 // 4096 * 4096) as nginx:
        refused = built.json("push", "--remote", nginx.url, status=1, **built.sign)
        assert 0 < refused["sent"] < built.number, refused
        job = node("job", KILN_REMOTE=nginx.url, **built.trusted)
        assert job.warm() == (refused["sent"], built.number - refused["sent"], {"remote"})
        assert job.payloads() == built.reference


def test_credentials_that_expire_amid_a_push_are_read_again(built, tmp_path):
    token = tmp_path / "token"
    sent = []

    def answer(request):
        sent.append(request.method)
        valid = "Bearer one" if sent.count("PUT") <= 5 else "Bearer two"
        if request.headers["Authorization"] == valid:
            return None
        if renews:
            write_secret(token, "bearer two")
        return 401

    for renews in (True, False):
        sent.clear()
        write_secret(token, "bearer one")
        with servers.Server(answer) as server:
            arguments = ["push", "--remote", server.url, "--auth", token]
            if renews:
                assert built.json(*arguments, **built.sign)["sent"] == built.number
                continue
            report = built.json(*arguments, status=1, **built.sign)
            assert 0 < report["sent"] < built.number and len(server.files) == report["sent"], report
            assert "KILN_REMOTE_AUTH" in json.dumps(report["problems"])


# Machines that differ.


def test_a_key_that_is_trusted_no_longer_is_a_miss_from_then_on(built, node, tmp_path):
    trusted, other = tmp_path / "trusted.pub", tmp_path / "other"
    built.run("key", "new", other)
    old, new = (path.read_text() for path in (built.key.with_suffix(".key.pub"), tmp_path / "other.pub"))
    with servers.Server() as server:
        remote = {"KILN_REMOTE": server.url, "KILN_REMOTE_KEYS": str(trusted)}
        built.run("push", "--remote", server.url, **built.sign)
        trusted.write_text(old + new)
        trusted.chmod(0o644)
        assert node("before", KILN_NO_JIT="1", **remote).warm() == (built.number, 0, {"remote"})
        trusted.write_text(new)
        after = node("after", **remote)
        assert after.warm() == (0, built.number, set())
        assert any("rejected.signature" in name for name in after.counters()), after.counters()
        # Signed by the new one, all is as before.
        built.run("push", "--replace", "--remote", server.url, KILN_REMOTE_SIGN=str(other), KILN_REMOTE_KEYS=f"{other}.pub")
        assert node("later", KILN_NO_JIT="1", **remote).warm() == (built.number, 0, {"remote"})


@pytest.mark.parametrize("offset", [-86400, 86400])
def test_a_clock_that_is_a_day_off_changes_nothing(offset, built, node):
    """What it is to TLS, a certificate shows that is a day too old or too new."""
    clock = {"LD_PRELOAD": str(KIT / "libkiln-preload.so"), "KILN_PRELOAD_CLOCK": str(offset)}
    with servers.Server() as server:
        assert built.json("push", "--remote", server.url, **clock, **built.sign)["sent"] == built.number
        job = node("job", KILN_NO_JIT="1", KILN_REMOTE=server.url, **clock, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.payloads() == built.reference


def test_a_shard_with_another_compiler_builds_for_itself_and_disturbs_nobody(built, node, tmp_path):
    fake = (KIT / "libkiln-fake-nvrtc.so").read_bytes()
    report = built.json("doctor")
    (build_id,) = {each["nvrtc_build_id"] for each in report["toolchains"] if each["found_in"] == "KILN_NVRTC"}
    changed = bytes.fromhex(build_id[:-2] + f"{int(build_id[-2:], 16) ^ 1:02x}")
    other = tmp_path / "libkiln-other-nvrtc.so"
    other.write_bytes(fake.replace(bytes.fromhex(build_id), changed))
    with servers.Server() as server:
        settings = {"KILN_REMOTE": server.url, **built.sign}
        nodes = [node("0", **settings), node("1", **settings), node("2", KILN_NVRTC=str(other), **settings)]
        options = ["--push", "--pull", "--wait", "2", "--json"]
        started = [each.start(*WARM, "--shard", f"{i}/3", *options) for i, each in enumerate(nodes)]
        reports = [report_of(each) for each in started]
        assert reports[2]["compiled"] == built.number, "nobody else has its keys"
        for each in nodes[:2]:
            assert each.warm(KILN_NO_JIT="1", KILN_REMOTE="") == (built.number, 0, {"disk"})
            assert each.payloads() == built.reference
        assert not set(nodes[2].payloads()) & set(built.reference)


# Secrets.


def test_no_secret_is_in_what_kiln_says_or_leaves_behind(built, node, tmp_path):
    secret = "hush-7d1f"
    auth = tmp_path / "auth"
    write_secret(auth, f"bearer {secret}")
    seen, looks = [], iter(range(3))

    def answer(request):
        if request.headers["Authorization"] != f"Bearer {secret}":
            return 401
        if next(looks, None) is not None:  # what everybody may look at
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for file in ("cmdline", "environ"):
                    with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as text:
                        if secret.encode() in text.read():
                            seen.append((pid, file))
        return 500 if "/objects/v1/0" in request.path else None

    with servers.Server(answer) as server:
        settings = {
            "KILN_REMOTE": server.url, "KILN_REMOTE_AUTH": str(auth), "KILN_REMOTE_MODE": "rw",
            "KILN_LOG": "debug", **built.sign,
        }
        job = node("job", **settings)
        said = []
        for arguments in (
            [*WARM, "--events", job.cache.parent / "events"], ["push"], ["pull", *OTHERS], ["doctor"], ["stats"],
            ["stats", "--format", "openmetrics"], ["why", "--template", "scaled_softmax_fwd:dtype=bf16", "--arch", "9.0"],
        ):
            for more in ([], ["--json"]):
                if "openmetrics" in arguments and more:
                    continue
                process = job.start(*arguments, *more)
                said.append("".join(process.communicate(timeout=60)))
        assert next(looks, None) is None and not seen
        for text in said:
            assert secret not in text, text
        for folder, _, files in os.walk(tmp_path):
            for file in files:
                path = os.path.join(folder, file)
                if path != str(auth):
                    with open(path, "rb") as text:
                        assert secret.encode() not in text.read(), path


def test_a_helper_that_crashes_leaves_no_core_with_secrets(built, node, tmp_path):
    auth = tmp_path / "auth"
    write_secret(auth, "bearer hush-7d1f")

    killed, started = [], threading.Event()

    def answer(_):
        started.wait(10)
        if killed:  # another that has just begun has no secret yet, and might leave a core
            return
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
                _, name, _, parent, *_ = stat.read().split()
                if name == "(kiln-remote)" and int(parent) == process.pid:
                    killed.append(pid)
                    os.kill(int(pid), signal.SIGQUIT)

    with servers.Server(answer) as server:
        job = node("job", KILN_REMOTE=server.url, KILN_REMOTE_AUTH=str(auth), **built.trusted)
        code = 'ulimit -c unlimited 2>/dev/null; exec kiln "$@"'
        process = subprocess.Popen(
            ["sh", "-c", code, "sh", *WARM], env=job.env, cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        started.set()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and killed, said
    assert f"{built.number} compiled" in said and "core dumped" not in said
    assert not [each for each in [*os.listdir("/"), *os.listdir(tmp_path)] if each.startswith("core")]


# A fleet.


def test_a_fleet_of_shards_builds_each_kernel_once_and_each_node_has_all(built, node, tmp_path):
    shards = 4
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        settings = {"KILN_REMOTE": nginx.url, **built.sign}
        nodes = [node(f"shard-{i}", **settings) for i in range(shards)]
        started = [
            each.start(*WARM, "--json", "--shard", f"{i}/{shards}", "--push", "--pull", "--wait", "30")
            for i, each in enumerate(nodes)
        ]
        reports = [report_of(each) for each in started]
        assert sum(each["compiled"] for each in reports) == built.number, "each once"
        for each in nodes:
            assert each.warm(KILN_NO_JIT="1", KILN_REMOTE="") == (built.number, 0, {"disk"})
            assert each.payloads() == built.reference
        # Every node asks for a key and sends it at most once.
        puts = [path for method, path, _ in nginx.requests() if method == "PUT"]
        assert len(puts) == len(set(puts)) == built.number


def test_what_a_shard_that_died_has_not_built_is_built_by_those_who_need_it(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        alive = node("alive", KILN_REMOTE=nginx.url, **built.sign)
        report = alive.json(*WARM, "--shard", "0/2", "--push", "--pull", "--wait", "1")
        assert report["compiled"] == built.number
        assert alive.payloads() == built.reference


# What is bad on a server.


def objects_of(nginx):
    return sorted((nginx.files / "objects/v1").glob("*/*"))


def signed_anew(built, node, name):
    """As another key signs them: what a server has under each path."""
    other = node(name)
    key = other.cache.parent / "key"
    other.run("key", "new", key)
    with servers.Server() as server:
        built.run("push", "--remote", server.url, "--sign", key, KILN_REMOTE_KEYS=f"{key}.pub")
        return key, server.files


@pytest.mark.parametrize("bad", ["empty", "cut in half", "without its last byte", "unsigned", "signed by a removed key"])
def test_a_bad_object_is_sent_again_by_a_plain_push_and_a_good_one_is_not(bad, built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        remote = {"KILN_REMOTE": nginx.url}
        built.run("push", **remote, **built.sign)
        first, second, *_ = objects_of(nginx)
        whole = first.read_bytes()
        _, by_another = signed_anew(built, node, "another")
        bodies = {
            "empty": b"", "cut in half": whole[: len(whole) // 2], "without its last byte": whole[:-1],
            "unsigned": whole[:-92], "signed by a removed key": by_another[f"/objects/v1/{first.parent.name}/{first.name}"],
        }
        first.write_bytes(bodies[bad])
        # By somebody else whom this machine trusts.
        trusted, third_key = tmp_path / "trusted.pub", signed_anew(built, node, "trusted")
        trusted.write_text(built.key.with_suffix(".key.pub").read_text() + third_key[0].with_suffix(".pub").read_text())
        trusted.chmod(0o644)
        theirs = third_key[1][f"/objects/v1/{second.parent.name}/{second.name}"]
        second.write_bytes(theirs)

        before = len(nginx.requests())
        pushed = built.json("push", **remote, **(built.sign | {"KILN_REMOTE_KEYS": str(trusted)}))
        assert (pushed["sent"], pushed["replaced"], pushed["already_there"]) == (1, 1, built.number - 1)
        assert first.read_bytes() == whole and second.read_bytes() == theirs
        asked = nginx.requests()[before:]
        assert [each[0] for each in asked].count("PUT") == 1
        # The rest of the objects was looked at by its end: one request each.
        assert [each[2] for each in asked].count(206) >= built.number - 1 and len(asked) <= built.number + 5
        job = node("job", KILN_NO_JIT="1", KILN_REMOTE_KEYS=str(trusted), **remote)
        assert job.warm() == (built.number, 0, {"remote"})
        out, _ = built.run("push", **remote, **(built.sign | {"KILN_REMOTE_KEYS": str(trusted)}))
        assert f" 0 sent, 0 B, {built.number} already there" in out


def test_who_has_no_key_to_judge_signatures_replaces_what_is_damaged_alone(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        built.run("push", "--remote", nginx.url, **built.sign)
        key, _ = signed_anew(built, node, "another")
        first, *_ = objects_of(nginx)
        first.write_bytes(first.read_bytes()[:300])
        pushed = built.json("push", "--remote", nginx.url, "--sign", key)
        assert (pushed["replaced"], pushed["already_there"]) == (1, built.number - 1)


def test_a_job_that_builds_what_it_was_refused_heals_the_server_and_the_next_job_hits(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        remote = {"KILN_REMOTE": nginx.url}
        built.run("push", **remote, **built.sign)
        for file in objects_of(nginx)[:5]:
            file.write_bytes(file.read_bytes()[:-200])
        reader = node("reader", **remote, **built.trusted)
        assert reader.warm() == (built.number - 5, 5, {"remote"}), "the good ones behind them are fetched"
        writer = node("writer", KILN_REMOTE_MODE="rw", **remote, **built.sign)
        assert writer.warm() == (built.number - 5, 5, {"remote"})
        assert [each[0] for each in nginx.requests()].count("PUT") == built.number + 5
        job = node("job", KILN_NO_JIT="1", **remote, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.payloads() == built.reference


def test_warm_with_push_replaces_what_is_bad(built, node, tmp_path):
    with servers.nginx(tmp_path / "nginx", DAV) as nginx:
        remote = {"KILN_REMOTE": nginx.url}
        built.run("push", **remote, **built.sign)
        objects_of(nginx)[0].write_bytes(b"")
        report = built.json(*WARM, "--push", **remote, **built.sign)["push"]
        assert (report["sent"], report["replaced"], report["already_there"]) == (1, 1, built.number - 1)
        assert node("job", KILN_NO_JIT="1", **remote, **built.trusted).warm() == (built.number, 0, {"remote"})


def test_a_folder_is_healed_as_a_web_server_is(built, node, tmp_path):
    remote = {"KILN_REMOTE": f"file://{tmp_path}/folder"}
    assert built.json("push", **remote, **built.sign)["sent"] == built.number
    bad = sorted((tmp_path / "folder/objects/v1").glob("*/*"))[:2]
    bad[0].write_bytes(b"")
    bad[1].write_bytes(bad[1].read_bytes()[:-1])
    pushed = built.json("push", **remote, **built.sign)
    assert (pushed["replaced"], pushed["already_there"]) == (2, built.number - 2)
    assert node("job", KILN_NO_JIT="1", **remote, **built.trusted).warm() == (built.number, 0, {"remote"})


@pytest.mark.parametrize("arguments", [["push"], ["push", "--pack"], [*WARM, "--push"]])
def test_nothing_is_sent_to_what_answers_any_question(arguments, built, tmp_path):
    pack = tmp_path / "job.kpack"
    built.run("pack", "-o", pack, "--sign", built.key)
    arguments = [*arguments, pack] if "--pack" in arguments else arguments
    with servers.Server(lambda request: (200, {}, b"<html>please log in</html>")) as portal, servers.Server() as good:
        report = built.json(*arguments, status=1, KILN_REMOTE=f"{portal.url} {good.url}", **built.sign)
        report = report.get("push", report)
        (problem,) = report["problems"]
        assert "is no cache" in problem["error"]["message"] and problem["server"] == portal.url, problem
        assert "PUT" not in portal.methods() and "PUT" in good.methods()
        assert report["sent"] in (1, built.number)


@pytest.mark.parametrize("keeps", ["nothing", "an empty file", "a part", "other bytes"])
@pytest.mark.parametrize("arguments", [["push"], ["push", "--pack"]])
@pytest.mark.parametrize("ranges", [True, False])
def test_what_a_server_takes_and_does_not_give_back_is_said(arguments, keeps, ranges, built, tmp_path):
    if not ranges and keeps == "other bytes" and "--pack" in arguments:
        pytest.skip("only the whole pack would show it")
    pack = tmp_path / "job.kpack"
    built.run("pack", "-o", pack, "--sign", built.key)
    arguments = [*arguments, pack] if "--pack" in arguments else arguments

    def answer(request):
        if request.method != "PUT" or request.path.endswith(".minisig"):
            return None
        kept = {"an empty file": b"", "a part": request.body[:-20], "other bytes": bytes(len(request.body))}
        if keeps != "nothing":
            server.files[request.path] = kept[keeps]
        return 201

    with servers.Server(answer, ranges=ranges) as server:
        report = built.json(*arguments, status=1, KILN_REMOTE=server.url, **built.sign)
        (problem,) = report["problems"]
        assert "not give" in problem["error"]["message"], problem
