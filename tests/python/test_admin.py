"""Every recipe of docs/admin.md, run as it stands there, with folders of the test in the places of its own.

The fake NVRTC builds, since the recipes are what is tried. What only a container or a registry could do
is left out by name: apt-get, pip, and the copy from one image to the next, which is done here.

Each runs as a user without rights under a read-only root, if root runs the tests, else as this user. Only installing,
and giving nginx its folders, need root.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import pytest
import sandbox
import servers
from conftest import KIT, ROOT, blocks, environment
from test_remote_access import samples_of

PAGE = (ROOT / "docs/admin.md").read_text()
PRESET = "warm --preset llama-3-8b --arch 8.0,9.0"


def here(code, folder):
    """Code of the page with folders of the test in the places of /srv and others, and with this program."""
    places = {"/srv/kiln": "srv/kiln", "/var/lib/kiln": "var/kiln", "/opt/nvrtc-12": "opt/nvrtc-12"}
    for place, name in places.items():
        code = code.replace(place, str(folder / name))
    return code.replace("PATH=/usr/bin:", f"PATH={KIT.parent / 'bin'}:/usr/bin:")


@pytest.fixture
def machine(tmp_path):
    """Runs shell code of the page on a machine whose /srv and /var/lib are folders of the test."""
    (tmp_path / "srv/kiln").mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    tmp_path.chmod(0o755)
    for each in (tmp_path, tmp_path / "srv", tmp_path / "srv/kiln") if not sandbox.missing else ():
        os.chown(each, sandbox.USER, sandbox.USER)

    def run(code, *, status=0, root=False, user=sandbox.USER, **changes):
        code = here(code, tmp_path)
        shell = ["bash" if code.startswith("#!/bin/bash") else "sh", "-euc", f"cd {tmp_path}\n{code}"]
        if not root and not sandbox.missing:
            shell = sandbox.restricted(
                shell, {"/tmp": tmp_path / "tmp", str(tmp_path): tmp_path}, user=user, groups=[user]
            )
        env = environment(
            tmp_path, KILN_NVRTC=str(KIT / "libkiln-fake-nvrtc.so"), KILN_CACHE_DIR=None,
            PATH=f"{KIT.parent / 'bin'}:{os.environ['PATH']}",
        )
        done = subprocess.run(
            shell, check=False, timeout=60, text=True,
            env={name: value for name, value in (env | changes).items() if value is not None},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        assert done.returncode == status, f"status {done.returncode} of {code}\n{done.stdout}"
        return done.stdout

    run.folder = tmp_path
    run.user = os.getuid() if sandbox.missing else sandbox.USER
    return run


def recipe(name):
    """The block of the page whose first line, or first comment, begins with this name."""
    found = [
        block for block in blocks(PAGE, "sh") if re.match(rf"(#!.*\n)?(# |#SBATCH .*=){name}\b", block)
    ]
    assert len(found) == 1, name
    return found[0]


def test_a_node_with_another_nvrtc_needs_the_setting_that_the_warning_names(machine, nvrtc):
    machine(recipe("build"))
    use = "KILN_CACHE_DIR=/srv/kiln/cache kiln " + PRESET + " --dry-run"
    said = machine(use, KILN_NVRTC=None, CUDA_HOME=None)
    assert ": 0 hits" in said, said
    assert "missing" not in machine("KILN_NO_JIT=1 " + use, KILN_NVRTC=None, CUDA_HOME=None)
    setting, value = re.search(r"(KILN_TOOLCHAIN)=(\w+) asks for the NVRTC of the warm", said).groups()
    assert "missing" not in machine(use, KILN_NVRTC=None, CUDA_HOME=None, **{setting: value})
    assert setting in PAGE


def trusted(path):
    """Whether this user may use what another user owns is tried only where files can be given away."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for folder, _, files in os.walk(path):
        os.chown(folder, 12345, 12345)
        for file in files:
            os.chown(os.path.join(folder, file), 12345, 12345)


def everybody_reads(cache):
    """A job of any user may read the cache, and only its owner can write it."""
    for folder, folders, files in os.walk(cache):
        for each in folders + files:
            mode = os.stat(os.path.join(folder, each)).st_mode
            assert mode & 0o044 == 0o044 and not mode & 0o022, each


