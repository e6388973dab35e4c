// The one service of the process.

#pragma once

#include <tvm/ffi/tvm_ffi.h>

#include "call.h"

namespace kiln::python {

/// The device of the tensor, by CUDA ordinal. If use_cpu_device() named one, the CPU's
/// memory is on that, and on the following ones if a framework divides it into devices,
/// as JAX can. Throws kiln.InvalidArgument.
DLDevice device_of(const char* name, const TensorView& tensor);

/// Throws kiln.InvalidArgument for memory that kernels on the device cannot use.
void expect_memory_of(int device, const char* name, const void* address);

/// Throws kiln.ForkError in a child of a process that had used its service. There a
/// lock may be held for ever, and the driver does not work.
void check_not_forked();

}  // namespace kiln::python
