"""Every recipe of docs/admin.md, run as it stands there, with folders of the test in the places of its own.

The fake NVRTC builds, since the recipes are what is tried. What only a container or a registry could do
is left out by name: apt-get, pip, and the copy from one image to the next, which is done here.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import servers
from conftest import KIT, ROOT, blocks, environment

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
    tmp_path.chmod(0o755)

    def run(code, *, status=0, **changes):
        code = here(code, tmp_path)
        bash = code.startswith("#!/bin/bash")
        env = environment(
            tmp_path, KILN_NVRTC=str(KIT / "libkiln-fake-nvrtc.so"), KILN_CACHE_DIR=None,
            PATH=f"{KIT.parent / 'bin'}:{os.environ['PATH']}",
        )
        done = subprocess.run(
            ["bash" if bash else "sh", "-euc", code], cwd=tmp_path, check=False, timeout=60, text=True,
            env={name: value for name, value in (env | changes).items() if value is not None},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        assert done.returncode == status, f"status {done.returncode} of {code}\n{done.stdout}"
        return done.stdout

    run.folder = tmp_path
    return run


def recipe(name):
    """The block of the page whose first line, or first comment, begins with this name."""
    found = [
        block for block in blocks(PAGE, "sh") if re.match(rf"(#!.*\n)?(# |#SBATCH .*=){name}\b", block)
    ]
    assert len(found) == 1, name
    return found[0]


def parsed(text):
    """YAML, by whichever Python has a parser of it."""
    code = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        done = subprocess.run(
            [python, "-c", code], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=False, env={"PATH": os.environ["PATH"]},
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert "No module named 'yaml'" in done.stderr, done.stderr
    pytest.skip("no Python here has PyYAML (python3-yaml)")


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
        "install", "build", "node", "seed", "sign", "check", "server", "push", "pull", "bucket", "service", "NVRTC",
        "kiln-warm", "prolog", "epilog", "kiln-share", "train", "monitoring",
    }
    assert len(blocks(PAGE, "sh")) == len(shells)
    for name in shells:
        recipe(name)
    others = {"yaml": 3, "nginx": 2, "dockerfile": 1}  # of nginx, test_remote.py runs the second
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
        assert ", 0 compiled" in machine(job)
        # A dry run exits as a run does; it tells what is missing, and a run does not begin.
        builds = job.replace("KILN_NO_JIT=1 ", "")
        assert "missing" not in machine(builds + " --dry-run")
        assert "the cache is read-only" in machine(builds + ",12.0", status=3)
        said = machine(builds + ",12.0 --dry-run", status=3)
        assert "the cache is read-only" in said and re.search(r"[1-9]\d* missing", said), said
        (cache / "toolchains/recorded.json").chmod(0o600)
        said = machine(job + " || true")
        assert "recorded.json: Permission denied" in said and "chmod -R a+rX" in said, said
        cache.chmod(0o700)
        said = machine(job, status=3, KILN_TRUSTED_UIDS="0")
        assert f"{cache} cannot be entered by this user; let its owner chmod" in said, said


def test_a_pack_is_a_seed_and_a_cut_one_is_said_and_not_used(machine):
    machine(recipe("build"))
    temporary = {"TMPDIR": str(machine.folder)}
    said = machine(recipe("seed"), **temporary)
    assert re.search(r"^(\d+) requested: \1 hits, 0 compiled", said, re.M), said
    assert "objects checked: 0 corrupt" in machine(
        f"kiln verify --cache-dir {machine.folder}/kiln-{os.getuid()} | sed 's/^[0-9]* //'"
    )
    pack = machine.folder / "srv/kiln/job.kpack"
    pack.write_bytes(pack.read_bytes()[:-1])
    shutil.rmtree(machine.folder / f"kiln-{os.getuid()}")
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
    ours = servers.directives(here(blocks(PAGE, "nginx")[0], machine.folder))
    with servers.nginx(machine.folder / "nginx", *ours) as nginx:
        (machine.folder / "srv/kiln/remote").rmdir()
        (machine.folder / "srv/kiln/remote").symlink_to(nginx.files)

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
    (local / "cache").mkdir(parents=True)  # as an older prolog left it
    machine(prolog)
    first = local / os.readlink(local / "cache")
    kept = local / "cache-1-1"
    shutil.copytree(first, kept)
    for unpacked_long_ago in (first, kept):
        os.utime(unpacked_long_ago, (0, 0))
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
    assert (local / "cache").is_symlink() and (local / os.readlink(local / "cache")).is_dir()


def test_a_cache_that_a_service_account_owns_is_used_by_those_who_trust_it(machine):
    machine(recipe("build"))
    trusted(machine.folder / "srv/kiln/cache")
    code = recipe("service account")
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


class Pods:
    """Containers of the page, each with folders of the test where it mounts volumes, as kubelet makes these."""

    def __init__(self, machine, url=""):
        self.machine, self.url = machine, url

    def folder(self, pod, name):
        return self.machine.folder / "pods" / pod / name

    def make(self, pod, spec):
        shutil.rmtree(self.machine.folder / "pods" / pod, ignore_errors=True)
        self.folder(pod, "tmp").mkdir(parents=True)
        for volume in spec["volumes"]:
            made = self.folder(pod, volume["name"])
            made.mkdir()
            if volume.get("emptyDir") == {}:
                made.chmod(0o777)
                continue
            secret = volume["secret"]
            assert secret["secretName"] == "kiln"
            (made / "..1").mkdir()
            (made / "..data").symlink_to("..1")
            names = {each["key"]: each["path"] for each in secret.get("items", [])}
            for name in ("push.auth", "signing.key", "signing.key.pub"):
                path = names.get(name, name if not names else None)
                if path:
                    file = made / "..1" / path
                    shutil.copy(self.machine.folder / "srv/kiln" / name, file)
                    file.chmod(secret.get("defaultMode", 0o644))
                    (made / path).symlink_to(f"..data/{path}")
            made.chmod(0o1777 if os.geteuid() == 0 else 0o755)

    def run(self, pod, container, code=None, status=0, **env):
        """What the container says, or this code in it."""
        given = {each["name"]: each["value"] for each in container["env"]} if "env" in container else {}
        assert all(isinstance(value, str) for value in given.values()), "Kubernetes wants strings"
        places = {"/tmp": self.folder(pod, "tmp"), "http://cache.example:8080": self.url}
        places |= {each["mountPath"]: self.folder(pod, each["name"]) for each in container["volumeMounts"]}

        def placed(text):
            any_place = "|".join(rf"(?<![\w/.]){re.escape(place)}(?!\w)" for place in places)
            return re.sub(any_place, lambda found: str(places[found[0]]), text)

        if code is None:
            shell, option, code = container["command"]
            assert (shell, option) == ("sh", "-ec")
        given = {name: placed(value) for name, value in given.items()}
        return self.machine(placed(code), status=status, **given, **env)


def test_the_pod_finds_its_kernels(machine):
    spec = parsed(blocks(PAGE, "yaml")[0])["spec"]
    (kernels,), (train,) = spec["initContainers"], spec["containers"]
    machine(recipe("build"))
    pods = Pods(machine)
    pods.make("train", spec)
    pods.run("train", kernels)
    assert ", 0 compiled" in pods.run("train", train, f"kiln {PRESET}")


def test_a_job_builds_in_parts_and_a_pod_fetches_the_pack_of_all(machine):
    job = parsed(blocks(PAGE, "yaml")[1])["spec"]
    train = parsed(blocks(PAGE, "yaml")[0])["spec"] | parsed(blocks(PAGE, "yaml")[2])
    spec = job["template"]["spec"]
    (warm,), (kernels,) = spec["containers"], train["initContainers"]
    assert job["completionMode"] == "Indexed"
    assert {"name": "KILN_SHARDS", "value": str(job["completions"])} in warm["env"]
    machine("kiln key new /srv/kiln/signing.key && umask 077 && echo 'bearer word' > /srv/kiln/push.auth")

    def answer(request):
        return None if request.method != "PUT" or request.headers["Authorization"] == "Bearer word" else 401

    with servers.Server(answer) as server:
        pods = Pods(machine, server.url)

        def run(index):
            pods.make(f"warm-{index}", spec)
            return pods.run(f"warm-{index}", warm, JOB_COMPLETION_INDEX=str(index))

        with concurrent.futures.ThreadPoolExecutor(job["parallelism"]) as together:
            said = list(together.map(run, range(job["completions"])))
        counts = [re.search(r"^(\d+) requested: .*?(\d+) compiled", each, re.M) for each in said]
        assert all(counts), said
        requested, built = int(counts[0][1]), [int(each[2]) for each in counts]
        assert all(built) and sum(built) == requested, built
        pods.make("train", train)
        server.asked.clear()
        assert f"{requested} stored" in pods.run("train", kernels)
        assert [each.path for each in server.asked] == ["/packs/job.kpack.zst"]
        everybody_reads(pods.folder("train", "kiln") / "cache")
        assert ", 0 compiled" in pods.run("train", train["containers"][0], f"kiln {PRESET}")


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
