"""kiln.configure(): who has its settings, and what is refused."""

import pytest

import kiln
from kiln import service

WRONG = {
    "job=4": "job is no setting; there are cache_dir, ",
    "jobs='four'": "jobs: 'four' is not a whole number from 1 to 1024",
    "jobs=2.5": "jobs is 2.5, and not a whole number",
    "jobs=0": "jobs: '0' is not a whole number from 1 to 1024",
    "cache_limit_bytes='10'": "cache_limit_bytes: the size '10' has no unit",
    "no_jit='perhaps'": "no_jit: 'perhaps' is neither on (1) nor off (0)",
    "compile_timeout='soon'": "compile_timeout: ",
    "compile_timeout=float('inf')": "compile_timeout is inf, and not a number of seconds",
    "cache_dir=5": "cache_dir is 5, and not a text",
    "toolchain=13.0": "toolchain is 13.0, and not a text",
    "disable=[5]": "disable is 5, and not a text",
    "seeds=['a:b']": "seeds has 'a:b', and ':' separates its elements",
    "seeds=__import__('pathlib').Path('a:b')": "seeds has 'a:b', and ':' separates its elements",
    "trusted_uids=[-1]": "trusted_uids: '-1' is not a whole number from 0 to 4294967295",
    "attention=['kiln']": "attention is ['kiln'], and not a text",
    "attention='fast', jobs=1": "attention: 'fast' is none of best, cudnn and kiln",
}


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_setting_is_refused_by_its_name(given):
    settings = eval(f"dict({given})")
    with pytest.raises(kiln.InvalidArgument) as refusal:
        kiln.configure(**settings)
    assert str(refusal.value).startswith(WRONG[given])
    assert service.variables() == {}


def test_the_settings_are_listed_with_variable_kind_and_meaning():
    listed = {setting.name: setting for setting in kiln.settings()}
    assert listed["compile_timeout"] == kiln.Setting(
        "compile_timeout", "KILN_COMPILE_TIMEOUT", "duration",
        "Time limit of one build: 90, which is seconds, or 5m.", "5m",
    )  # fmt: skip
    assert all(setting.meaning.endswith(".") for setting in listed.values())


def test_a_setting_is_the_text_of_its_variable_or_a_value_of_python(python):
    said = python(
        """
        import pathlib
        import kiln
        from kiln.service import variables
        kiln.configure(cache_dir=pathlib.Path("c"), cache_limit_bytes=1 << 20, worker_memory_bytes="1GiB", jobs=2,
                       compile_timeout=1.5, remote_wait="2s", no_jit=True, seeds=["a", pathlib.Path("b")],
                       disable="rope_*", trusted_uids=[1, 2], template_dirs=[], log_level=None)
        print(variables())
        """
    )
    assert eval(said) == {
        "KILN_CACHE_DIR": "c", "KILN_CACHE_SIZE": "1048576B", "KILN_WORKER_MEMORY": "1GiB", "KILN_JOBS": "2",
        "KILN_COMPILE_TIMEOUT": "1500ms", "KILN_REMOTE_WAIT": "2s", "KILN_NO_JIT": "1", "KILN_SEED": "a:b",
        "KILN_DISABLE": "rope_*", "KILN_TRUSTED_UIDS": "1,2", "KILN_TEMPLATE_DIR": "",
    }  # fmt: skip


def test_the_program_has_the_settings_that_the_service_has(nvrtc, python, tmp_path):
    said = python(
        """
        import os
        import kiln
        kiln.configure(cache_dir="chosen", cache_limit_bytes=1 << 30, compile_timeout=90.5, jobs=1,
                       worker_memory_bytes=1 << 30, no_jit=False, attention="best", disable=["rope_fwd"],
                       trusted_uids=[], seeds=[], log_level="error")
        wanted = {"template": "squared_relu_fwd:dtype=bf16", "arch": "9.0"}
        done = kiln.warm(**wanted, progress=False)
        assert done.compiled == done.requested > 0, done
        assert kiln.why(**wanted).same
        assert kiln.pack("all.kpack", progress=False).objects == done.compiled
        assert os.path.isdir("chosen/objects") and not os.path.exists(os.environ["KILN_CACHE_DIR"])
        print("chosen")
        """,
        folder=tmp_path,
        KILN_NO_JIT="1",
        KILN_SEED="/nowhere.kpack",
    )
    assert said == "chosen"
    refused = python(
        """
        import kiln
        kiln.configure(no_jit=True, nvrtc="/nowhere")
        try:
            kiln.warm(template="squared_relu_fwd:dtype=bf16", arch="9.0", progress=False)
        except kiln.Unavailable as error:
            print(error)
        """
    )
    assert "KILN_NVRTC is /nowhere" in refused


def test_an_empty_list_takes_the_place_of_a_variable(nvrtc, python):
    code = '''
        import torch
        import kiln
        kiln.configure({})
        try:
            kiln.prepare("softmax", (4, 64), dtype=torch.float16, device=0, backward=False)
            print("built")
        except kiln.Error as error:
            print(error)
        '''
    variables = {"KILN_DISABLE": "*", "KILN_TEMPLATE_DIR": "/nowhere"}
    assert "/nowhere" in python(code.format("disable=[]"), torch=True, **variables)
    assert "KILN_DISABLE" in python(code.format("template_dirs=[]"), torch=True, **variables)
    assert python(code.format("disable=[], template_dirs=[]"), torch=True, **variables) == "built"


def test_one_text_stands_for_a_list_of_one(nvrtc, python, tmp_path):
    code = """
        import kiln
        {}
        kiln.Kernel('extern "C" __global__ void fill(float* y) {{ *y = 1; }}').prepare(0)
        {}
        print(kiln.statistics()["compiled"])
        """
    assert python(code.format("", "kiln.pack('one.kpack', progress=False)"), folder=tmp_path) == "1"
    seeded = code.format("kiln.configure(seeds='one.kpack')", "")
    assert python(seeded, folder=tmp_path, KILN_CACHE_DIR=str(tmp_path / "other")) == "0"