def test_every_recipe_of_the_page_is_tried_here():
    shells = {
        "install", "build", "node", "seed", "sign", "check", "server", "folders", "push", "pull", "bucket", "service",
        "NVRTC", "kiln-warm", "prolog", "epilog", "kiln-share", "train", "kubernetes", "monitoring",
    }
    assert len(blocks(PAGE, "sh")) == len(shells)
    for name in shells:
        recipe(name)
    # Of nginx, test_remote.py runs the second; program_signers_test has the words of "text".
    others = {"yaml": 0, "nginx": 2, "dockerfile": 1, "text": 2}
    assert {each: len(blocks(PAGE, each)) for each in others} == others
    # The lines of credentials, which test_remote_access.py tries.
    lines = len(blocks(PAGE, "json")) + len(re.findall(r"^```\n[^`]+^```$", PAGE, re.M))
    assert PAGE.count("\n```") == 2 * (len(shells) + sum(others.values()) + lines), "a block that nothing runs"


def test_the_page_installs_as_the_readme_does():
    readme = (ROOT / "README.md").read_text()
    *commands, pip, setting = recipe("install").splitlines()[1:]
    assert commands[0] in readme  # tests/install/package_test.sh runs the rest
    assert "".join(f"  {each}\n" for each in commands[1:]) in readme
    assert pip.split("/opt/")[1] in blocks(PAGE, "dockerfile")[0]
    assert setting.split()[1] in blocks(PAGE, "dockerfile")[0]
    assert pip.split()[-1] in (ROOT / "tools/wheels.txt").read_text()


def test_two_commands_and_a_node_is_warm_and_the_last_line_tells_one_that_is_not(machine):
    machine(recipe("build"))
    said = machine(recipe("node"))
    assert re.search(r"^(\d+) requested: \1 hits, 0 compiled", said, re.M), said
    everybody_reads(machine.folder / "var/kiln/cache/objects")
    assert (machine.folder / "var/kiln/cache/toolchains/recorded.json").stat().st_mode & 0o044 == 0o044
    # A node that has less: the same line fails, and builds nothing.
    shutil.rmtree(machine.folder / "var/kiln/cache/objects")
    said = machine(recipe("node").splitlines()[-1], status=3)
    assert "0 hits, 0 compiled" in said and "0 of 36 for 8.0, 0 of 36 for 9.0" in said, said


def test_an_ordinary_user_of_the_node_is_served_and_told_of_what_is_closed_to_others(machine):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can become another user, with setpriv")
    machine(recipe("build"))
    machine(recipe("node"))
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        cache = Path(open_to_all) / "cache"
        shutil.copytree(machine.folder / "var/kiln/cache", cache)
        job = (f"cd / && KILN_NO_JIT=1 KILN_CACHE_DIR={cache} "
               f"setpriv --reuid=12345 --regid=12345 --clear-groups kiln {PRESET}")
        assert ", 0 compiled" in machine(job, root=True)
        # A dry run exits as a run does; it tells what is missing, and a run does not begin.
        builds = job.replace("KILN_NO_JIT=1 ", "")
        assert "missing" not in machine(builds + " --dry-run", root=True)
        assert "the cache is read-only" in machine(builds + ",12.0", status=3, root=True)
        said = machine(builds + ",12.0 --dry-run", status=3, root=True)
        assert "the cache is read-only" in said and re.search(r"[1-9]\d* missing", said), said
        (cache / "toolchains/recorded.json").chmod(0o600)
        said = machine(job + " || true", root=True)
        assert "recorded.json: Permission denied" in said and "chmod -R a+rX" in said, said
        cache.chmod(0o700)
        said = machine(job, status=3, KILN_TRUSTED_UIDS="0", root=True)
        assert f"{cache} cannot be entered by this user; let its owner chmod" in said, said


def test_a_pack_is_a_seed_and_a_cut_one_is_said_and_not_used(machine):
    machine(recipe("build"))
    temporary = {"TMPDIR": f"{machine.folder}/tmp"}
    said = machine(recipe("seed"), **temporary)
    assert re.search(r"^(\d+) requested: \1 hits, 0 compiled", said, re.M), said
    assert "objects checked: 0 corrupt" in machine(
        f"kiln verify --cache-dir $TMPDIR/kiln-{machine.user} | sed 's/^[0-9]* //'", **temporary
    )
    pack = machine.folder / "srv/kiln/job.kpack"
    pack.write_bytes(pack.read_bytes()[:-1])
    machine(f"rm -r $TMPDIR/kiln-{machine.user}", **temporary)
    said = machine(recipe("seed"), status=3, **temporary)
    assert said.count("a seed is not used") == 1, said


