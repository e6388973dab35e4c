"""What a program of cuda.core does with a device: memory, streams, events, kernels, graphs. The
simulated device runs the kernels' PTX; of a cubin, that of Kiln's object of it.

Works with the simulated driver as libcuda.so.1.
"""

import kiln
import numpy as np
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    PinnedMemoryResource,
    Program,
    ProgramOptions,
    StreamOptions,
    launch,
)
from cuda.core.graph import GraphBuilder, GraphDefinition

SOURCE = """
extern "C" __global__ void add(const float* x, float* y, float value, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i] + value;
}
"""
COUNT = 300
CONFIG = LaunchConfig(grid=3, block=128)


def memory(device, stream):
    """Pools and their figures, and memory of each kind."""
    assert device.memory_resource.attributes.used_mem_current == 0
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 16))
    block = pool.allocate(1000, stream=stream)
    assert pool.attributes.used_mem_current == 1000
    try:
        pool.allocate(1 << 16, stream=stream)
        raise AssertionError("a pool gave more than it has")
    except Exception as error:
        assert "OUT_OF_MEMORY" in str(error), error
    block.close()
    assert pool.attributes.used_mem_current == 0 and pool.attributes.used_mem_high == 1000
    kinds = (
        (PinnedMemoryResource(), True),
        (LegacyPinnedMemoryResource(), True),
        (ManagedMemoryResource(), True),
        (device.memory_resource, False),
    )
    for resource, is_of_host in kinds:
        with_kind = resource.allocate(64, stream=stream)
        assert with_kind.is_device_accessible
        assert with_kind.is_host_accessible == is_of_host
        with_kind.fill(7, stream=stream)
        if is_of_host:
            assert (np.from_dlpack(with_kind).view(np.uint8) == 7).all()


def time(device):
    """Streams and events."""
    stream = device.create_stream(options=StreamOptions(priority=-1))
    assert stream.priority == -1 and stream.device.device_id == device.device_id
    start = stream.record(options=EventOptions(timing_enabled=True))
    end = stream.record(options=EventOptions(timing_enabled=True))
    device.create_stream().wait(stream)
    end.sync()
    assert end.is_done and end - start >= 0


def compiled(device):
    """The kernel, by way of PTX, and what is known of it."""
    options = ProgramOptions(arch=f"compute_{device.arch}")
    ptx = Program(SOURCE, "c++", options=options).compile("ptx")
    kernel = ptx.get_kernel("add")
    assert [each.size for each in kernel.arguments_info] == [8, 8, 4, 4]
    binary = Program(SOURCE, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
    occupancy = binary.get_kernel("add").occupancy
    assert occupancy.max_active_blocks_per_multiprocessor(128, 0) == 16
    assert occupancy.max_potential_block_size(0, 0).max_block_size == 1024
    return kernel


def captured(device, arguments, kernel, calls):
    """A graph of three streams, and one of a graph within it."""
    child = device.create_graph_builder().begin_building()
    launch(child, CONFIG, kernel, *arguments(64))
    child.end_building()
    builder = device.create_graph_builder().begin_building()
    launch(builder, CONFIG, kernel, *arguments(1))
    builder.callback(lambda: calls.append("captured"))
    branches = builder.split(3)
    for branch in branches:
        launch(branch, CONFIG, kernel, *arguments(2))
    builder = GraphBuilder.join(*branches)
    builder.embed(child)
    return builder.end_building().complete()


def defined(x, y, arguments, kernel, calls):
    """The same, node by node."""
    graph = GraphDefinition()
    node = graph.launch(CONFIG, kernel, *arguments(128))
    node = node.memcpy(x, y, COUNT * 4).callback(lambda: calls.append("defined"))
    node.launch(CONFIG, kernel, *arguments(1)).join(graph.memset(y, 0, 4))
    assert len(graph.nodes()) == 6 and len(graph.edges()) == 5
    return graph.instantiate()


def main():
    device = Device()
    device.set_current()
    stream = device.create_stream()
    memory(device, stream)
    time(device)
    kernel = compiled(device)
    x, y = (device.allocate(COUNT * 4, stream=stream) for _ in range(2))
    host = LegacyPinnedMemoryResource().allocate(COUNT * 4, stream=stream)
    floats = np.from_dlpack(host).view(np.float32)
    floats[:] = np.arange(COUNT)
    host.copy_to(x, stream=stream)

    def arguments(value):
        return x, y, np.float32(value), np.int32(COUNT)

    def result():
        y.copy_to(host, stream=stream)
        stream.sync()
        return floats.copy()

    calls = []
    launch(stream, CONFIG, kernel, *arguments(0.5))
    results = [result()]
    graph = captured(device, arguments, kernel, calls)
    assert not calls
    graph.launch(stream)
    results.append(result())
    graph = defined(x, y, arguments, kernel, calls)
    graph.launch(stream)
    results.append(result())
    assert calls == ["captured", "defined"]
    built = kiln.Kernel(SOURCE).object_code()
    assert built.code_type == "cubin"
    launch(stream, CONFIG, built.get_kernel("add"), *arguments(8))
    results.append(result())
    added = [added[1] - 1 for added in results]
    assert added == [0.5, 64, 129, 136], added
    assert all((np.diff(each[1:]) == 1).all() for each in results)
    binary = Program(SOURCE, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
    try:
        launch(stream, CONFIG, binary.get_kernel("add"), *arguments(8))
        raise AssertionError("machine code was run")
    except Exception as error:
        assert "NOT_SUPPORTED" in str(error), error
    print("all of it works")


main()
