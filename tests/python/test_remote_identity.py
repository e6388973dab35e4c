"""Who asks a server, as clouds and programs of others say it: commands, roles, and queries behind a URL."""

import json
import pathlib
import threading
import time
import urllib.parse

import pytest
import servers
from test_remote import built, node, served, write_secret

built, node = built, node  # fixtures

SECRET, TOKEN = "s3secret", "SESSION=="
ROLE = "arn:aws:iam::123456789012:role/kernels"
ALONE = {"AWS_EC2_METADATA_DISABLED": "true"}


def in_an_hour(seconds=3600):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def keys(token="SessionToken", **more):
    """As AWS's programs and services give them."""
    found = {"Version": 1, "Code": "Success", "AccessKeyId": "AKID", "SecretAccessKey": SECRET, token: TOKEN}
    return json.dumps(found | {"Expiration": in_an_hour()} | more)


def bucket(request, region="us-east-1"):
    """Lets in who has those keys and their session."""
    if not (request.headers["Authorization"] or "").startswith("AWS4"):
        return 403
    is_ours = request.headers["x-amz-security-token"] == TOKEN and servers.check_aws_signature(request, SECRET, region)
    return None if is_ours else 403


def state(job, url, **env):
    """What doctor says of a server; nothing of it is a secret."""
    process = job.start("doctor", "--json", **env)
    out, err = process.communicate(timeout=60)
    assert not any(each in out + err for each in (SECRET, TOKEN, "hunter2")), out + err
    (check,) = [each for each in json.loads(out)["checks"] if each["name"] in ("remote", f"remote {url}")]
    return check["verdict"], check["detail"]


@pytest.fixture
def asked(built, node, tmp_path):
    """asked(LINE, **settings): a server of that line's credentials, and a machine that asks it."""
    with servers.Server() as server:
        served(built, server)
        made = []

        def make(line, answer=bucket, **settings):
            write_secret(tmp_path / "auth", line)
            server.answer = answer
            made.append(node(f"asked-{len(made)}", KILN_REMOTE=server.url, KILN_NO_JIT="1",
                             KILN_REMOTE_AUTH=str(tmp_path / "auth"), **built.trusted, **settings))
            return made[-1]

        make.server = server
        yield make
        assert all(SECRET not in getattr(each, "said", "") for each in made)


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# Commands.


def test_keys_that_end_in_a_thousand_years_are_used(asked, built, tmp_path):
    helper = script(tmp_path / "helper", f"echo '{keys(Expiration='9999-12-31T23:59:59Z')}'")
    assert asked(f"command {helper}").warm() == (built.number, 0, {"remote"})


@pytest.mark.parametrize("kind", ["keys", "header"])
def test_a_command_gives_credentials_for_all_requests_of_a_process(asked, built, tmp_path, kind):
    bearer = json.dumps({"headers": {"Authorization": ["Bearer hunter2"]}, "expires": in_an_hour()})
    (tmp_path / "answer").write_text(keys() if kind == "keys" else bearer)
    helper = script(tmp_path / "helper", f'cat >> "$1"; echo >> "{tmp_path}/runs"; echo chatter >&2; cat "{tmp_path}/answer"')
    job = asked(f'command {helper} "{tmp_path}/a file"',
                bucket if kind == "keys" else lambda request:
                None if request.headers["Authorization"] == "Bearer hunter2" else 401)
    assert job.warm() == (built.number, 0, {"remote"})
    assert (tmp_path / "runs").read_text() == "\n"
    # As Bazel's helpers are asked.
    assert json.loads((tmp_path / "a file").read_text()) == {"uri": asked.server.url}
    verdict, detail = state(job, asked.server.url)
    assert verdict == "ok" and f"credentials of command {helper}, until 20" in detail, detail


