// The simulated driver's remote control, for tests: plain C functions beside the
// driver's own in libkiln-simulated-driver.so, found with dlsym in the very copy of the
// library that the code under test opened. tests/support/simulated_driver.h wraps them.
//
// Every function may run concurrently with every other and with the driver's.
//
// The environment sets the same things for programs that no test can reach into:
//   KILN_SIMULATED_DEVICES=7.5,8.6,9.0     compute capabilities; "" for none; 9.0
//   KILN_SIMULATED_DRIVER_VERSION=13000    in CUDA's encoding
//   KILN_SIMULATED_TOOLKIT_VERSION=13000   of cubins that name none; the driver's
//   KILN_SIMULATED_LOADING=lazy|eager      lazy
//   KILN_SIMULATED_FAULTS=cuInit=100,cuModuleLoadData:3=2   every call, or the nth
//   KILN_SIMULATED_ABSENT=cuModuleEnumerateFunctions,...    not there for dlsym
//   KILN_SIMULATED_KERNELS=run|record      run: their PTX, by an interpreter
//   KILN_SIMULATED_CHECKS=unset,races      what else is looked for; none
//   KILN_SIMULATED_SEED=1                  an order of blocks, warps and lanes; 0
//   KILN_SIMULATED_MEMORY=device|process   which kernels may use; device
// It is read when the library is first called, the devices at cuInit; a value that
// cannot be read makes cuInit fail with 1 after a line on stderr that says why.
// Functions go by the names in programs, without "_v2".

#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUctx_st;
struct kiln_event;
struct CUstream_st;

/// A launch that the driver accepted. Dimensions are x, y, z.
typedef struct kiln_simulated_launch {
  const char* function; /* the entry point; valid for ever */
  int device;
  unsigned grid[3];
  unsigned block[3];
  unsigned dynamic_shared_bytes;
  struct CUstream_st* stream; /* as it was given */
  unsigned cluster[3];        /* zeros where none was asked for */
  int is_cooperative;
  int is_captured;     /* into a graph: it was not run */
  int is_repeated;     /* by the launch of a graph */
  const char* image;   /* that the function is of: see kiln_simulated_last_image() */
  int is_programmatic; /* programmatic stream serialization is allowed */
  int has_priority;    /* by a launch attribute */
  int priority;
  unsigned preferred_cluster[3]; /* zeros where none was asked for */
} kiln_simulated_launch;

/// Runs instead of a kernel, once a launch, on the launching thread before the launch
/// returns. Device pointers are pointers. It may call the driver.
typedef void (*kiln_simulated_kernel)(const kiln_simulated_launch* launch,
                                      void** kernel_params, void* user);

/// The same for every entry point. The kernel has `count` parameters, of `sizes` bytes.
/// The launch returns what this returns, a CUresult, and that has no other effect.
typedef int (*kiln_simulated_any_kernel)(const kiln_simulated_launch* launch,
                                         void** kernel_params, const size_t* sizes,
                                         size_t count, void* user);

enum kiln_simulated_objects {
  KILN_SIMULATED_CONTEXTS, /* active ones */
  KILN_SIMULATED_MODULES,  /* in contexts, those of libraries included */
  KILN_SIMULATED_LIBRARIES,
  KILN_SIMULATED_STREAMS,
  KILN_SIMULATED_EVENTS,
  KILN_SIMULATED_GRAPHS,
  KILN_SIMULATED_ALLOCATIONS
};

/// Everything as if the library had just been opened, the environment read anew: no
/// context on any thread, every handle stale, nothing counted, injected or registered.
void kiln_simulated_reset(void);

/* These four return 0, or -1 for a value that cannot be read or, devices and loading,
   after cuInit. They stand until the next reset. */
int kiln_simulated_set_devices(const char* capabilities); /* "7.5,9.0" */
int kiln_simulated_set_driver_version(int version);       /* 13000 */
int kiln_simulated_set_toolkit_version(int version);
int kiln_simulated_set_loading(const char* mode); /* "eager" or "lazy" */

/// The nth call of `function` from now on, counting from 1, or with 0 every one, does
/// nothing and returns `result`. A result that is the end of a context on real devices
/// (700, 719, ...) is the end of the one current to the caller. Returns 0, or -1 for a
/// function that the library does not have or a number that is no CUresult.
int kiln_simulated_inject(const char* function, unsigned long nth, int result);
void kiln_simulated_clear_faults(void);

/// From now on dlsym and cuGetProcAddress do not find `function` in any version. Those
/// who found it before may go on. Returns 0, or -1 for one that is not there.
int kiln_simulated_remove(const char* function);

/// Every later call in that context fails with `result`, as after a kernel's crash.
/// Returns 0, or -1 for no context.
int kiln_simulated_lose_context(struct CUctx_st* context, int result);

/// From now on every call fails with CUDA_ERROR_DEINITIALIZED, as when the process
/// ends.
void kiln_simulated_deinitialize(void);

/// Calls of all versions of `function`, refused ones included.
unsigned long kiln_simulated_calls(const char* function);

/// Images put into a context so far, and those on one device.
unsigned long kiln_simulated_loads(void);
unsigned long kiln_simulated_loads_on(int device);

/// The image that the calling thread put into a context last, NULL for none: the
/// SHA-256 of its bytes as 64 hex digits, of PTX without the closing NUL. Valid for
/// ever.
const char* kiln_simulated_last_image(void);

/// How many of them there are now.
size_t kiln_simulated_alive(enum kiln_simulated_objects what);

/// How many launches there were; copies the first `room` of them.
size_t kiln_simulated_launches(kiln_simulated_launch* out, size_t room);

/// `run` for every later launch of that entry point, null for none. A launch that is
/// captured is only recorded; it runs whenever its graph is launched, with the values
/// that its parameters had.
void kiln_simulated_register_kernel(const char* entry_point, kiln_simulated_kernel run,
                                    void* user);

/// `run` for every later launch of an entry point that no function is registered for;
/// null for none.
void kiln_simulated_register_any_kernel(kiln_simulated_any_kernel run, void* user);

/// KILN_SIMULATED_KERNELS, _CHECKS, _MEMORY and _SEED by the names behind the prefix,
/// for later launches. 0, or -1 for what cannot be read.
int kiln_simulated_set_computing(const char* name, const char* value);

/// The PTX of cubins is looked for in this cache, too.
void kiln_simulated_read_ptx_from(const char* cache_root);

/// For kiln_options.on_event: which kernel an image is.
void kiln_simulated_on_event(void* ignored, const struct kiln_event* event);

/// The kernel that an image is, as events name it; "" if no event has said it. Valid
/// for ever.
const char* kiln_simulated_name(const char* image);

/// Why the thread's last launch was refused or failed; "" if none has since the last
/// call. Valid until the thread's next one.
const char* kiln_simulated_take_error(void);

/// What kernels did wrong and what was noticed, a line each, since the last call.
/// Valid until the thread's next one.
const char* kiln_simulated_take_report(void);

#ifdef __cplusplus
}
#endif
