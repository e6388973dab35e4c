"""kiln.triton beneath torch's Inductor, as far as it goes without a device."""

from beneath import PROGRAMS
from triton_job import Job, ended


def test_inductor_finds_its_kernels_on_a_fresh_node(tmp_path):
    """As far as it goes without a device: its code, Triton's compiles, its bundle, its static launcher's choice."""

    def compiles(job, **changes):
        own = {"TORCHINDUCTOR_CACHE_DIR": str(job.folder / "inductor"), "LOGNAME": "somebody"}
        own |= {"TORCHINDUCTOR_STRICT_STATIC_CUDA_LAUNCHER": "1"}
        return ended(job.start(str(PROGRAMS / "with_inductor.py"), **own, **changes)).splitlines()[-1]

    built = Job(tmp_path / "login")
    assert compiles(built) == "StaticTritonCompileResult 0 hits, 4 compiled"
    built.kiln("pack", "-o", str(tmp_path / "job.kpack"))
    node = Job(tmp_path / "node")
    said = compiles(node, KILN_SEED=str(tmp_path / "job.kpack"), KILN_NO_JIT="1")
    assert said == "StaticTritonCompileResult 4 hits, 0 compiled" and node.assembled() == 0