def test_a_command_that_fails_is_a_denial_that_says_why(asked, built, tmp_path):
    helper = tmp_path / "helper"
    job = asked(f"command {helper}", lambda request: 500)
    for text, why in [
        ("echo no ticket >&2; exit 3", "it failed with 3: no ticket"),
        ("kill -9 $$", "signal 9 ended it"),
        ("echo hunter2", "no JSON object"),
        ("echo '[\"hunter2\"]'", "no JSON object"),
        ("echo '{\"Version\": 1, \"AccessKeyId\": \"hunter2\"}'", "no AccessKeyId and SecretAccessKey"),
        (f"echo '{keys(AccessKeyId='a b')}'", "no AccessKeyId and SecretAccessKey"),
        (f"echo '{keys(Expiration='soon')}'", "time of expiry"),
        (f"echo '{keys(Expiration=in_an_hour(-5))}'", "have ended"),
        ("echo '{\"headers\": {\"Authorization\": [\"hunter2\\u000aX-Other: 1\"]}}'", "no Authorization"),
        ("echo '{\"headers\": {\"Cookie\": [\"hunter2\"]}}'", "no Authorization"),
        ("yes hunter2 | head -c 1048576", "writes too much"),
        ("yes hunter2 >&2 & yes $!; kill $!", "writes too much"),
    ]:
        script(helper, text)
        verdict, detail = state(job, asked.server.url)
        assert verdict == "fail" and why in detail and "line 1" in detail and str(helper) in detail, (text, detail)
    helper.unlink()
    assert "No such file" in state(job, asked.server.url)[1]
    assert asked.server.asked == []


def test_a_command_that_hangs_delays_no_build_and_is_ended(asked, built, tmp_path):
    helper = script(tmp_path / "helper", f'echo $$ >> "{tmp_path}/pids"; trap "" TERM; sleep 100 & wait')
    job = asked(f"command {helper}", KILN_REMOTE_WAIT="50ms")
    job.env.pop("KILN_NO_JIT")
    began = time.monotonic()
    assert job.warm() == (0, built.number, set())
    assert time.monotonic() - began < 9, "the builds waited"
    began = time.monotonic()
    verdict, detail = state(job, asked.server.url)
    assert verdict == "fail" and "it did not end within 10 s" in detail, detail
    assert time.monotonic() - began < 15 and asked.server.asked == []


def test_a_command_ends_with_a_kiln_that_is_killed(asked, tmp_path):
    helper = script(tmp_path / "helper", f'echo $$ > "{tmp_path}/new"; mv "{tmp_path}/new" "{tmp_path}/pid"; exec sleep 100')
    process = asked(f"command {helper}").start("doctor")

    def wait_until(is_so):
        deadline = time.monotonic() + 8  # Kiln itself ends it after 10 s
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    wait_until((tmp_path / "pid").exists)
    process.kill()
    process.communicate()
    stat = pathlib.Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    wait_until(lambda: not stat.exists() or ") Z" in stat.read_text())  # nobody may reap it here


# Roles.


class Metadata(servers.Server):
    """Of an instance, version 2, and of a container: gives these answers, if it is asked rightly."""

    def __init__(self, answer=None, role="kernels\n", token="t0ken"):
        self.given, self.role, self.token = answer or keys("Token"), role, token
        super().__init__(self.give)

    def give(self, request):
        given = self.given(request) if callable(self.given) else self.given
        if isinstance(given, tuple):
            return given
        if request.path == "/container":
            is_right = request.headers["Authorization"] == "c0ntainer"
            return (200, {}, given.encode()) if is_right else (401, {}, b"")
        if (request.method, request.path) == ("PUT", "/latest/api/token"):
            is_right = request.headers["X-aws-ec2-metadata-token-ttl-seconds"] and request.body == b""
            return (200, {}, self.token.encode()) if is_right else (400, {}, b"")
        if request.method != "GET" or request.headers["X-aws-ec2-metadata-token"] != self.token:
            return 401, {}, b""
        path = request.path.removeprefix("/latest/meta-data/iam/security-credentials/")
        return {"": (200, {}, self.role.encode()), "kernels": (200, {}, given.encode())}.get(path, (404, {}, b""))


