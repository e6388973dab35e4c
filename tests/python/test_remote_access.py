"""How a server is reached, who asks it, and what a node's collector of metrics learns of it."""

import json
import re

import pytest
import servers
from conftest import KIT, ROOT
from test_remote import OTHERS, WARM, Node, built, node, served, write_secret

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
        assert wrong.said.count("https_proxy: it is no URL of a proxy") == 1 and "hunter" not in wrong.said
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


# Credentials for each server.


def test_each_server_gets_its_own_credentials_and_no_other(built, node, tmp_path):
    auth = tmp_path / "auth"

    def wants(*values):
        return lambda request: None if request.headers["Authorization"] in values else 401

    def signed(request):
        return None if servers.check_aws_signature(request, "s3secret") else 403

    with servers.Server(wants("Bearer one")) as one, servers.Server(wants("Basic bWU6dHdv")) as two, \
            servers.Server(signed) as s3, servers.Server(wants(None)) as public:
        write_secret(auth, f"{one.url} bearer one\n{two.url}/team basic me:two\n{s3.url} aws K:s3secret\n"
                           f"{public.url} none\nbearer rest\n")
        urls = [one.url, f"{two.url}/team/kiln", s3.url, public.url]
        sent = built.json("push", "--remote", " ".join(urls), "--auth", auth, **built.sign)
        assert sent["sent"] == 4 * built.number
        for i, url in enumerate(urls):
            job = node(f"n{i}", KILN_NO_JIT="1", KILN_REMOTE=url, KILN_REMOTE_AUTH=str(auth), **built.trusted)
            assert job.warm() == (built.number, 0, {"remote"}), url
        for server, ours in (one, "Bearer one"), (two, "bWU6dHdv"), (s3, "AWS4"), (public, ""):
            heads = " ".join(str(each.headers["Authorization"]) for each in server.asked)
            assert not [each for each in ("Bearer one", "bWU6dHdv", "AWS4", "rest") if each != ours and each in heads]
        # A wrong line names its number, and nothing else of it.
        write_secret(auth, f"bearer rest\n{public.url} barer hunter2\n")
        said = "".join(job.run("doctor", status=1))
        assert "line 2" in said and "hunter2" not in said and "barer" not in said, said


def test_a_line_with_the_proxys_url_has_its_password(built, node, tmp_path):
    auth = tmp_path / "auth"
    with servers.Server() as server, servers.Proxy({"cache.example": server}, user="me:p@ss: %41") as proxy:
        served(built, server)
        write_secret(auth, f"{proxy.url} basic me:p@ss: %41\nhttp://cache.example bearer token\n")
        for name, env in ("own", {}), ("variable", {"http_proxy": proxy.url}):
            url = "http://cache.example" + ("" if env else f";proxy={proxy.url}")
            job = node(name, KILN_NO_JIT="1", KILN_REMOTE=url, KILN_REMOTE_AUTH=str(auth), **env, **built.trusted)
            assert job.warm() == (built.number, 0, {"remote"})
            assert "p@ss" not in job.said + "".join(job.run("doctor", "--json"))
        assert {each.headers["Authorization"] for each in server.asked} == {"Bearer token"}
        # It is warned of like a server's, where it goes to another machine without TLS.
        far = proxy.url.replace("127.0.0.1", "0.0.0.0")
        for to in far, proxy.url:
            write_secret(auth, f"{to} basic me:p@ss: %41\n")
            job = node(f"to-{to == far}", KILN_NO_JIT="1", KILN_REMOTE=f"http://cache.example;proxy={to}",
                       KILN_REMOTE_AUTH=str(auth), **built.trusted)
            assert job.warm() == (built.number, 0, {"remote"})
            said = job.said, "".join(job.run("doctor"))
            assert [f"sent to {far} without encryption" in each for each in said] == [to == far] * 2, said


def test_tinyproxy_takes_the_password_of_its_line_and_refuses_another(built, node, tmp_path):
    auth = tmp_path / "auth"
    with servers.Server() as server, servers.tinyproxy(tmp_path / "proxy", "node", "hunter2") as (proxy, log):
        served(built, server)
        url = f"http://0.0.0.0:{server.server_port}"  # not a loopback address: Kiln asks the proxy
        settings = {"KILN_REMOTE": url, "http_proxy": proxy, "KILN_REMOTE_AUTH": str(auth), **built.trusted}
        write_secret(auth, f"{proxy} basic node:hunter2\n")
        job = node("job", KILN_NO_JIT="1", **settings)
        assert job.warm() == (built.number, 0, {"remote"})
        asked = re.findall(rf"Request .*: GET {url}/(\S+)", log.read_text())
        assert len(asked) == built.number and "tinyproxy" in server.asked[0].headers["Via"], log.read_text()
        assert {each.headers["Proxy-Authorization"] for each in server.asked} == {None}
        server.asked.clear()
        write_secret(auth, f"{proxy} basic node:hunter3\n")
        denied = node("denied", **settings)
        assert denied.warm() == (0, built.number, set())
        assert denied.said.count("it answers 401") == 1 and "hunter" not in denied.said, denied.said
        check, _ = remote(denied.json("doctor", status=1), url)
        assert "it answers 401" in check["detail"] and f"proxy {proxy} (http_proxy)" in check["detail"], check
        assert server.asked == []


