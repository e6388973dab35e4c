// The simulated cuDNN's remote control, for tests: plain C functions beside cuDNN's own
// in libkiln-simulated-cudnn.so, found with dlsym in the very copy of the library that
// the code under test opened. tests/support/simulated_cudnn.h wraps them.
//
// Descriptors are the real cuDNN's, which therefore reads and checks every plan; it
// needs no device for that. Handles are simulated: one belongs to the context that was
// current when it was made. A plan is loaded for its handle's device, as the simulated
// driver describes that, and its kernels go into the handle's context, once a plan;
// executing it launches each of them once, so that streams, captures and graphs are the
// simulated driver's affair. A plan that is finalised without a handle ends the
// process, as with cuDNN 9.19.0.
//
// The environment says what to open, unless kiln_simulated_cudnn_open() does:
//   KILN_DRIVER                  the simulated driver
//   KILN_SIMULATED_CUDNN_REAL    the real cuDNN; libcudnn.so.9
// and which version it says it is, until kiln_simulated_cudnn_set_version() does:
//   KILN_SIMULATED_CUDNN_VERSION=90100    the real one's
//
// Every function may run concurrently with every other and with cuDNN's.

#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUctx_st;
struct CUstream_st;

#define KILN_SIMULATED_CUDNN_TENSORS 32

/// An execution that succeeded.
typedef struct kiln_simulated_cudnn_run {
  int device;
  struct CUctx_st* context;
  struct CUstream_st* stream; /* as it was given */
  void* handle;
  void* plan;
  void* workspace;
  size_t count; /* of the next two, in the order they were given */
  int64_t ids[KILN_SIMULATED_CUDNN_TENSORS];
  void* pointers[KILN_SIMULATED_CUDNN_TENSORS];
} kiln_simulated_cudnn_run;

enum kiln_simulated_cudnn_counts {
  KILN_SIMULATED_CUDNN_HANDLES,      /* alive */
  KILN_SIMULATED_CUDNN_HANDLES_MADE, /* so far */
  KILN_SIMULATED_CUDNN_PLANS,        /* descriptors alive, finalised or not */
  KILN_SIMULATED_CUDNN_PACKS,        /* likewise */
  KILN_SIMULATED_CUDNN_PLANS_LOADED, /* finalise calls so far, refused ones included */
  KILN_SIMULATED_CUDNN_EXECUTIONS,   /* calls so far, refused ones included */
  KILN_SIMULATED_CUDNN_OVERLAPS /* executions while the handle or plan was in use */
};

/// Null is what the environment says. Returns 0, or -1 after a line on stderr. Once.
int kiln_simulated_cudnn_open(const char* driver, const char* real_cudnn);

/// What cudnnGetVersion() returns from now on; 0: the real one's.
void kiln_simulated_cudnn_set_version(size_t version);

/// The next call of that function does nothing and returns `status`. "" for none.
void kiln_simulated_cudnn_inject(const char* function, int status);

size_t kiln_simulated_cudnn_count(enum kiln_simulated_cudnn_counts what);

/// How many executions there were; copies the first `room` of them.
size_t kiln_simulated_cudnn_runs(kiln_simulated_cudnn_run* out, size_t room);

#ifdef __cplusplus
}
#endif
