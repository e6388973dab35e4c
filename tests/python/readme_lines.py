"""Runs the lines that README.md has for Python, on a simulated device, and compares what
they compute with torch. The package is that of PYTHONPATH, or the installed one."""

import ctypes
import re
from pathlib import Path

import kiln.testing

PAGE = Path(__file__).resolve().parents[2] / "README.md"


def fill(grid, block, address, value):
    (ctypes.c_float * block[0]).from_address(address)[:] = [value] * block[0]


kiln.testing.use_simulated_device("9.0")
kiln.testing.define_kernel("fill", (ctypes.c_void_p, ctypes.c_float), fill)
(lines,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
# The simulated device is the CPU, and has the kernel for shorter rows.
names = {}
exec(lines.replace('"cuda"', '"cpu"').replace("1024", "128"), names)

torch, x, w, y = (names[name] for name in ("torch", "x", "w", "y"))
expected = torch.nn.functional.rms_norm(x, w.shape, w, eps=1e-6)
gradients = torch.autograd.grad(expected.square().sum(), (x, w))
torch.testing.assert_close(y, expected)
torch.testing.assert_close((x.grad, w.grad), gradients, rtol=0.02, atol=0.02)
assert (names["out"] == 1.5).all()
print(len(lines.splitlines()), "lines:", *(each.function for each in kiln.testing.launches()))