# AWS.


def test_a_profile_of_aws_is_read_as_its_own_programs_do(built, node, tmp_path):
    auth = tmp_path / "auth"
    seen = []

    def answer(request):
        seen.append(request.headers["x-amz-security-token"])
        region = "eu-west-1" if "/eu-west-1/" in request.headers["Authorization"] else "us-east-1"
        seen.append(region)
        return None if servers.check_aws_signature(request, "a/secret+key", region) else 403

    with servers.Server() as server:
        served(built, server)
        server.answer = answer
        home = tmp_path / "job"
        job = node("job", KILN_REMOTE=server.url, KILN_REMOTE_AUTH=str(auth), AWS_EC2_METADATA_DISABLED="true",
                   **built.trusted)
        (home / ".aws").mkdir()
        files = home / ".aws/credentials", home / ".aws/config"

        def state(**env):
            seen.clear()
            status = 1 if "fail" in env else 0
            env.pop("fail", None)
            report = job.json("doctor", status=status, **env)
            assert "secret+key" not in json.dumps(report)
            (check,) = [each for each in report["checks"] if each["name"] in ("remote", f"remote {server.url}")]
            return check["verdict"], check["detail"]

        write_secret(files[0], "[default]\naws_access_key_id=OLD\naws_secret_access_key = other\n"
                               "# comment\n[kernels]\n aws_access_key_id = nested\naws_access_key_id = AKID\n"
                               "aws_secret_access_key=a/secret+key\naws_session_token = SESSION==\n")
        files[1].write_text("[profile kernels]\nregion = eu-west-1\ns3 =\n  region = nested\n[default]\nregion=x\n")
        write_secret(auth, "aws profile kernels")
        assert state()[0] == "ok" and seen == ["SESSION==", "eu-west-1"]
        assert state(AWS_REGION="us-east-1")[0] == "ok" and seen == ["SESSION==", "us-east-1"]
        write_secret(auth, "aws")
        assert state(AWS_PROFILE="kernels")[0] == "ok"
        assert "answers 403" in state(fail=1)[1] and seen[0] is None  # the profile `default`
        # All keys in the file of the settings; others may not read it.
        write_secret(files[1], files[0].read_text().replace("[kernels]", "[profile kernels]"))
        files[0].unlink()
        assert state(AWS_PROFILE="kernels")[0] == "ok"
        files[1].chmod(0o644)
        assert "chmod 600" in state(AWS_PROFILE="kernels", fail=1)[1]
        other = tmp_path / "elsewhere"
        write_secret(other, "[kernels]\naws_access_key_id=AKID\naws_secret_access_key=a/secret+key\n")
        places = {"AWS_SHARED_CREDENTIALS_FILE": str(other), "AWS_CONFIG_FILE": "/none"}
        assert state(AWS_PROFILE="kernels", **places)[0] == "ok" and seen == [None, "us-east-1"]
        assert "no profile" in state(AWS_PROFILE="nobody", fail=1, **places)[1]
        assert "AWS_ACCESS_KEY_ID" in state(fail=1, **places)[1]


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken"])
def test_a_session_that_has_ended_is_a_denial_and_its_credentials_are_read_again(built, node, tmp_path, code):
    auth = tmp_path / "auth"
    renewed = []

    def answer(request):
        if request.headers["x-amz-security-token"] == "NEW":
            return None
        if renewed:
            write_secret(auth, "aws AKID:secret NEW")
        body = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        return 400, {}, b"" if request.method == "HEAD" else body

    with servers.Server() as server:
        served(built, server)
        server.answer = answer
        env = {"KILN_REMOTE": server.url, "KILN_REMOTE_AUTH": str(auth), **built.trusted}
        write_secret(auth, "aws AKID:secret OLD")
        denied = node("denied", **env)
        assert denied.warm() == (0, built.number, set())
        assert denied.said.count(f"it answers 400 ({code})") == 1 and len(server.asked) <= 6, denied.said
        check, _ = remote(denied.json("doctor", status=1), server.url)
        assert f"400 ({code})" in check["detail"] and "renew" in check["remedy"], check
        # A PUT, and a HEAD, which has no body, are denied, too.
        server.asked.clear()
        report = built.json("push", status=1, **(env | built.sign))
        assert report["sent"] == 0 and "400" in json.dumps(report["problems"]), report
        renewed.append(True)
        hits, compiled, _ = node("renews", **env).warm()
        assert hits + compiled == built.number and hits > built.number / 2
        write_secret(auth, "aws AKID:secret OLD")
        assert built.json("push", **(env | built.sign))["already_there"] == built.number