def test_the_role_of_an_instance_is_asked_for_once_and_last(asked, built, tmp_path):
    with Metadata() as metadata:
        env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{metadata.url}/", "http_proxy": "http://127.0.0.1:1"}
        job = asked("aws", **env)
        assert job.warm() == (built.number, 0, {"remote"})
        assert [each.method for each in metadata.asked] == ["PUT", "GET", "GET"]
        verdict, detail = state(job, asked.server.url)
        assert verdict == "ok" and "credentials of the instance's role kernels, until 20" in detail, detail
        # Whoever names another source, or none of an instance, is not asked.
        metadata.asked.clear()
        for other in (ALONE, {"AWS_PROFILE": "none"}, {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"},
                      {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/"},
                      {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": "/none"}):
            assert state(job, asked.server.url, **other)[0] == "fail"
        assert metadata.asked == []


@pytest.mark.parametrize("fault", ["hangs", "slow", "500", "garbage", "large", "no role", "bad role", "bad token", "other"])
def test_metadata_that_fail_are_a_denial_within_a_few_seconds(asked, built, tmp_path, fault):
    is_over = threading.Event()
    answer = {
        "hangs": lambda request: is_over.wait(20) and "",
        "slow": lambda request: is_over.wait(0.9) or keys("Token"),
        "500": (500, {}, b"hunter2"), "garbage": "hunter2", "large": keys("Token", More="x" * (1 << 20)),
        "other": (302, {"Location": "/container"}, b""),
    }.get(fault)
    role = {"no role": "", "bad role": "../x"}.get(fault, "kernels")
    with Metadata(answer, role, "a b" if fault == "bad token" else "t0ken") as metadata:
        job = asked("aws", AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata.url, KILN_REMOTE_WAIT="50ms")
        job.env.pop("KILN_NO_JIT")
        began = time.monotonic()
        if fault == "slow":
            assert sum(job.warm()[:2]) == built.number
            return
        assert job.warm() == (0, built.number, set())
        verdict, detail = state(job, asked.server.url)
        assert verdict == "fail" and "the metadata of the instance" in detail, detail
        assert time.monotonic() - began < 14 and asked.server.asked == []
        is_over.set()


def test_the_role_of_a_container_has_its_token_and_only_hosts_of_containers_get_it(asked, built, tmp_path):
    token = tmp_path / "token"
    token.write_text("c0ntainer\n")
    with Metadata() as metadata:
        env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{metadata.url}/container"}
        job = asked("aws", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(token), **env)
        assert job.warm() == (built.number, 0, {"remote"})
        assert [each.path for each in metadata.asked] == ["/container"]
        # A variable says it, too; the file wins.
        assert state(job, asked.server.url, AWS_CONTAINER_AUTHORIZATION_TOKEN="x")[0] == "ok"
        job.env.pop("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        assert "container's role" in state(job, asked.server.url, AWS_CONTAINER_AUTHORIZATION_TOKEN="c0ntainer")[1]
        assert "it answers 401" in state(job, asked.server.url, AWS_CONTAINER_AUTHORIZATION_TOKEN="x")[1]
        metadata.asked.clear()
        port = metadata.server_port
        for url in (f"http://0.0.0.0:{port}/container", f"http://127.0.0.1@0.0.0.0:{port}/", f"http://169.254.170.2:80@0.0.0.0:{port}/",
                    f"ftp://127.0.0.1:{port}/", f"http://0.0.0.0:{port}\\@127.0.0.1/", "http://127.0.0.1.example/"):
            detail = state(job, asked.server.url, AWS_CONTAINER_CREDENTIALS_FULL_URI=url)[1]
            assert "neither https nor of a host" in detail, (url, detail)
        for path in (f"@0.0.0.0:{port}/", ".example/x"):
            assert "neither https" in state(job, asked.server.url, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=path)[1], path
        assert metadata.asked == []


def test_a_web_identity_gets_the_keys_of_its_role_from_sts(asked, built, tmp_path):
    token = tmp_path / "token"
    token.write_text("ey.hunter2+/\n")
    given = []

    def sts(request):
        if not given:
            body = "<ErrorResponse><Error><Code>ExpiredTokenException</Code></Error></ErrorResponse>"
            return 400, {}, body.encode()
        return 200, {}, given[0].encode()

    with servers.Server(sts) as service:
        env = {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ENDPOINT_URL_STS": service.url}
        job = asked("aws", **env)
        verdict, detail = state(job, asked.server.url)
        assert verdict == "fail" and f"STS, for {ROLE}: it answers 400 (ExpiredTokenException)" in detail, detail
        given.append("hunter2")
        assert f"STS, for {ROLE}: it has no AccessKeyId" in state(job, asked.server.url)[1]
        given[0] = from_sts("AKID", SECRET, TOKEN).decode()
        service.asked.clear()
        assert job.warm() == (built.number, 0, {"remote"})
        (request,) = service.asked
        fields = urllib.parse.parse_qs(request.body.decode())
        assert (request.method, request.path) == ("POST", "/")
        assert fields == {"Action": ["AssumeRoleWithWebIdentity"], "Version": ["2011-06-15"], "RoleArn": [ROLE],
                          "RoleSessionName": ["kiln"], "WebIdentityToken": ["ey.hunter2+/"]}
        assert f"credentials of web identity {ROLE}, until" in state(job, asked.server.url)[1]
        # What it is sent is a secret.
        open_to = {"AWS_ENDPOINT_URL_STS": f"http://0.0.0.0:{service.server_port}"}
        assert "is not https" in state(job, asked.server.url, **open_to)[1]
        token.write_text("")
        assert "AWS_WEB_IDENTITY_TOKEN_FILE: it has no token" in state(job, asked.server.url)[1]
        # A profile may have it.
        token.write_text("ey.hunter2+/")
        config = job.cache.parent / "config"
        write_secret(config, f"[profile p]\nrole_arn={ROLE}\nweb_identity_token_file={token}\n")
        assert state(job, asked.server.url, AWS_PROFILE="p", AWS_CONFIG_FILE=str(config))[0] == "ok"


def from_sts(key, secret, token):
    return (f"<R><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{in_an_hour()}</Expiration></Credentials></R>").encode()


KEYS = "aws_access_key_id = BASE\naws_secret_access_key = base/secret\n"


class Sts(servers.Server):
    """Gives `ROLE` the keys that bucket() lets in, and `ROLE/first` others, to who signs with keys that it knows."""

    def __init__(self):
        self.known = {"BASE": ("base/secret", None), "FIRST": ("first-secret", "first-token")}
        super().__init__(self.give)

    def give(self, request):
        key = request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        secret, token = self.known[key]
        if request.headers["x-amz-security-token"] != token or request.headers["x-amz-content-sha256"]:
            return 403
        if not servers.check_aws_signature(request, secret, "eu-west-1", "sts"):
            return 403
        first = urllib.parse.parse_qs(request.body.decode())["RoleArn"] == [f"{ROLE}/first"]
        return 200, {}, from_sts("FIRST", "first-secret", "first-token") if first else from_sts("AKID", SECRET, TOKEN)

    def fields(self):
        found = [urllib.parse.parse_qs(each.body.decode()) for each in self.asked]
        self.asked.clear()
        return [{name: value for name, (value,) in each.items()} for each in found]


def assumed(role=ROLE, **more):
    return {"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": role, "RoleSessionName": "kiln"} | more


def test_a_role_of_a_profile_is_assumed_by_the_identity_that_it_names(asked, built, tmp_path):
    config = tmp_path / "config"
    helper = script(tmp_path / "helper", "echo '" + json.dumps(
        {"Version": 1, "AccessKeyId": "BASE", "SecretAccessKey": "base/secret"}) + "'")
    role = f"[profile p]\nregion = eu-west-1\nrole_arn = {ROLE}\n"
    base = f"[profile base]\n{KEYS}"
    with Sts() as sts:
        env = {"AWS_CONFIG_FILE": str(config), "AWS_ENDPOINT_URL_STS": sts.url}
        write_secret(config, f"{role}source_profile = base\n{base}")
        job = asked("aws profile p", lambda request: bucket(request, "eu-west-1"), **env, **ALONE)
        assert job.warm() == (built.number, 0, {"remote"})
        assert sts.fields() == [assumed()]
        verdict, detail = state(job, asked.server.url)
        assert verdict == "ok" and "credentials of profile p, until 20" in detail, detail
        sts.asked.clear()
        # Its own keys are those of a source, never who asks the server.
        for text, fields in [
            (f"{role}source_profile = p\n{KEYS}", [assumed()]),
            (f"{role}source_profile = base\naws_access_key_id = X\naws_secret_access_key = x\n{base}", [assumed()]),
            (f"{role}source_profile = base\n[profile base]\ncredential_process = {helper}\n", [assumed()]),
            (f"{role}credential_source = Environment\n", [assumed()]),
            (f"{role}source_profile = base\nexternal_id = a&b=c\nrole_session_name = node-1\nduration_seconds = 900\n{base}",
             [assumed(ExternalId="a&b=c", RoleSessionName="node-1", DurationSeconds="900")]),
            # A chain; a source's keys come before its role.
            (f"{role}source_profile = m\n[profile m]\nrole_arn = {ROLE}/first\nsource_profile = base\n{base}",
             [assumed(f"{ROLE}/first"), assumed()]),
            (f"{role}source_profile = m\n[profile m]\nrole_arn = {ROLE}/first\nsource_profile = none\n{KEYS}", [assumed()]),
        ]:
            write_secret(config, text)
            by = {"AWS_ACCESS_KEY_ID": "BASE", "AWS_SECRET_ACCESS_KEY": "base/secret"} if "Environment" in text else {}
            verdict, detail = state(job, asked.server.url, **by)
            assert verdict == "ok" and sts.fields() == fields, (text, detail)
        write_secret(tmp_path / "auth", "aws")
        write_secret(config, f"{role.replace('profile p', 'default')}source_profile = base\n{base}")
        assert state(job, asked.server.url)[0] == "ok" and sts.fields() == [assumed()]


@pytest.mark.parametrize("source", ["EcsContainer", "Ec2InstanceMetadata"])
def test_a_role_of_a_profile_is_assumed_by_the_role_of_the_machine(asked, built, tmp_path, source):
    config = tmp_path / "config"
    given = keys("Token", AccessKeyId="FIRST", SecretAccessKey="first-secret", Token="first-token")
    write_secret(config, f"[profile p]\nregion = eu-west-1\nrole_arn = {ROLE}\ncredential_source = {source}\n")
    with Sts() as sts, Metadata(given) as metadata:
        job = asked("aws profile p", lambda request: None, AWS_CONFIG_FILE=str(config), AWS_ENDPOINT_URL_STS=sts.url,
                    AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{metadata.url}/container",
                    AWS_CONTAINER_AUTHORIZATION_TOKEN="c0ntainer", AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata.url)
        assert job.warm() == (built.number, 0, {"remote"}) and sts.fields() == [assumed()]
        assert {each.path.endswith("container") for each in metadata.asked} == {source == "EcsContainer"}
        assert all("Credential=AKID/" in each.headers["Authorization"] for each in asked.server.asked)


def test_a_profile_whose_identity_cannot_be_had_is_refused_and_gets_no_other(asked, built, tmp_path):
    config = tmp_path / "config"
    advice = "'command aws configure export-credentials --profile NAME'"
    base = f"[profile base]\n{KEYS}"
    role = f"role_arn = {ROLE}\n"
    with Sts() as sts, Metadata() as metadata:
        job = asked("aws", AWS_CONFIG_FILE=str(config), AWS_ENDPOINT_URL_STS=sts.url,
                    AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{metadata.url}/container", AWS_CONTAINER_AUTHORIZATION_TOKEN="c0ntainer")
        for text, *why in [
            (f"{role}{KEYS}", "source_profile", "credential_source"),
            (f"{role}{KEYS}source_profile = base\ncredential_source = Environment\n{base}", "source_profile", "credential_source"),
            (f"{role}{KEYS}source_profile = gone\n", "source_profile 'gone'", "no profile"),
            (f"{role}source_profile = a\n[profile a]\n{role}source_profile = default\n", "no end"),
            (f"{role}source_profile = default\n", "no end"),
            (f"{role}{KEYS}source_profile = empty\n[profile empty]\nregion = eu-west-1\n", "source_profile 'empty'", "aws_access_key_id"),
            (f"{role}{KEYS}source_profile = base\nmfa_serial = arn:x\n{base}", "mfa_serial", advice),
            (f"{role}{KEYS}source_profile = s\n[profile s]\nsso_session = x\n", "source_profile 's'", "login", advice),
            ("sso_session = x\nsso_account_id = 1\n", "login", advice),
            ("login_session = arn:x\n", "login", advice),
            (f"{role}{KEYS}credential_source = Cloud\n", "credential_source"),
            (f"{role}credential_source = Environment\n", "AWS_ACCESS_KEY_ID"),
            (f"{role}web_identity_token_file = /none\n", "AWS_WEB_IDENTITY_TOKEN_FILE"),
            (f"role_arn =\nsource_profile = base\n{base}", "has no aws_access_key_id"),
            (f"{role}source_profile = base\n[profile base]\naws_access_key_id = BASE\n", "aws_secret_access_key"),
        ]:
            write_secret(config, f"[default]\n{text}")
            verdict, detail = state(job, asked.server.url)
            assert verdict == "fail" and all(each in detail for each in why), (text, detail)
        # Whoever writes its file chooses who asks.
        write_secret(config, f"[default]\n{role}credential_source = EcsContainer\n")
        config.chmod(0o664)
        assert "others may write" in state(job, asked.server.url)[1]
        assert asked.server.asked == sts.asked == metadata.asked == []


def test_a_profile_may_name_a_command_if_nobody_else_writes_its_file(asked, built, tmp_path):
    helper = script(tmp_path / "helper", f"echo '{keys()}'")
    config = tmp_path / "config"
    config.write_text(f"[profile p]\ncredential_process = {helper} x\n[default]\nregion = us-east-1\n")
    job = asked("aws profile p", AWS_CONFIG_FILE=str(config), **ALONE)
    assert job.warm() == (built.number, 0, {"remote"})
    assert "credentials of profile p" in state(job, asked.server.url)[1]
    config.chmod(0o664)
    assert "others may write" in state(job, asked.server.url)[1]
    config.write_text(f"[profile p]\nrole_arn = {ROLE}\nweb_identity_token_file = {config}\nregion = evil.example/\n")
    assert "others may write" in state(job, asked.server.url)[1]
    config.chmod(0o600)
    assert "the region 'evil.example/' is no name" in state(job, asked.server.url)[1]
    # A profile of settings alone is no source of keys.
    write_secret(tmp_path / "auth", "aws")
    assert "'aws' alone needs" in state(job, asked.server.url)[1]


# Queries.


def test_a_query_goes_to_its_server_alone_and_is_shown_to_nobody(built, node, tmp_path):
    sas = "sv=2024-11-04&se=2026&sig=hunter2%2B%3D"

    def blobs(request):
        path, _, query = request.path.partition("?")
        if query != sas:
            return 403, {}, b"\xef\xbb\xbf<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code></Error>"
        if request.method == "PUT" and request.headers["x-ms-blob-type"] != "BlockBlob":
            return 400, {}, b"<Error><Code>MissingRequiredHeader</Code></Error>"
        if request.method == "PUT" and request.headers["If-None-Match"] and request.path in server.files:
            return 409, {}, b"<Error><Code>BlobAlreadyExists</Code></Error>"
        return None

    auth = tmp_path / "auth"
    with servers.Server(blobs) as server, servers.Server() as other:
        write_secret(auth, f"{server.url}/container query ?{sas}\n")
        env = {"KILN_REMOTE": f"{server.url}/container/kiln", "KILN_REMOTE_AUTH": str(auth)}
        assert built.json("push", **env, **built.sign)["sent"] == built.number
        pack = tmp_path / "job.kpack.zst"
        built.run("pack", "-o", pack, "--sign", built.key)
        built.run("push", "--pack", pack, **env)
        job = node("job", KILN_NO_JIT="1", **env, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.json("pull", "--pack", pack.name)["stored"] == 0
        for said in ("".join(job.run("doctor", "--json")), "".join(job.run("stats")), job.said):
            assert "hunter2" not in said and "sig=" not in said
        # One that another has sent meanwhile is there.
        writer = node("writer", KILN_REMOTE_MODE="rw", **env, **built.sign)
        (key,) = [path for path in server.files if "/objects/" in path][:1]
        answered = []

        def late(request):
            if request.method in ("GET", "HEAD") and request.path == key and not answered:
                return 404, {}, b""
            if request.method == "PUT" and request.path == key:
                answered.append(request)
            return blobs(request)

        server.answer = late
        writer.warm()
        assert "uploads_dropped" not in writer.counters()
        server.answer = blobs
        # A wrong one is a denial without the query, and no other server gets it.
        write_secret(auth, f"{server.url}/container query sv=2024&sig=hunter3\n")
        refused = node("refused", **env, **built.trusted)
        assert refused.warm() == (0, built.number, set())
        assert "403 (AuthenticationFailed)" in refused.said and "hunter3" not in refused.said, refused.said
        wide = node("wide", **env | {"KILN_REMOTE": other.url}, **built.trusted)
        wide.warm()
        assert other.asked and not [each for each in other.asked if "?" in each.path]
        said = "".join(wide.run("doctor", status=1, KILN_REMOTE=f"{server.url}/container?sig=hunter2"))
        assert "hunter2" not in said and "query STRING" in said, said


# Lines.


def test_a_wrong_line_stops_its_own_server_alone(built, node, tmp_path):
    auth = tmp_path / "auth"
    with servers.Server() as good, servers.Server() as bad:
        write_secret(auth, f"{bad.url} baerer hunter2\nhttps:///hunter2 none\n{good.url} bearer fine\n")
        env = {"KILN_REMOTE": f"{bad.url} {good.url}", "KILN_REMOTE_AUTH": str(auth)}
        report = built.json("push", status=1, **env, **built.sign)
        assert report["sent"] == built.number and bad.asked == []
        assert "line 1: it is none of" in json.dumps(report["problems"]), report
        job = node("job", KILN_NO_JIT="1", **env, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.said.count("line 2: its URL names no host") == 1 and job.said.count("line 1") == 1, job.said
        checks = {each["name"]: each for each in job.json("doctor", status=1)["checks"]}
        assert checks[f"remote {good.url}"]["verdict"] == "ok"
        assert "line 1" in checks[f"remote {bad.url}"]["detail"] and "hunter2" not in json.dumps(checks)
        # What is wrong with its URL gives the server no other line.
        for url in (f"{bad.url}?x", bad.url.replace("://", "://me:hunter2@"), f"{bad.url};mode=rw"):
            write_secret(auth, f"{url} none\nbearer fine\n")
            assert "line 1: its URL has" in built.run("push", status=1, **env, **built.sign)[1] and bad.asked == []
        write_secret(auth, f"{bad.url} baerer hunter2\n{good.url} bearer fine\n")
        # Where no server has a right line, it is wrong input.
        assert "line 1" in built.run("push", status=2, **env | {"KILN_REMOTE": bad.url}, **built.sign)[1]