def test_a_signed_pack_is_checked_by_the_node(machine):
    machine(recipe("build"))
    machine(recipe("sign"))
    if shutil.which("minisign"):
        machine("minisign -Vm /srv/kiln/signed.kpack.zst -p /srv/kiln/signing.key.pub")
    assert re.search(r"(\d+) objects: \1 stored", machine(recipe("check")))
    signed = machine.folder / "srv/kiln/signed.kpack.zst"
    signed.write_bytes((machine.folder / "srv/kiln/job.kpack").read_bytes())
    said = machine(recipe("check"), status=1)
    assert "wrong" in said, said


def test_one_machine_pushes_and_another_pulls_what_it_signed(machine):
    machine(recipe("build"))
    machine(recipe("sign"))
    machine(recipe("server"))
    if os.geteuid() == 0:  # else nginx runs as who made the folders
        user, group = servers.WORKER
        folders = recipe("folders").replace("chgrp www-data", f"chgrp {group}").replace("www-data:", f"{user}:")
        machine(folders, root=True)
    (machine.folder / "nginx").mkdir()
    (machine.folder / "nginx/files").symlink_to("../srv/kiln/remote")
    ours = servers.directives(here(blocks(PAGE, "nginx")[0], machine.folder))
    with servers.nginx(machine.folder / "nginx", *ours) as nginx:
        def on_the_net(code, **more):
            return machine(code.replace("http://cache.example:8080", nginx.url), **more)

        said = on_the_net(recipe("push"))
        assert re.search(r"^[1-9]\d* pushed, .* 0 already there$", said, re.M), said
        said = on_the_net(recipe("pull"))
        assert re.search(r"(\d+) objects: \1 stored", said) and "remote http://127.0.0.1" in said, said
        assert re.search(r"^(\d+) requested: \1 hits, 0 compiled", said, re.M), said
        # Objects alone do, too; and nobody sends without the password.
        shutil.rmtree(machine.folder / "var/kiln/pulled")
        packless = re.sub("kiln pull.*\n", f"kiln pull {PRESET[5:]}\n", recipe("pull"))
        assert re.search(r"^(\d+) objects: \1 pulled", on_the_net(packless), re.M)
        (machine.folder / "srv/kiln/push.auth").write_text("basic kiln:guessed\n")
        replace = recipe("push").replace("--push\n", "--push || kiln push --replace\n")
        said = on_the_net(replace, status=1)
        assert "it answers 401" in said, said


def test_a_prolog_that_replaces_the_cache_fails_no_job_beside_it(machine):
    machine(recipe("build"))
    pack = machine.folder / "srv/kiln/job.kpack"
    local = machine.folder / "var/kiln"
    prolog, epilog = recipe("prolog"), recipe("epilog")
    machine("mkdir -p /var/lib/kiln/cache")  # as an older prolog left it
    machine(prolog)
    assert (local / "cache-0").is_dir()
    first = local / os.readlink(local / "cache")
    kept = local / "cache-1-1"
    machine(f"cp -a {first} {kept} && touch -d @0 {first} {kept}")
    end = time.monotonic() + 4
    job = f"KILN_NO_JIT=1 KILN_CACHE_DIR=/var/lib/kiln/cache kiln {PRESET}"

    def jobs():
        ran = 0
        while ran < 4 or time.monotonic() < end:
            assert ", 0 compiled" in machine(job)
            ran += 1

    def prologs():
        ran = 0
        while ran < 4 or time.monotonic() < end:
            os.utime(pack, (1000 + ran, 1000 + ran))
            machine(prolog)
            machine(epilog)
            ran += 1

    with concurrent.futures.ThreadPoolExecutor(3) as together:
        ran = [together.submit(each) for each in (jobs, jobs, prologs)]
        for each in ran:
            each.result()
    assert not kept.exists(), "it was replaced long ago"
    assert first.exists(), "it was replaced today"
    # A pack that comes back finds its folder, which jobs may still use.
    os.utime(pack, (1000, 1000))
    made = (local / f"cache-1000-{pack.stat().st_size}").stat().st_ino
    machine(prolog)
    assert (local / "cache").stat().st_ino == made
    assert (local / "cache").is_symlink() and (local / os.readlink(local / "cache")).is_dir()


