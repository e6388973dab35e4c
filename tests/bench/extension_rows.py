"""What a start costs whose extension of torch.utils.cpp_extension is in Kiln's cache, beside the import of that library."""

import os
import shutil
import subprocess
import sys

from pairs import LeftOut, Limit, Row, Sides, said_by

START = 50e-3
SMALL = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ext", 0, -1};
extern "C" PyObject* PyInit_ext() { return PyModule_Create(&definition); }
"""
WHOLE = """
#include <torch/extension.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
"""
# Arguments: the folder, and "place", "kiln" or "import". Prints seconds.
LOADS = """
import os, sys, time
from torch.utils import cpp_extension
folder, how = sys.argv[1:]
if how != "import":
    import kiln.compat
    kiln.compat.install("cpp_extension")
    begin = time.perf_counter()
    cpp_extension.load("ext", [os.path.join(folder, "ext.cpp")], build_directory=folder if how == "place" else None)
else:
    begin = time.perf_counter()
    cpp_extension._import_module_from_library("ext", folder, True)
print(time.perf_counter() - begin)
"""


class ExtensionRows:
    def __init__(self, scratch, is_small):
        self.folder, self.source = scratch / "extension", SMALL if is_small else WHOLE

    def rows(self):
        yield Row("extension/start", "the first extension of a process, which is in the cache", self._start,
                  "the import of its library alone", limit=Limit(slack_s=START), is_long=True)

    def _start(self):
        if not (shutil.which("ninja") and shutil.which("c++")):
            raise LeftOut("there is no ninja or no c++ here")
        self.folder.mkdir(exist_ok=True)
        (self.folder / "ext.cpp").write_text(self.source)
        self._load("place")
        return Sides(lambda: self._load("kiln"), lambda: self._load("import"))

    def _load(self, how):
        env = os.environ | {"KILN_CACHE_DIR": str(self.folder / "cache")}
        command = [sys.executable, "-W", "ignore", "-c", LOADS, str(self.folder), how]
        return said_by(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True))
