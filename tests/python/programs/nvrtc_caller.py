"""A program that calls NVRTC: each argument is the name or the path of a library, which it opens, or
"close", which closes the one before. It compiles by each, and prints what comes back as one document."""

import ctypes
import json
import re
import sys
from _ctypes import dlclose
from pathlib import Path

HEADER = Path(__file__).resolve().parents[3] / "src/standin/nvrtc_functions.h"
FUNCTIONS = [*re.findall(r"X\((\w+)\)", HEADER.read_text()), "kiln_standin_identity"]
SOURCE = b'extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n'


class Info(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def place_of(function):
    """The library that the loader says it is in, and its name there."""
    info = Info()
    address = ctypes.cast(function, ctypes.c_void_p)
    assert ctypes.CDLL(None).dladdr(address, ctypes.byref(info))
    return info.path.decode(), (info.name or b"").decode()


def compiled(nvrtc, *options):
    """What NVRTC answers to a small source; `nvrtc` has its functions as attributes."""
    major, minor, program, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    codes = [nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))]
    codes.append(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"scale.cu", 0, None, None))
    options = (ctypes.c_char_p * (1 + len(options)))(b"--gpu-architecture=compute_90", *options)
    codes.append(nvrtc.nvrtcCompileProgram(program, len(options), options))
    codes.append(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    ptx = ctypes.create_string_buffer(max(1, size.value))
    codes.append(nvrtc.nvrtcGetPTX(program, ptx))
    codes.append(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
    return {"version": [major.value, minor.value], "codes": codes, "ptx": ptx.value.decode()}


def main():
    answers, opened = [], None
    for name in sys.argv[1:]:
        if name == "close":
            dlclose(opened._handle)
            continue
        try:
            opened = ctypes.CDLL(name)
        except OSError as error:
            answers.append({"error": str(error)})
            continue
        answer = {"functions": [each for each in FUNCTIONS if hasattr(opened, each)]}
        if answer["functions"]:
            answer["from"] = place_of(opened.nvrtcVersion)[0]
        if "nvrtcGetPTX" in answer["functions"]:
            answer |= compiled(opened)
        answers.append(answer)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