def test_a_cache_that_a_service_account_owns_is_used_by_those_who_trust_it(machine):
    machine(recipe("build"))
    trusted(machine.folder / "srv/kiln/cache")
    _, chmod, *job = recipe("service account").splitlines()
    machine(chmod, user=12345)
    code = "\n".join(job)
    assert re.search(r"^(\d+) requested: \1 hits", machine(code), re.M)
    said = machine(code.replace("KILN_TRUSTED_UIDS", "SOMETHING_ELSE"), status=3)
    assert said.count("set KILN_TRUSTED_UIDS=12345") == 1, said


def test_what_an_nvrtc_12_built_asks_for_a_driver_of_cuda_12(machine):
    real = ROOT / ".deps/nvrtc-12"
    if not real.is_dir():
        pytest.skip("no NVRTC 12 here")
    (machine.folder / "opt").mkdir()
    (machine.folder / "opt/nvrtc-12").symlink_to(real)
    pinned = re.search(r"^nvidia-cuda-nvrtc-cu12==\S+", (ROOT / "tools/wheels.txt").read_text(), re.M)
    lines = recipe("NVRTC 12").splitlines()
    assert lines[1].startswith("pip install ") and lines[1].endswith(pinned[0])
    machine("\n".join(lines[2:]))
    report = json.loads((machine.folder / "srv/kiln/report.json").read_text())
    assert report["min_driver"] == "12.0" and report["compiled"] == 2, report
    assert report["driver"] == "12.4" and "--driver 12.4" in lines[-1], report
    assert len(report["toolchains"]) == 1 and report["toolchains"][0].startswith("nvrtc-12."), report


def test_without_an_nvrtc_12_the_option_names_the_wheel_of_the_page(machine):
    *_, warm = recipe("NVRTC 12").splitlines()
    said = machine(warm, status=3)
    install = recipe("NVRTC 12").splitlines()[1].replace("/opt/nvrtc-12", "DIR")
    assert f"`{install}`" in said and "KILN_NVRTC=DIR/nvidia/cuda_nvrtc/lib/libnvrtc.so.12" in said, said


def test_the_dockerfile_warms_a_folder_that_its_second_stage_can_use(machine):
    steps = blocks(PAGE, "dockerfile")[0].replace("\\\n", " ").splitlines()
    exports, warmed = [], False
    for step in filter(None, steps):
        word, rest = step.split(None, 1)
        assert word in {"FROM", "COPY", "ENV", "RUN"}, step
        if word == "ENV" and not rest.startswith("KILN_NVRTC="):
            exports.append(f"export {rest}")
        elif word == "RUN":
            ours = [each for each in rest.split("&&") if shlex.split(each)[0] in {"kiln", "chmod"}]
            if ours:
                machine("\n".join(exports + ["umask 077"] + ours))
                warmed = True
        elif word == "COPY" and rest.startswith("--from=warm"):
            assert warmed and rest.split()[1:] == ["/srv/kiln/cache"] * 2, rest
    everybody_reads(machine.folder / "srv/kiln/cache")
    wheel = re.search(r"nvidia-cuda-nvrtc==\S+", PAGE)[0]
    assert wheel in (ROOT / "tools/wheels.txt").read_text()
    said = machine(f"export KILN_CACHE_DIR=/srv/kiln/cache\nkiln {PRESET}", KILN_NO_JIT="1")
    assert ", 0 compiled" in said


def test_each_task_of_the_array_builds_its_part_and_the_prolog_brings_it_to_the_node(machine):
    array, prolog = recipe("kiln-warm"), recipe("prolog")
    last = int(re.search(r"--array=0-(\d+)", array)[1])
    slurm = {"SLURM_ARRAY_TASK_COUNT": str(last + 1), "SLURM_ARRAY_TASK_MIN": "0", "SLURM_CPUS_PER_TASK": "2"}
    for task in range(last + 1):
        said = machine(array, SLURM_ARRAY_TASK_ID=str(task), **slurm)
        assert re.search(r"^(\d+) requested: 0 hits, \1 compiled", said, re.M), "in two parts: " + said
    machine(array, SLURM_ARRAY_TASK_ID=str(last + 1), status=2, **slurm)
    wrapped = re.search(r"--wrap '([^']*)'", PAGE)[1].replace("\n", " ")
    machine(wrapped)
    use = "KILN_NO_JIT=1 KILN_CACHE_DIR=/var/lib/kiln/cache kiln warm --preset llama-3-8b --arch 8.0,9.0,10.0"
    machine(f"({prolog}) & ({prolog})\nwait $!")  # two jobs at once
    assert ", 0 compiled" in machine(use)
    # Once, and again for another file.
    kept = machine.folder / "var/kiln/cache/kept"
    kept.touch()
    machine(prolog)
    assert kept.exists()
    newer = (machine.folder / "srv/kiln/job.kpack").stat().st_mtime + 5
    os.utime(machine.folder / "srv/kiln/job.kpack", (newer, newer))
    machine(prolog)
    assert not kept.exists()
    assert ", 0 compiled" in machine(use)


