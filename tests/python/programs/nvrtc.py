"""NVRTC by ctypes, for programs of the tests: `compiled()` makes one program and asks for all that there is."""

import ctypes
import os
import sys

OUTPUTS = ("PTX", "CUBIN", "LTOIR", "ProgramLog")


class Program:
    def __init__(self, library, source, name="k.cu", headers=()):
        self.nvrtc, self.handle = library, ctypes.c_void_p()
        texts = [text.encode() for _, text in headers]
        names = [each.encode() for each, _ in headers]
        array = ctypes.c_char_p * max(1, len(names))
        source = source if isinstance(source, bytes) else source.encode()
        self.created = library.nvrtcCreateProgram(
            ctypes.byref(self.handle), source, name.encode(), len(names), array(*texts), array(*names)
        )

    def add(self, expression):
        return self.nvrtc.nvrtcAddNameExpression(self.handle, expression.encode())

    def compile(self, *options):
        array = (ctypes.c_char_p * max(1, len(options)))(*[each.encode() for each in options])
        return self.nvrtc.nvrtcCompileProgram(self.handle, len(options), array)

    def output(self, kind):
        size = ctypes.c_size_t()
        codes = [getattr(self.nvrtc, f"nvrtcGet{kind}Size")(self.handle, ctypes.byref(size))]
        text = ctypes.create_string_buffer(max(1, size.value))
        codes.append(getattr(self.nvrtc, f"nvrtcGet{kind}")(self.handle, text))
        assert codes == [0, 0], (kind, codes)
        return text.raw[: size.value]

    def lowered(self, expression):
        name = ctypes.c_char_p()
        code = self.nvrtc.nvrtcGetLoweredName(self.handle, expression.encode(), ctypes.byref(name))
        return code, name.value and name.value.decode()

    def destroy(self):
        return self.nvrtc.nvrtcDestroyProgram(ctypes.byref(self.handle))


def compiled(library, source, *options, name="k.cu", headers=(), names=()):
    """[code, each output as hex but the log, lowered names]."""
    program = Program(library, source, name, headers)
    for each in names:
        program.add(each)
    code = program.compile(*options)
    outputs = {kind: program.output(kind) for kind in OUTPUTS}
    log = outputs.pop("ProgramLog").decode("latin-1")
    lowered = [program.lowered(each) for each in names]
    program.destroy()
    return [code, log, {kind: each.hex() for kind, each in outputs.items()}, lowered]


def forked(do):
    """Calls it in a child, which must end well."""
    child = os.fork()
    if child == 0:
        do()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0


def workers():
    """The ids of this process's compile workers."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(") ")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name == "kiln-worker" and state != "Z" and int(parent) == os.getpid():
            found.append(int(pid))
    return found
