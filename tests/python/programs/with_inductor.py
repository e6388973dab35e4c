"""Compiles a function by torch's Inductor for a device that is not here: all but loading and launching is real.

Prints the kinds of the results, and how many of its kernels Triton found and compiled.
"""

import os
import types

import torch
import torch._guards
import triton
from torch._dynamo import device_interface
from torch._inductor.compile_fx import compile_fx_inner, select_decomp_table
from torch._inductor.runtime import triton_heuristics, triton_helpers
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _triton
from triton.backends.compiler import GPUTarget

SAME = {
    **{"multi_processor_count": 132, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048},
    **{"max_threads_per_block": 1024, "warp_size": 32, "major": 9},
}
OF_TORCH = types.SimpleNamespace(
    **SAME, name="an H200", minor=0, total_memory=140 << 30, L2_cache_size=50 << 20, gcnArchName="", uuid=""
)


def give(value):
    return staticmethod(lambda *_: value)


class Device(device_interface.CudaInterface):
    class Worker(device_interface.CudaInterface.Worker):
        get_device_properties, current_device, set_device = give(OF_TORCH), give(0), give(None)

    current_device, set_device, exchange_device, maybe_exchange_device = give(0), give(None), give(0), give(0)
    device_count, is_available, is_triton_capable = give(1), give(True), give(True)
    get_compute_capability, get_device_properties = give(90), give(OF_TORCH)
    synchronize, raise_if_triton_unavailable = give(None), give(None)


class Driver:
    get_current_target, get_current_device = give(GPUTarget("cuda", 90, 32)), give(0)


def pretend():
    """That there is the device; what loads onto it only says what it would load."""
    device_interface.init_device_reg()
    device_interface.device_interfaces |= {"cuda": Device, "cuda:0": Device}
    torch.cuda.get_device_properties = lambda *_: OF_TORCH
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.current_device = lambda: 0
    DeviceProperties.create = lambda *_: DeviceProperties(type="cuda", index=0, cc=90, **SAME)
    _triton.has_triton = lambda *_, **__: True
    triton_helpers.set_driver_to_gpu = lambda: None
    triton.runtime.driver.set_active(Driver())
    kinds = []

    def make_launchers(tuner):
        kinds.extend(type(each).__name__ for each in tuner.compile_results)
        tuner.launchers = []

    triton_heuristics.CachingAutotuner._make_launchers = make_launchers
    triton_heuristics.CachingAutotuner._dynamic_scale_rblock = lambda _: None
    return kinds


def function(x, y):
    z = torch.relu(x + y) * 2
    return z, torch.softmax(z, -1), z.sum(0)


def main():
    kinds, found = pretend(), []
    triton.knobs.compilation.listener = lambda cache_hit, **_: found.append(cache_hit)
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        given = [torch.empty(1024, 4096, device="cuda") for _ in range(2)]
        graph = make_fx(function, decomposition_table=select_decomp_table(), tracing_mode="real")(*given)
    with V.set_fake_mode(mode), torch._guards.tracing(torch._guards.TracingContext(mode)):
        compile_fx_inner(graph, given)
    print(*sorted(set(kinds)), f"{found.count(True)} hits, {found.count(False)} compiled")


if __name__ == "__main__":
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    main()
