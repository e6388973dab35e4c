"""A remote cache in a bucket: moto speaks S3, checks each signature, and knows who may write."""

import servers
from test_remote import OTHERS, WARM, built, node, write_secret

built, node = built, node  # fixtures


def test_a_bucket_is_a_remote_for_those_who_have_its_key(built, node, tmp_path):
    auth = tmp_path / "auth"
    auth.touch(0o600)
    with servers.s3(tmp_path) as bucket:
        remote = {"KILN_REMOTE": f"{bucket.url}/kiln;region=us-east-1", "KILN_REMOTE_AUTH": str(auth)}
        auth.write_text("aws AKIAIOSFODNN7EXAMPLE:wrong")
        assert "403" in str(built.json("push", status=1, **remote, **built.sign)["problems"])
        auth.write_text(f"aws {bucket.key}:{bucket.secret}")
        assert built.json("push", **remote, **built.sign)["sent"] == built.number
        assert built.json("push", **remote, **built.sign)["already_there"] == built.number
        pack = tmp_path / "job.kpack.zst"
        built.run("pack", "-o", pack, "--sign", built.key)
        built.run("push", "--pack", pack, **remote)

        job = node("job", KILN_NO_JIT="1", **remote, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        assert job.payloads() == built.reference
        puller = node("puller", **remote, **built.trusted)
        assert puller.json("pull", "--pack", pack.name)["stored"] == built.number
        assert puller.warm(KILN_NO_JIT="1", KILN_REMOTE="") == (built.number, 0, {"disk"})
        # By the variables that AWS's own programs read, and what a job builds is sent by itself.
        auth.write_text("aws")
        keys = {"AWS_ACCESS_KEY_ID": bucket.key, "AWS_SECRET_ACCESS_KEY": bucket.secret}
        writer = node("writer", KILN_REMOTE_MODE="rw", **remote, **keys, **built.sign)
        _, sent, _ = writer.warm(kernels=OTHERS)
        assert sent > 0 and "uploads_dropped" not in writer.counters()
        reader = node("reader", KILN_NO_JIT="1", **remote, **keys, **built.trusted)
        assert reader.warm(kernels=OTHERS) == (sent, 0, {"remote"})
        stranger = node("stranger", **remote, AWS_ACCESS_KEY_ID=bucket.key, AWS_SECRET_ACCESS_KEY="x", **built.trusted)
        assert f"0 hits, {built.number} compiled" in "".join(stranger.run(*WARM))


def test_a_web_identity_and_a_profile_push_and_pull_by_the_keys_of_a_role(built, node, tmp_path):
    auth, token = tmp_path / "auth", tmp_path / "token"
    auth.touch(0o600)
    auth.write_text("aws")
    token.write_text("ey.JhbGciOi.x")
    with servers.s3(tmp_path) as bucket:
        remote = {"KILN_REMOTE": f"{bucket.url}/kiln;region=us-east-1", "KILN_REMOTE_AUTH": str(auth)}
        identity = {"AWS_ROLE_ARN": bucket.role, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ENDPOINT_URL_STS": bucket.sts}
        assert built.json("push", **remote, **identity, **built.sign)["sent"] == built.number
        job = node("job", KILN_NO_JIT="1", **remote, **identity, **built.trusted)
        assert job.warm() == (built.number, 0, {"remote"})
        said = "".join(job.run("doctor", "--remote-mode", "rw", KILN_REMOTE_SIGN=str(built.key)))
        assert f"credentials of web identity {bucket.role}, until" in said and "ey.Jhb" not in said
        # Who has keys assumes the role.
        write_secret(tmp_path / "config", f"[profile pod]\nrole_arn = {bucket.role}\nsource_profile = base\n[profile base]\n"
                                          f"aws_access_key_id = {bucket.key}\naws_secret_access_key = {bucket.secret}\n")
        by_profile = {"AWS_PROFILE": "pod", "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_ENDPOINT_URL_STS": bucket.sts}
        other = node("other", KILN_NO_JIT="1", **remote, **by_profile, **built.trusted)
        assert other.warm() == (built.number, 0, {"remote"})
        assert "credentials of profile pod, until" in "".join(other.run("doctor"))
        write_secret(tmp_path / "config", (tmp_path / "config").read_text().replace(bucket.secret, "wrong"))
        assert "STS, for" in "".join(other.run("doctor", status=1))
        # Without the identity nobody is let in.
        stranger = node("stranger", AWS_EC2_METADATA_DISABLED="true", **remote, **built.trusted)
        assert stranger.warm() == (0, built.number, set())
