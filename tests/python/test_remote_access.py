"""How a server is reached and who asks it: proxies, credentials for each server, AWS's, and programs that give some."""

import json

import pytest
import servers
from test_remote import WARM, built, node, served, write_secret

built, node = built, node  # fixtures


def remote(report, url):
    """What doctor says of a server: its check, and its facts."""
    (check,) = [each for each in report["checks"] if each["name"] == f"remote {url}"]
    (facts,) = [each for each in report["remotes"] if each["url"] == url]
    return check, facts


# Proxies.


def test_a_server_is_reached_through_the_proxy_of_the_environment_or_its_own(built, node):
    with servers.Server() as server, servers.Proxy({"cache.example": server, "[fd00::7]:81": server}) as proxy:
        served(built, server)
        url = "http://cache.example"
        for name, (remotes, env) in {
            "http": (url, {"http_proxy": proxy.url}),
            "all": (url, {"ALL_PROXY": proxy.url, "NO_PROXY": "cache.example:81,.org,10.0.0.0/8"}),
            "own": (f"{url};proxy={proxy.url}", {"http_proxy": "http://127.0.0.1:1", "no_proxy": "*"}),
            "ipv6": ("http://[fd00::7]:81", {"http_proxy": proxy.url, "no_proxy": "fd00::8/128"}),
        }.items():
            before = len(server.asked)
            job = node(name, KILN_NO_JIT="1", KILN_REMOTE=remotes, **env, **built.trusted)
            assert job.warm() == (built.number, 0, {"remote"}), name
            assert len(server.asked) - before == len(proxy.asked) == built.number, name
            assert {each.path.split("/objects")[0] for each in proxy.asked} == {remotes.split(";")[0]}
            check, facts = remote(job.json("doctor"), remotes.split(";")[0])
            by = {"http": "http_proxy", "all": "ALL_PROXY", "own": ";proxy=", "ipv6": "http_proxy"}[name]
            assert facts["proxy"] == proxy.url and f"proxy {proxy.url} ({by})" in check["detail"], check
            proxy.asked.clear()


def test_who_is_named_by_no_proxy_or_is_this_machine_is_reached_directly(built, node):
    with servers.Server() as server, servers.Proxy({}) as proxy:
        served(built, server)
        port = server.server_port
        for i, (url, env) in enumerate([
            (server.url, {}),  # loopback
            (f"http://localhost:{port}", {}),
            (f"http://0.0.0.0:{port}", {"NO_PROXY": "0.0.0.0"}),
            (f"http://0.0.0.0:{port}", {"no_proxy": "10.0.0.0/8 0.0.0.0/31", "NO_PROXY": "x"}),
            (f"http://0.0.0.0:{port}", {"no_proxy": f"0.0.0.0:{port}"}),
            (f"http://0.0.0.0:{port};proxy=", {}),
        ]):
            job = node(f"n{i}", KILN_REMOTE=url, http_proxy=proxy.url, KILN_NO_JIT="1", **env, **built.trusted)
            assert job.warm() == (built.number, 0, {"remote"}), url
            check, facts = remote(job.json("doctor"), url.split(";")[0])
            assert facts["proxy"] is None
            name = next(iter(env), ";proxy=" if ";" in url else None)
            assert name is None or f"no proxy ({name})" in check["detail"], check
        assert proxy.asked == []