def test_a_prolog_that_is_cut_off_leaves_the_cache_that_was_there(machine):
    machine(recipe("build"))
    machine(recipe("prolog"))
    pack = machine.folder / "srv/kiln/job.kpack"
    whole = pack.read_bytes()
    pack.write_bytes(whole[: len(whole) // 2])
    newer = pack.stat().st_mtime + 5
    os.utime(pack, (newer, newer))
    machine(recipe("prolog"), status=1)
    assert ", 0 compiled" in machine(
        f"KILN_NO_JIT=1 KILN_CACHE_DIR=/var/lib/kiln/cache kiln {PRESET}"
    )


def test_a_bucket_takes_what_is_signed_as_aws_asks(machine):
    machine(recipe("build"))
    machine(recipe("sign"))
    region = re.search(r";region=([\w-]+)", recipe("bucket"))[1]
    keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "a/secret+key"}

    def answer(request):
        return None if servers.check_aws_signature(request, "a/secret+key", region) else 403

    with servers.Server(answer) as bucket:
        code, times = re.subn(r"https://bucket\.s3\.[\w-]+\.amazonaws\.com", bucket.url, recipe("bucket"))
        assert times == 1 and region in recipe("bucket").split(";region=")[0]
        said = machine(code, **keys)
        assert "mode rw" in said and re.search(r"^[1-9]\d* objects to 1 server: [1-9]\d* sent", said, re.M), said
        assert all(each.path.startswith("/kiln/objects/v1/") for each in bucket.asked)
        said = machine(code, status=1, **keys | {"AWS_SECRET_ACCESS_KEY": "another"})
        assert "403" in said, said


def test_the_watch_is_quiet_about_a_sound_cache_and_not_about_a_damaged_one(machine):
    machine(recipe("build"))
    watch = "export KILN_CACHE_DIR=/srv/kiln/cache\n" + recipe("monitoring")
    said = machine(watch)
    assert "kiln verify" not in said and "would miss" not in said, said
    stats = json.loads((machine.folder / "srv/kiln/stats.json").read_text())
    for name in ("bytes", "limit_bytes", "counters"):
        assert name in stats
    metrics = (machine.folder / "srv/kiln/kiln.prom").read_text()
    cache = f'cache="{machine.folder}/srv/kiln/cache"'
    assert f"\nkiln_entries{{{cache}}} {stats['entries']}\n" in metrics, metrics
    damaged = next((machine.folder / "srv/kiln/cache/objects").glob("v1/*/*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    said = machine(watch)
    assert "kiln verify: 1" in said and "a job would miss a kernel" in said, said


def test_root_sees_the_lies_that_two_users_of_a_read_only_cache_met(machine):
    python = Path("/usr/bin/python3")
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=False) if python.exists() else None
    if sandbox.missing or not version or version.stdout.split(".")[1] != str(sys.version_info.minor):
        pytest.skip(sandbox.missing or "no Python here that every user may start")
    job = f"{python} -c \"import sys; sys.modules['torch'] = None; import kiln; kiln.Kernel('extern \\\"C\\\" __global__ void k() {{}}', device=0).prepare()\""
    path = f"{ROOT / 'python'}:{sysconfig.get_path('purelib')}"
    machine(recipe("build") + recipe("sign"))
    keys = machine.folder / "srv/kiln/signing.key"
    settings = {"KILN_REMOTE_SIGN": str(keys), "KILN_REMOTE_KEYS": f"{keys}.pub", "KILN_REMOTE_WAIT": "20s"}
    caches = [f"{machine.folder}/srv/kiln/{name}" for name in ("cache", "other")]
    counts = {"KILN_COUNTERS_DIR": f"{machine.folder}/srv/kiln/counts"}
    users, metrics = (sandbox.USER, sandbox.USER + 1), []
    with servers.Server() as server:
        settings["KILN_REMOTE"] = server.url
        for cache in caches:
            machine(f"{job} && kiln push", KILN_CACHE_DIR=cache, PYTHONPATH=path, **settings)
        for name, body in server.files.items():
            server.files[name] = body[:-1] + b"?"
        machine("mkdir -m 1777 /srv/kiln/counts && cd /srv/kiln && chown -R 0:0 cache other && chown 0:0 . .. ../.. *.pub && chmod -R a+rX cache other && "
                "chmod a+r signing.key.pub && find cache/objects other/objects -type f -delete", root=True)
        del settings["KILN_REMOTE_SIGN"]
        for cache in caches:
            for user in users:
                more = counts | settings | {"KILN_NO_JIT": "1", "KILN_CACHE_DIR": cache, "PYTHONPATH": path}
                assert "KILN_NO_JIT" in machine(job, status=1, user=user, **more)
            stats = "kiln stats --format prometheus"
            metrics.append([machine(stats, root=each == 0, user=each, KILN_CACHE_DIR=cache, **counts) for each in (0, *users, 9)])
    found = [[samples_of(each)[0] for each in of_cache] for of_cache in metrics]
    for cache, (of_all, *each, of_none) in zip(caches, found, strict=True):
        (rejected,) = (sample for sample in of_all if sample[0] == "kiln_remote_rejected_total")
        assert rejected[1].startswith(f'cache="{cache}",')
        assert of_all[rejected] == sum(one[rejected] for one in each) == 2 and rejected not in of_none
    assert not set(found[0][0]) & set(found[1][0]), "node_exporter drops the second of two files"


def test_each_count_that_the_page_names_is_exported_by_a_node_with_bad_servers(machine):
    row = re.search(r"^\| `stats --format prometheus` \|(.*)\|$", PAGE, re.M)[1]
    named = re.findall(r"`(kiln_\w+)(?:\{([\w,]+)\})?`", row)
    assert len(named) == 8, named
    machine(recipe("build"))
    machine(recipe("sign"))
    keys = machine.folder / "srv/kiln/signing.key"
    settings = {"KILN_REMOTE_SIGN": str(keys), "KILN_REMOTE_KEYS": f"{keys}.pub"}
    full = []
    with servers.Server(lambda request: 507 if full and request.method == "PUT" else None) as server:
        machine("kiln push --cache-dir /srv/kiln/cache", KILN_REMOTE=server.url, **settings)
        full.append(True)
        damaged = next(iter(server.files))
        server.files[damaged] = server.files[damaged][:-1] + b"?"
        del server.files[[*server.files][1]]
        remotes = {"KILN_REMOTE": f"http://127.0.0.1:1 {server.url}", "KILN_REMOTE_WAIT": "20s"}
        remotes["KILN_REMOTE_MODE"] = "rw"
        said = machine(f"KILN_CACHE_DIR=/srv/kiln/node kiln {PRESET}", **remotes, **settings)
    assert " 2 compiled" in said, said
    # A seed that is cut is refused, and said.
    (machine.folder / "srv/kiln/job.kpack").write_bytes(b"cut")
    machine(f"KILN_CACHE_DIR=/srv/kiln/node KILN_SEED=/srv/kiln/job.kpack kiln {PRESET} >/srv/kiln/said")
    machine("export KILN_CACHE_DIR=/srv/kiln/node\n" + recipe("monitoring"))
    metrics = (machine.folder / "srv/kiln/kiln.prom").read_text()
    for name, labels in named:
        pattern = ",".join(f'{label}="[^"]*"' for label in labels.split(",") if label)
        pattern = 'cache="[^"]*"' + (f",{pattern}" if labels else "")
        assert re.search(rf"^{name}{{{pattern}}} [1-9]", metrics, re.M), f"{name} in {metrics}"
    # The counters of `stats --json` are there, too, by the names that the page gives.
    counters = json.loads((machine.folder / "srv/kiln/stats.json").read_text())["counters"]
    for name in ("hits", "compiled", "seed_refused", "uploads_dropped"):
        assert counters[name] > 0 and f"`{name}`" in PAGE, counters
    assert any(name.startswith("remote_rejected.") for name in counters)
    cache = f'cache="{machine.folder}/srv/kiln/node"'
    for counted in f"seed_refused_total{{{cache}", f'gets_total{{{cache},tier="disk"', f'gets_total{{{cache},tier="remote"':
        assert f"\nkiln_{counted}}} " in metrics, metrics
