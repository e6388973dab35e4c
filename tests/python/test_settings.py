"""kiln.configure(): who has its settings, and what is refused."""

import inspect

import pytest
from conftest import ROOT

import kiln
from kiln import service

WRONG = {
    "jobs='four'": "jobs is 'four', and not a whole number",
    "jobs=2.5": "jobs is 2.5, and not a whole number",
    "cache_limit_bytes='10GiB'": "cache_limit_bytes is '10GiB', and not a whole number",
    "no_jit='0'": "no_jit is '0', and not a whole number",
    "compile_timeout='5'": "compile_timeout is '5', and not a number of seconds",
    "compile_timeout=float('inf')": "compile_timeout is inf, and not a number of seconds",
    "cache_dir=5": "cache_dir is 5, and not a text",
    "toolchain=13.0": "toolchain is 13.0, and not a text",
    "disable=[5]": "disable is 5, and not a text",
    "trusted_uids=[-1]": "trusted_uids has -1, and user ids are from 0 to 4294967295",
    "attention=['kiln']": "attention is ['kiln']; possible are best, cudnn and kiln",
}


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_setting_is_refused_by_its_name(given):
    settings = eval(f"dict({given})")
    with pytest.raises(kiln.InvalidArgument) as refusal:
        kiln.configure(**settings)
    assert str(refusal.value) == WRONG[given]
    assert service.variables() == {}


def test_every_setting_is_a_variable_of_the_guide(python):
    settings = dict.fromkeys(inspect.signature(kiln.configure).parameters, "1")
    settings |= dict.fromkeys(("compile_timeout", "remote_wait", *service._NUMBERS), 1)
    settings |= {"attention": "kiln", "trusted_uids": [1], "log_level": "error"}
    said = python(
        f"""
        import kiln
        from kiln.service import variables
        kiln.configure(**{settings!r})
        print(*variables())
        """
    )
    guide = (ROOT / "docs/guide.md").read_text()
    assert len(said.split()) == len(settings)
    assert [name for name in said.split() if f"`{name}`" not in guide] == []


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
