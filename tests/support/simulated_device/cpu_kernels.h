// libkiln-cpu-kernels.so: computes on the CPU what is launched on the simulated driver,
// with the text of the templates compiled by the host's compiler. So memory of the host
// is the memory of a device whose kernels run. Plain C functions, for tests in other
// languages.
//
// The driver's launches name the image; which kernel an image is, the service tells in
// its events:
//
//   kernels = kiln_cpu_kernels_install(driver);
//   options.on_event = kiln_cpu_kernels_on_event;
//   options.on_event_user = kernels;
//
// It has the kernels that CMakeLists.txt lists, of templates alone. A launch of another
// one fails with CUDA_ERROR_NOT_SUPPORTED, and one that does something wrong with
// CUDA_ERROR_UNKNOWN (executor.h says what is found; of plain memory no bounds are
// known, so only what is mapped nowhere).
//
// Every function may run concurrently with every other; kernels run one at a time.

#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct kiln_event;
typedef struct kiln_cpu_kernels kiln_cpu_kernels;

/// Computes every later launch on the simulated driver with that path, which it opens
/// if nobody has. NULL: kiln_cpu_kernels_take_error() says why. Never freed.
kiln_cpu_kernels* kiln_cpu_kernels_install(const char* driver);

/// For kiln_options.on_event, with the kernels as its user.
void kiln_cpu_kernels_on_event(void* kernels, const struct kiln_event* event);

/// The same by hand: `image`, as launches name it, is `kernel`, as events name it.
void kiln_cpu_kernels_name_image(kiln_cpu_kernels* kernels, const char* image,
                                 const char* kernel);

/// The kernel that an image is, "" if nobody has said it. Valid for ever.
const char* kiln_cpu_kernels_name(kiln_cpu_kernels* kernels, const char* image);

/// Why the last call or launch of this thread that failed did so; "" if none has since
/// the last call of this function. Valid until the next one on this thread.
const char* kiln_cpu_kernels_take_error(void);

#ifdef __cplusplus
}
#endif
