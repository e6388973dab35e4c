"""The Kustomize base of docs/kubernetes, rendered as its users do, and its containers run as a kubelet would.

kubectl is the system's or in .deps, and so are the schemas of Kubernetes. No cluster is needed: volumes are folders
with the owners, modes and links that a kubelet gives them, and each container is a process in a sandbox.
"""

import base64
import concurrent.futures
import copy
import re
import shutil
import subprocess
import sys

import pytest
import sandbox
import servers
from conftest import KIT, ROOT
from servers import DEPS
from test_admin import PAGE, machine, recipe

sys.path.append(str(DEPS / "kubernetes"))
yaml = pytest.importorskip("yaml", reason="there is no PyYAML")
BASE = ROOT / "docs/kubernetes"
KUBECTL = shutil.which("kubectl", path=f"/usr/bin:/usr/local/bin:{DEPS}/kubectl/usr/bin")
if not KUBECTL:
    pytest.skip("there is no kubectl", allow_module_level=True)
machine = machine  # a fixture


@pytest.fixture
def base(machine):
    """What the page's commands give to the cluster, by kind and name without its hash."""
    machine("kiln key new /srv/kiln/signing.key && umask 077 && echo 'bearer word' > /srv/kiln/push.auth")
    code = recipe("kubernetes").replace("/usr/share/doc/kiln/examples/kubernetes", str(BASE))
    code, times = re.subn("kubectl apply -k", f"{KUBECTL} kustomize", code)
    assert times == 1
    said = machine(code)
    return {
        (each["kind"], re.sub(r"-[a-z0-9]{10}$", "", each["metadata"]["name"])): each for each in yaml.safe_load_all(said)
    }