# Metrics.


def samples_of(text):
    """Of the text format 0.0.4, read as strictly as node_exporter does: {(name, labels): value}, and {family: HELP}."""
    label = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"'
    found, helps, types = {}, {}, {}
    for line in text.removesuffix("\n").split("\n"):
        if word := re.fullmatch(r"# HELP ([a-z_]+) (.+)", line):
            assert word[1] not in helps
            helps[word[1]] = word[2]
        elif word := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge|histogram)", line):
            assert word[1] not in types and word[1] in helps
            types[word[1]] = word[2]
        else:
            word = re.fullmatch(rf"([a-z_]+)\{{({label}(?:,{label})*)\}} ([0-9.]+)", line)
            assert word, line
            family = re.sub(r"_(bucket|sum|count)$", "", word[1])
            # The family begins right before its samples, and a counter is one by its name.
            assert family == [*types][-1], line
            assert (types[family] == "counter") == family.endswith("_total"), line
            assert word[2].startswith("cache=") and (word[1], word[2]) not in found
            found[word[1], word[2]] = float(word[3])
    return found, helps


def test_node_exporter_takes_the_metrics_of_two_caches_of_a_node(built, node, tmp_path):
    strange = node('two "b\\c"')
    with servers.Server() as server:
        served(built, server)
        env = {"KILN_REMOTE": f"{server.url} http://127.0.0.1:1", "KILN_REMOTE_MODE": "rw", **built.sign}
        nodes = [node("one", **env), Node(strange.cache.parent, **env)]
        together, helps = {}, {}
        for i, each in enumerate(nodes):
            each.run(*WARM)
            each.run("warm", *OTHERS)
            file = tmp_path / f"{i}.prom"
            each.run("stats", "--format", "prometheus", "--output", file)
            samples, said = samples_of(file.read_text())
            assert len(samples) > 20 and not set(samples) & set(together)
            # Another help for the same family is refused.
            assert all(helps.setdefault(name, text) == text for name, text in said.items())
            together |= samples
            escaped = str(each.cache).replace("\\", "\\\\").replace('"', '\\"')
            assert together["kiln_gets_total", f'cache="{escaped}",tier="remote"'] >= built.number
            newer = each.run("stats", "--format", "openmetrics")[0]
            assert newer.endswith("# EOF\n") and "# TYPE kiln_gets counter\n" in newer


def test_the_lines_that_the_page_for_admins_shows_are_taken(built, node, tmp_path):
    (lines,) = re.findall(r"^  ```\n(.*?)^  ```", (ROOT / "docs/admin.md").read_text(), re.M | re.S)
    write_secret(tmp_path / "auth", lines)
    forms = set(re.findall(r"^\| `(aws[^`]*)` \|", (ROOT / "docs/admin.md").read_text(), re.M))
    assert forms == {"aws", "aws KEY:SECRET", "aws KEY:SECRET SESSION-TOKEN", "aws profile NAME"}
    with servers.Server() as server, servers.Proxy({"public.example": server}) as proxy:
        served(built, server)
        env = {"KILN_REMOTE_AUTH": str(tmp_path / "auth"), "KILN_NO_JIT": "1", **built.trusted}
        assert node("rest", KILN_REMOTE=server.url, **env).warm() == (built.number, 0, {"remote"})
        assert {each.headers["Authorization"] for each in server.asked} == {"Bearer TOKEN"}
        # No keys of that profile are here; each other form is right.
        job = node("bucket", KILN_REMOTE=f"https://bucket.s3.eu-north-1.amazonaws.com;proxy={proxy.url}", **env)
        assert "line 1: there is no profile of AWS" in "".join(job.run("doctor", status=1))
        for form in sorted(forms - {"aws profile NAME"}):
            write_secret(tmp_path / "auth", form)
            keys = {"AWS_ACCESS_KEY_ID": "KEY", "AWS_SECRET_ACCESS_KEY": "SECRET"} if form == "aws" else {}
            server.asked.clear()
            job = node(form.replace(" ", "-"), KILN_REMOTE=server.url, **env, **keys)
            assert job.warm() == (built.number, 0, {"remote"})
            assert all("Credential=KEY/" in each.headers["Authorization"] for each in server.asked)
        # Those of other blocks, which nobody runs here.
        others = "".join(re.findall(r"^```\n([^`]+)^```$", (ROOT / "docs/admin.md").read_text(), re.M)).splitlines()
        assert len(others) == 3
        for i, line in enumerate(others):
            write_secret(tmp_path / "auth", line)
            job = node(f"other{i}", KILN_REMOTE=f"{line.split()[0]};proxy=http://127.0.0.1:1", **env, PATH=str(KIT.parent / "bin"))
            said = "".join(job.run("doctor", status=1))
            assert "it is none of" not in said and ("No such file" in said) == ("command" in line), said
