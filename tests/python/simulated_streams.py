"""What torch.cuda has for real devices: streams, and their capture into CUDA graphs."""

import contextlib
import ctypes

import tvm_ffi

import kiln.testing


@contextlib.contextmanager
def _context_of(device):
    """The device's primary context is current; gives the driver."""
    driver, context = kiln.testing.driver(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    try:
        yield driver
    finally:
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0


def new_stream(device):
    stream = ctypes.c_void_p()
    with _context_of(device) as driver:
        assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream


def current_stream(device, stream):
    """A context manager: kernels on the device go into that stream."""
    return tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", device), stream.value)


@contextlib.contextmanager
def capture(device=0):
    """A stream of the device is its current one, and is being captured."""
    graph = ctypes.c_void_p()
    stream = new_stream(device)
    with _context_of(device) as driver:
        assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
        try:
            with current_stream(device, stream):
                yield
        finally:
            # The capture is not broken.
            assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
            assert driver.cuStreamDestroy_v2(stream) == 0