def pods(base):
    return [each["spec"]["template"]["spec"] for (kind, _), each in base.items() if kind == "Job"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def test_the_base_is_valid_for_each_version_of_kubernetes(base):
    schemas = pytest.importorskip("kubernetes_validate", reason="there are no schemas of Kubernetes")
    kinds = [kind for kind, _ in base]
    assert sorted(kinds) == ["ConfigMap", "Job", "Job", "Namespace", "Secret", "Secret"]
    for version in ("1.25", "1.31", schemas.latest_version()):
        for each in base.values():
            schemas.validate(each, version, strict=True)
        wrong = copy.deepcopy(base["Job", "train"])
        wrong["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
        with pytest.raises(schemas.ValidationError):
            schemas.validate(wrong, version, strict=True)


# Of "restricted" in the Pod Security Standards, and of the page: what holds of a pod and a container of it, and a change
# that breaks it.
VOLUMES = {"emptyDir", "secret", "configMap", "projected", "downwardAPI", "csi", "ephemeral", "persistentVolumeClaim"}
RULES = {
    "no namespace of the host": (lambda pod, _: not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), lambda pod, _: pod.update(hostPID=True)),
    "no port of the host": (lambda _, one: "ports" not in one, lambda _, one: one.update(ports=[{"hostPort": 80}])),
    "no volume of the host": (
        lambda pod, _: all(set(each) - {"name"} <= VOLUMES for each in pod["volumes"]),
        lambda pod, _: pod["volumes"].append({"name": "node", "hostPath": {"path": "/"}})),
    "no right beyond these": (
        lambda _, one: one["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        lambda _, one: one["securityContext"].update(privileged=True)),
    "not root": (
        lambda pod, _: pod["securityContext"].get("runAsNonRoot") is True and pod["securityContext"]["runAsUser"] > 0,
        lambda pod, _: pod["securityContext"].update(runAsUser=0)),
    "seccomp": (
        lambda pod, _: pod["securityContext"].get("seccompProfile") == {"type": "RuntimeDefault"},
        lambda pod, _: pod["securityContext"].update(seccompProfile={"type": "Unconfined"})),
    "no token of the cluster": (
        lambda pod, _: pod.get("automountServiceAccountToken") is False, lambda pod, _: pod.pop("automountServiceAccountToken")),
    "a place for the cache and for TMPDIR": (
        lambda pod, one: {"/kiln", "/tmp"} <= {
            mount["mountPath"] for mount in one["volumeMounts"] for volume in pod["volumes"]
            if volume["name"] == mount["name"] and "emptyDir" in volume},
        lambda _, one: one["volumeMounts"].pop(1)),
    "requests and limits": (
        lambda _, one: {"cpu", "memory", "ephemeral-storage"} <= set(one["resources"]["requests"])
        and {"memory", "ephemeral-storage"} <= set(one["resources"]["limits"]),
        lambda _, one: one["resources"]["limits"].pop("memory")),
    "the private key only where kernels are built": (
        lambda pod, one: ("push" in str(pod["volumes"])) == (one["name"] == "warm"),
        lambda pod, _: pod.update(volumes=[] if "push" in str(pod["volumes"]) else ["push"])),
}


def test_each_container_is_restricted(base):
    for rule, (holds, breaks) in RULES.items():
        all_pods = copy.deepcopy(pods(base))
        held = [one["name"] for pod in all_pods for one in containers(pod) if holds(pod, one)]
        assert sorted(held) == ["kernels", "train", "warm"], rule
        for pod in all_pods:
            breaks(pod, containers(pod)[0])
            assert not holds(pod, containers(pod)[0]), f"nothing breaks the rule: {rule}"


def test_what_is_said_twice_is_the_same(base):
    spec = base["Job", "kiln-warm"]["spec"]
    assert {"name": "KILN_SHARDS", "value": str(spec["completions"])} in spec["template"]["spec"]["containers"][0]["env"]
    assert base["Namespace", "kiln"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert {each["metadata"].get("namespace", "kiln") for each in base.values()} == {"kiln"}
    assert all(f"`{file.name}`" in PAGE for file in BASE.iterdir())


class Pod:
    """Folders for the volumes of a pod, as a kubelet makes them."""

    def __init__(self, base, folder, spec, url):
        self.base, self.spec, self.url = base, spec, url
        self.folder = folder
        rights = spec["securityContext"]
        self.user, self.group = rights["runAsUser"], rights["fsGroup"]
        assert rights["runAsGroup"] == self.user
        for volume in spec["volumes"]:
            made = folder / volume["name"]
            made.mkdir(parents=True)
            if "secret" in volume:
                self.lay(made, volume["secret"])
            in_memory = "secret" in volume or volume["emptyDir"].get("medium") == "Memory"
            self.own(made, 0o3777 if in_memory else 0o2777)  # a tmpfs begins with 1777

    def own(self, path, mode):
        shutil.chown(path, 0, self.group)
        path.chmod(mode)

    def lay(self, made, secret):
        (data,) = (each["data"] for each in self.base.values() if each["metadata"]["name"] == secret["secretName"])
        version = made / "..2026_11_30"
        version.mkdir()
        (made / "..data").symlink_to(version.name)
        for name, value in data.items():
            (version / name).write_bytes(base64.b64decode(value))
            (made / name).symlink_to(f"..data/{name}")
            self.own(version / name, secret["defaultMode"] | 0o040)
        self.own(version, 0o2755)

    def run(self, one, code=None, *, status=0, **more):
        """What the container says, or this code in it."""
        (settings,) = (each["data"] for (kind, _), each in self.base.items() if kind == "ConfigMap")
        given = settings | {each["name"]: each["value"] for each in one.get("env", [])} | {"KILN_REMOTE": self.url} | more
        folders = {
            each["mountPath"] + (":ro" if each.get("readOnly") else ""): self.folder / each["name"]
            for each in one["volumeMounts"]
        }
        command = ["sh", "-ec", code] if code else one["command"]
        done = subprocess.run(
            sandbox.restricted(command, folders, user=self.user, groups=[self.group]), text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": f"{KIT.parent}/bin:/usr/bin:/bin:/usr/sbin:/sbin"} | given,
        )
        assert done.returncode == status, f"status {done.returncode} of {command}\n{done.stdout}"
        return done.stdout


@pytest.fixture
def start(base, machine):
    """start(JOB, NAME): a pod of the job."""
    if sandbox.missing:
        pytest.skip(sandbox.missing)

    def answer(request):
        return None if request.method != "PUT" or request.headers["Authorization"] == "Bearer word" else 401

    with servers.Server(answer) as server:
        yield lambda job, name: Pod(base, machine.folder / "pods" / name, base["Job", job]["spec"]["template"]["spec"], server.url)


WITH_NVRTC = {"KILN_NVRTC": str(KIT / "libkiln-fake-nvrtc.so")}  # as the image has it


def test_pods_without_rights_build_in_parts_and_one_that_builds_nothing_finds_all(base, start):
    job = base["Job", "kiln-warm"]["spec"]
    (warm,) = job["template"]["spec"]["containers"]
    all_pods = [start("kiln-warm", f"warm-{i}") for i in range(job["completions"])]

    def run(index):
        return all_pods[index].run(warm, JOB_COMPLETION_INDEX=str(index), **WITH_NVRTC)

    with concurrent.futures.ThreadPoolExecutor(job["parallelism"]) as together:
        said = list(together.map(run, range(job["completions"])))
    counts = [re.search(r"^(\d+) requested: .*?(\d+) compiled", each, re.M) for each in said]
    assert all(counts), said
    requested, built = int(counts[0][1]), [int(each[2]) for each in counts]
    assert all(built) and sum(built) == requested, built
    assert ", 0 compiled" in run(0), "the kubelet starts a container again"

    train = start("train", "train")
    (kernels,), (job,) = train.spec["initContainers"], train.spec["containers"]
    assert f"{requested} stored" in train.run(kernels, **WITH_NVRTC)
    said = train.run(job, "kiln warm $KERNELS && ! touch /x && ! touch /keys/x && id -u && kiln stats")
    assert re.search(r"^(\d+) requested: \1 hits, 0 compiled", said, re.M), said
    assert re.search(rf"^hits +{requested}", said, re.M), said


@pytest.mark.parametrize("name", ("signing.key", "push.auth"))
def test_a_secret_that_others_may_read_is_refused_with_the_remedy(start, name):
    pod = start("kiln-warm", "warm")
    (pod.folder / "push/..data" / name).chmod(0o444)
    said = pod.run(pod.spec["containers"][0], "kiln warm $KERNELS && kiln push", status=1, **WITH_NVRTC)
    assert f"/push/{name}" in said and "0440 and a group of this process" in said, said


def test_a_public_key_or_a_pack_in_a_folder_that_all_can_write_is_refused(start):
    pod = start("train", "train")
    (kernels,) = pod.spec["initContainers"]
    (pod.folder / "keys").chmod(0o2777)  # as a ConfigMap has it
    said = pod.run(kernels, status=1, **WITH_NVRTC)
    assert "/keys (owner 0, mode 2777) can be changed by another user" in said, said
    said = pod.run(kernels, "kiln warm $KERNELS && kiln pack -o /kiln/job.kpack && kiln push --pack /kiln/job.kpack",
                   status=1, KILN_REMOTE_KEYS="", KILN_REMOTE=f"{pod.url};unsigned=1", **WITH_NVRTC)
    assert "/kiln (owner 0, mode 2777) can be changed by another user" in said, said