def test_tls_goes_through_a_tunnel_and_a_refusal_of_the_proxy_is_a_miss_that_doctor_explains(built, node, tmp_path):
    ours = servers.Authority(tmp_path / "authority")
    with servers.Server(tls=ours.server(host="DNS:cache.example")) as server:
        with servers.Proxy({"cache.example:443": server}, user="me:hunter 2") as proxy:
            settings = {"KILN_REMOTE_CA": str(ours.file), "KILN_REMOTE": "https://cache.example"}
            with_password = proxy.url.replace("://", "://me:hunter%202@")
            sent = built.json("push", HTTPS_PROXY=with_password, **settings, **built.sign)
            assert sent["sent"] == built.number
            assert {each.method for each in proxy.asked} == {"CONNECT"} and len(proxy.asked) < 20
            job = node("job", KILN_NO_JIT="1", https_proxy=with_password, **settings, **built.trusted)
            assert job.warm() == (built.number, 0, {"remote"})
            # Nobody is shown the password.
            for form in [], ["--json"]:
                said = "".join(job.run("doctor", *form))
                assert proxy.url in said and "hunter" not in said, said
            before = len(server.asked)
            refused = node("refused", https_proxy=proxy.url.replace("://", "://me:hunter3@"), **settings, **built.trusted)
            assert refused.warm() == (0, built.number, set())
            assert "407" in refused.said and "hunter" not in refused.said, refused.said
            check, _ = remote(refused.json("doctor", status=1), "https://cache.example")
            assert "407" in check["detail"] and proxy.url in check["remedy"], check
            assert len(server.asked) == before
        dead = node("dead", https_proxy="http://me:hunter2@127.0.0.1:1", **settings, **built.trusted)
        assert dead.warm() == (0, built.number, set())
        check, _ = remote(dead.json("doctor", status=1), "https://cache.example")
        assert "proxy http://127.0.0.1:1 (https_proxy)" in check["remedy"] and "hunter" not in json.dumps(check)
        wrong = node("wrong", https_proxy="gopher://me:hunter2@p", **settings, **built.trusted)
        assert wrong.warm() == (0, built.number, set())
        assert wrong.said.count("https_proxy is no URL of a proxy") == 1 and "hunter" not in wrong.said
        assert "hunter" not in "".join(wrong.run("doctor", status=1))


def test_a_proxy_that_wants_a_password_for_plain_http_is_a_denial(built, node):
    with servers.Server() as server, servers.Proxy({"cache.example": server}, user="me:hunter2") as proxy:
        denied = node("denied", KILN_REMOTE="http://cache.example", http_proxy=proxy.url, **built.trusted)
        assert denied.warm() == (0, built.number, set())
        assert denied.said.count("407: the proxy wants a user and a password") == 1, denied.said
        assert len(proxy.asked) <= 6 and server.asked == []


# Passwords.


def test_a_password_over_plain_http_to_another_machine_is_warned_of_once(built, node, tmp_path):
    auth, token = tmp_path / "auth", "hunter2"
    with servers.Server() as server, servers.Proxy({"cache.example": server, "localhost.example": server}) as proxy:
        served(built, server)
        for kind in f"bearer {token}", f"basic me:{token}":
            write_secret(auth, kind)
            env = {"http_proxy": proxy.url, "KILN_REMOTE_AUTH": str(auth), **built.trusted}
            open_to = "http://cache.example http://localhost.example"
            job = node(f"to-others-{kind[:3]}", KILN_REMOTE=open_to, KILN_NO_JIT="1", **env)
            assert job.warm() == (built.number, 0, {"remote"})
            assert job.said.count("without encryption") == 1 and token not in job.said, job.said
            warned = [each for each in job.json("doctor")["checks"] if each["name"].endswith(", password")]
            assert [each["verdict"] for each in warned] == ["warn", "warn"] and "https" in warned[0]["remedy"]
            assert token not in json.dumps(warned)
            here = node(f"to-us-{kind[:3]}", KILN_REMOTE=server.url, KILN_NO_JIT="1", **env)
            assert here.warm() == (built.number, 0, {"remote"})
            assert "encryption" not in here.said + "".join(here.run("doctor"))
        write_secret(auth, "aws KEY:SECRET")
        s3 = node("s3", KILN_REMOTE="http://cache.example", KILN_NO_JIT="1", **env)
        assert s3.warm() == (built.number, 0, {"remote"})
        assert "encryption" not in s3.said + "".join(s3.run("doctor"))


def test_no_password_is_warned_of_where_tls_hides_it(built, node, tmp_path):
    ours = servers.Authority(tmp_path / "authority")
    with servers.Server(tls=ours.server(host="DNS:cache.example")) as server:
        with servers.Proxy({"cache.example:443": server}) as proxy:
            write_secret(tmp_path / "auth", "bearer hunter2")
            env = {"KILN_REMOTE_AUTH": str(tmp_path / "auth"), "KILN_REMOTE_CA": str(ours.file)}
            env |= {"https_proxy": proxy.url, "KILN_REMOTE": "https://cache.example"}
            said = node("job", **env, **built.trusted).run("doctor")
            assert "encryption" not in "".join(said)
            assert server.asked[0].headers["Authorization"] == "Bearer hunter2"
            # The proxy is told nothing of it.
            assert [each.headers["Authorization"] for each in proxy.asked] == [None]
