/* Kiln for C11, and for every language that calls C. Each part below names a C++
 * header, installed beside this one, which documents the same functions: shapes, units,
 * formulas and errors.
 *
 *   kiln_service *service;
 *   kiln_result failed = kiln_service_open(NULL, &service);
 *   if (failed != NULL) {
 *     fprintf(stderr, "%s\n", kiln_error_message(failed));
 *     kiln_error_free(failed);
 *   }
 *
 * Threads: any thread may call any function, and several may use one handle at once.
 * But no thread may use a handle that another thread is freeing. No exception leaves
 * the library.
 *
 * Results: NULL on success, else an error, which the caller frees. On an error, an
 * output that is a pointer is NULL, and other outputs are not to be read. A wrong value
 * in a field and a NULL handle are KILN_INVALID_ARGUMENT.
 *
 * Structs: initialize each struct that begins with struct_size with its KILN_..._INIT
 * macro, which also sets the defaults. Such structs grow at their end only: a new field
 * begins at the old size, never in padding, which nobody initializes. So a newer
 * library takes the structs of an older program; an older library refuses larger ones,
 * with KILN_INVALID_ARGUMENT. Structs without a size never change.
 *
 * Text is UTF-8, ends with NUL, and lives as long as the object that it came from. Text
 * and structs that are passed in are not used after the call returns. Freeing NULL does
 * nothing.
 *
 * Forks: in a forked child, calls that need a device or a build return KILN_FORKED; the
 * child may free what it inherited.
 *
 * Cancellation: a thread that pthread_cancel() ends finishes its call first.
 */

/* NOLINTBEGIN(readability-identifier-naming): as C names them */
#ifndef KILN_C_H
#define KILN_C_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KILN_C_API __attribute__((visibility("default")))
#define KILN_C_RESULT KILN_C_API __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif

/* Of the first field that a later version of a struct has. */
#ifdef __cplusplus
#define KILN_ALIGNED alignas(8)
#else
#define KILN_ALIGNED _Alignas(8)
#endif

/* The value of an integer that is not set. */
#define KILN_UNSET INT64_MIN

typedef struct kiln_error kiln_error;
typedef kiln_error* kiln_result;
typedef struct kiln_service kiln_service;
typedef struct kiln_kernel kiln_kernel;
typedef struct kiln_cancel kiln_cancel;
/* A CUstream or cudaStream_t. NULL: the legacy default stream. For an operation it is
 * that of the device; for kiln_kernel_launch() it belongs to the thread's current
 * context, see kiln/kernel.h. */
typedef struct CUstream_st* kiln_stream;

/* ---- Errors: kiln/result.h ---- */

enum {
  KILN_INVALID_ARGUMENT = 1,
  KILN_NOT_FOUND,
  KILN_COMPILE_FAILED,
  KILN_WORKER_CRASHED,
  KILN_TIMEOUT,
  KILN_RESOURCE_LIMIT,
  KILN_CANCELLED,
  KILN_CORRUPT,
  KILN_UNTRUSTED,
  KILN_IO,
  KILN_UNAVAILABLE,
  KILN_DEVICE,
  KILN_FORKED
};

/* One of the codes above; 0 for NULL. */
KILN_C_API int kiln_error_code(const kiln_error* error);
/* Names the object, the call, the cause and the remedy; "" for NULL. */
KILN_C_API const char* kiln_error_message(const kiln_error* error);
/* For KILN_COMPILE_FAILED the compiler's log, which is the end of the message; else "".
 */
KILN_C_API const char* kiln_error_log(const kiln_error* error);
KILN_C_API void kiln_error_free(kiln_error* error);
/* For callbacks that return one, such as that of kiln_file_cache_build_once(). `code`
 * is one of those above, else KILN_INVALID_ARGUMENT is taken. */
KILN_C_RESULT kiln_result kiln_error_new(int code, const char* message);

/* ---- The service: kiln/service.h, kiln/request.h ---- */

/* The library's version, such as "1.2.3". Never NULL. */
KILN_C_API const char* kiln_version(void);

enum {
  KILN_EVENT_HIT,
  KILN_EVENT_COMPILED,
  KILN_EVENT_WAITED,
  KILN_EVENT_NOT_STORED,
  KILN_EVENT_LOADED,
  KILN_EVENT_FAILED,
  KILN_EVENT_SEED,
  KILN_EVENT_REMOTE
};
/* Valid only while the callback runs. */
typedef struct kiln_event {
  size_t struct_size;
  int kind; /* KILN_EVENT_... */
  const char *kernel, *key;
  int device;
  int64_t took_ns;     /* since the get() that caused it began */
  int code;            /* 0, or the error's code */
  const char* message; /* "", or the error's message */
} kiln_event;

/* kiln_service_open() copies all texts. */
typedef struct kiln_options {
  size_t struct_size;
  /* "NAME=VALUE", with a name of kiln_setting_get() and a value as its variable has;
   * of two with one name the last holds. What has none here takes the value of its
   * variable, or the default. */
  const char* const* settings;
  size_t setting_count;
  /* Called by the thread that caused the event; several threads may call it at once.
   * Must not call the service. NULL: no calls. on_event_user is passed on, and may be
   * freed once kiln_service_close() has returned. */
  void (*on_event)(void* user, const kiln_event* event);
  void* on_event_user;
} kiln_options;
#define KILN_OPTIONS_INIT \
  { .struct_size = sizeof(kiln_options) }

/* What a setting's value is. Paths of a list are separated by colons, names and numbers
 * by commas; an empty value is the empty list. */
enum {
  KILN_SETTING_TEXT,
  KILN_SETTING_PATH,
  KILN_SETTING_PATHS,
  KILN_SETTING_NAMES,
  KILN_SETTING_NUMBERS,
  KILN_SETTING_NUMBER,
  KILN_SETTING_SWITCH,  /* "1" or "0" */
  KILN_SETTING_SIZE,    /* "10GiB", "4096B" */
  KILN_SETTING_DURATION /* "5m", "100ms"; a number alone is of seconds */
};
typedef struct kiln_setting {
  size_t struct_size;
  const char* name; /* "jobs" */
  const char*
      variable; /* of the environment, which an option comes before: "KILN_JOBS" */
  int kind;     /* KILN_SETTING_... */
  const char* meaning;  /* a sentence */
  const char* fallback; /* what holds without option and variable; "": nothing */
} kiln_setting;
#define KILN_SETTING_INIT \
  { .struct_size = sizeof(kiln_setting) }
/* Setting `index`, whose texts are constants; false behind the last. */
KILN_C_API bool kiln_setting_get(size_t index, kiln_setting* setting);
/* What is wrong with "NAME=VALUE": no such setting, or a value that is none of its
 * kind. kiln_service_open() says what else is, such as a file that is not there. */
KILN_C_RESULT kiln_result kiln_setting_check(const char* setting);

/* `options` NULL: none is set. The caller closes `*service`. */
KILN_C_RESULT kiln_result kiln_service_open(const kiln_options* options,
                                            kiln_service** service);
/* Ends prefetches, which takes up to about a second, and waits up to 5 s for uploads.
 * Kernels of the service may outlive it. */
KILN_C_API void kiln_service_close(kiln_service* service);

enum { KILN_LOG_DEBUG, KILN_LOG_INFO, KILN_LOG_WARNING };
/* Sends the log of Kiln in this process to `write` instead of stderr; NULL: to stderr
 * again. `write` gets the lines that the setting log_level (KILN_LOG) lets through,
 * one per call, without level and newline; `line` is valid only while `write` runs. Any
 * thread may call it, several at once. It must not call Kiln.
 *
 * After this returns, threads that had begun to write a line may still call the old
 * callback with the old `user`, and nothing tells when the last one has. Free the old
 * `user` only once every Kiln call that was running then has returned and every service
 * that was open then is closed; or never. */
KILN_C_RESULT kiln_result kiln_log_to(void (*write)(void* user, int level,
                                                    const char* line),
                                      void* user);

typedef struct kiln_device {
  size_t struct_size;
  int ordinal;
  const char* name; /* this, uuid and pci_id: valid as long as the service */
  int capability_major, capability_minor;
  const char *uuid, *pci_id;
  uint64_t memory_bytes;
  int multiprocessors;
  int64_t shared_bytes_per_block; /* 0: unknown */
} kiln_device;
#define KILN_DEVICE_INIT \
  { .struct_size = sizeof(kiln_device) }

/* 0 on a machine without a driver. Functions take a device as its CUDA ordinal, 0 to
 * count - 1. */
KILN_C_RESULT kiln_result kiln_device_count(kiln_service* service, int* count);
KILN_C_RESULT kiln_result kiln_device_info(kiln_service* service, int device,
                                           kiln_device* info);

/* Whether this thread gets kernels, launches operations and asks for their workspace
 * only where all of it is loaded: false until it is set. Else such a call fails at once
 * with KILN_NOT_FOUND, and launches nothing: for a program that then calls the
 * operation's prepare function, which builds in any case, where it can be interrupted.
 * cuDNN's plans, which belong to a thread, are loaded for it all the same. Returns what
 * was set before. */
KILN_C_API bool kiln_use_only_loaded(bool only_loaded);

/* Whether `stream`, of `device`, is being captured into a graph, or work in it would
 * end the capture of another stream. Builds and loads nothing, and disturbs no capture.
 */
KILN_C_RESULT kiln_result kiln_stream_is_capturing(kiln_service* service, int device,
                                                   kiln_stream stream, bool* capturing);
/* Refuses memory that kernels on `device` cannot use: another device's own, and memory
 * that the driver does not know, unless they can use any. `what` names it in the
 * message: "argument 0". Disturbs no capture. */
KILN_C_RESULT kiln_result kiln_check_memory(kiln_service* service, int device,
                                            const char* what, const void* address);

/* A kiln_cancel cancels the calls that it is given to, any number of them, now and
 * later: it cannot be reset. The calls return KILN_CANCELLED. */
KILN_C_API kiln_cancel* kiln_cancel_new(void); /* NULL: out of memory */
KILN_C_API void kiln_cancel_request(kiln_cancel* cancel);
KILN_C_API void kiln_cancel_free(kiln_cancel* cancel);

typedef struct kiln_source {
  size_t struct_size;
  const char* source;
  /* The compiler sees it without its folder. NULL: "kernel.cu". */
  const char* file_name;
  /* Headers in memory: the names as #include spells them, and their texts. */
  const char *const *header_names, *const *header_texts;
  size_t header_count;
  const char* const* include_dirs;
  size_t include_dir_count;
  const char* const* defines; /* "NAME" or "NAME=VALUE" */
  size_t define_count;
  const char* const* options;
  size_t option_count;
  const char* const* name_expressions;
  size_t name_expression_count;
  /* "compute_80": PTX for a device of 8.0 or later; "8.0": a cubin for that. NULL: what
   * the device runs best. */
  const char* target;
  /* Request::from_sources(): sources that are linked with this one; what of a link they
   * have themselves is not used. Then files that are linked, and nvJitLink's options.
   */
  const struct kiln_source* const* linked_sources;
  size_t linked_source_count;
  const char* const* link_files;
  size_t link_file_count;
  const char* const* link_options;
  size_t link_option_count;
} kiln_source;
#define KILN_SOURCE_INIT \
  { .struct_size = sizeof(kiln_source) }

/* Service::get(). `params_json`: one JSON object, {"dtype": "bf16", "max_cols": 128};
 * NULL: no parameters. `cancel` may be NULL. Blocks while the kernel is built or
 * loaded. The caller frees `*kernel`. */
KILN_C_RESULT kiln_result kiln_get_template(kiln_service* service, int device,
                                            const char* name, const char* params_json,
                                            kiln_cancel* cancel, kiln_kernel** kernel);
KILN_C_RESULT kiln_result kiln_get_source(kiln_service* service, int device,
                                          const kiln_source* source,
                                          kiln_cancel* cancel, kiln_kernel** kernel);
/* Starts kiln_get_template() in the background, and returns. Its failure is an event
 * only; a later kiln_get_template() tries again. */
KILN_C_RESULT kiln_result kiln_prefetch_template(kiln_service* service, int device,
                                                 const char* name,
                                                 const char* params_json);

typedef struct kiln_statistics {
  size_t struct_size;
  uint64_t memory_hits, disk_hits, compiled, waited, not_stored, loaded, failed;
  uint64_t seed_hits, remote_hits;
} kiln_statistics;
#define KILN_STATISTICS_INIT \
  { .struct_size = sizeof(kiln_statistics) }

KILN_C_RESULT kiln_result kiln_statistics_get(kiln_service* service,
                                              kiln_statistics* statistics);

/* ---- Kernels: kiln/kernel.h, kiln/geometry.h ---- */

typedef struct kiln_geometry {
  size_t struct_size;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  uint32_t cluster[3];
  bool cooperative;
  /* Hints, left out where device or driver do not know them. */
  bool programmatic;
  bool has_priority;
  int priority; /* if has_priority */
  uint32_t preferred_cluster[3];
} kiln_geometry;
#define KILN_GEOMETRY_INIT                                                       \
  {                                                                              \
    .struct_size = sizeof(kiln_geometry), .grid = {1, 1, 1}, .block = {1, 1, 1}, \
    .cluster = {                                                                 \
      1,                                                                         \
      1,                                                                         \
      1                                                                          \
    }                                                                            \
  }

typedef struct kiln_kernel_attributes {
  size_t struct_size;
  uint32_t registers;
  uint64_t local_bytes, constant_bytes;
  uint32_t static_shared_bytes, max_dynamic_shared_bytes, max_threads_per_block;
} kiln_kernel_attributes;
#define KILN_KERNEL_ATTRIBUTES_INIT \
  { .struct_size = sizeof(kiln_kernel_attributes) }

/* Another kernel of the same module; the caller frees `*entry`. */
KILN_C_RESULT kiln_result kiln_kernel_entry(const kiln_kernel* kernel, const char* name,
                                            kiln_kernel** entry);
/* A __device__ or __constant__ variable of the module, by name expression or lowered
 * name: its CUdeviceptr, and its size. */
KILN_C_RESULT kiln_result kiln_kernel_global(const kiln_kernel* kernel,
                                             const char* name, uint64_t* address,
                                             uint64_t* bytes);
/* The geometry that the template declares for the launch arguments names[0..n-1], which
 * have the values values[0..n-1]. */
KILN_C_RESULT kiln_result kiln_kernel_geometry(const kiln_kernel* kernel,
                                               const char* const* names,
                                               const int64_t* values, size_t n,
                                               kiln_geometry* geometry);
/* args[i]: the host address of argument i of `n`, not NULL; sizes[i]: its size in
 * bytes. Copies the arguments before it returns; asynchronous. */
KILN_C_RESULT kiln_result kiln_kernel_launch(const kiln_kernel* kernel,
                                             const kiln_geometry* geometry,
                                             kiln_stream stream, void* const* args,
                                             const size_t* sizes, size_t n);
/* What an argument or a parameter is. ANY is not checked: a struct, or not known. */
enum {
  KILN_ARGUMENT_ANY = 0,
  KILN_ARGUMENT_INTEGER = 1, /* a whole number; of a parameter also an address */
  KILN_ARGUMENT_FLOAT = 2    /* float, double */
};
/* The same, with the kind of each argument: a whole number for a floating-point
 * parameter, or the reverse, is KILN_INVALID_ARGUMENT. kinds NULL: none is checked. */
KILN_C_RESULT kiln_result kiln_kernel_launch_typed(
    const kiln_kernel* kernel, const kiln_geometry* geometry, kiln_stream stream,
    void* const* args, const size_t* sizes, const uint8_t* kinds, size_t n);
KILN_C_RESULT kiln_result kiln_kernel_info(const kiln_kernel* kernel,
                                           kiln_kernel_attributes* attributes);
/* The sizes in bytes of the kernel's parameters, in order: writes the first `*n` of
 * them to `sizes`, and how many there are to `*n`. KILN_UNAVAILABLE: as
 * parameter_sizes(). */
KILN_C_RESULT kiln_result kiln_kernel_parameters(const kiln_kernel* kernel,
                                                 size_t* sizes, size_t* n);
/* Their kinds, KILN_ARGUMENT_..., in the same way. */
KILN_C_RESULT kiln_result kiln_kernel_parameter_kinds(const kiln_kernel* kernel,
                                                      uint8_t* kinds, size_t* n);
/* The loaded cubin or PTX, for other loaders; valid as long as the kernel. */
KILN_C_RESULT kiln_result kiln_kernel_image(const kiln_kernel* kernel,
                                            const void** image, size_t* size);
/* 64 hex digits; "" for NULL. */
KILN_C_API const char* kiln_kernel_key(const kiln_kernel* kernel);
KILN_C_API void kiln_kernel_free(kiln_kernel* kernel);

/* ---- Files: kiln/file_cache.h ---- */

typedef struct kiln_file_cache kiln_file_cache;
typedef struct kiln_file_build kiln_file_build;
typedef struct kiln_files kiln_files;

/* A field of a key, or a file. */
typedef struct kiln_named_bytes {
  const char* name;
  const void* bytes;
  size_t size;
  bool is_program; /* of a file: it may be executed */
} kiln_named_bytes;

typedef struct kiln_file_request {
  size_t struct_size;
  const kiln_named_bytes* fields; /* in any order */
  size_t field_count;
  const char *name, *target, *tool; /* NULL: "" */
  const char* const* sources;
  size_t source_count;
} kiln_file_request;
#define KILN_FILE_REQUEST_INIT \
  { .struct_size = sizeof(kiln_file_request) }

/* `options` NULL: none is set. The caller closes `*cache`. */
KILN_C_RESULT kiln_result kiln_file_cache_open(const kiln_options* options,
                                               kiln_file_cache** cache);
/* Builds that have begun may outlive it, and files are there until the process ends. */
KILN_C_API void kiln_file_cache_close(kiln_file_cache* cache);

/* Of `request` only the fields count. `*files` NULL: nobody has them; else the caller
 * frees it, as in the functions below. `cancel` may be NULL. */
KILN_C_RESULT kiln_result kiln_file_cache_get(kiln_file_cache* cache,
                                              const kiln_file_request* request,
                                              kiln_cancel* cancel, kiln_files** files);
KILN_C_RESULT kiln_result kiln_file_cache_put(kiln_file_cache* cache,
                                              const kiln_file_request* request,
                                              const kiln_named_bytes* stored,
                                              size_t count, kiln_files** files);
/* False with the setting no_jit, and for NULL. */
KILN_C_API bool kiln_file_cache_builds(const kiln_file_cache* cache);
/* Of `request` only the fields count. */
KILN_C_RESULT kiln_result kiln_file_cache_remove(kiln_file_cache* cache,
                                                 const kiln_file_request* request);
/* The caller frees `*folder` with kiln_text_free(). */
KILN_C_RESULT kiln_result kiln_file_cache_new_folder(kiln_file_cache* cache,
                                                     char** folder);
/* Sets one of the last two: `*build` where it is the caller's turn, who frees it. */
KILN_C_RESULT kiln_result kiln_file_cache_begin(kiln_file_cache* cache,
                                                const kiln_file_request* request,
                                                uint64_t limit_ms, kiln_cancel* cancel,
                                                kiln_files** files,
                                                kiln_file_build** build);
/* `build` returns NULL, or an error, which the library frees or returns; it must not
 * free the kiln_file_build. */
KILN_C_RESULT kiln_result kiln_file_cache_build_once(
    kiln_file_cache* cache, const kiln_file_request* request, uint64_t limit_ms,
    kiln_result (*build)(void* user, kiln_file_build* build), void* user,
    kiln_cancel* cancel, kiln_files** files);

/* Valid as long as the build. */
KILN_C_RESULT kiln_result kiln_file_build_folder(kiln_file_build* build,
                                                 const char** folder);
/* `command` and `environment` end with NULL. `status`, `signal` and `output` may be
 * NULL; the caller frees `*output` with kiln_text_free(). */
KILN_C_RESULT kiln_result kiln_file_build_run(kiln_file_build* build,
                                              const char* const* command,
                                              const char* const* environment,
                                              kiln_cancel* cancel, int* status,
                                              int* signal, char** output);
/* `files` and `tools` end with NULL; NULL: none. */
KILN_C_RESULT kiln_result kiln_file_build_add_inputs(kiln_file_build* build,
                                                     const char* const* files,
                                                     const char* const* tools);
KILN_C_RESULT kiln_result kiln_file_build_describe(kiln_file_build* build,
                                                   const kiln_file_request* request);
/* `stored` NULL: all files in the folder. */
KILN_C_RESULT kiln_result kiln_file_build_commit(kiln_file_build* build,
                                                 const kiln_named_bytes* stored,
                                                 size_t count, kiln_files** files);
KILN_C_RESULT kiln_result kiln_file_build_fail(kiln_file_build* build, int code,
                                               const char* message);
/* Before a commit: whoever waits builds. */
KILN_C_API void kiln_file_build_free(kiln_file_build* build);

/* Texts are valid as long as `files`, the files until the process ends. */
KILN_C_API const char* kiln_files_key(const kiln_files* files); /* "" for NULL */
KILN_C_API const char* kiln_files_folder(const kiln_files* files);
KILN_C_API size_t kiln_files_count(const kiln_files* files);
/* NULL behind the last. */
KILN_C_API const char* kiln_files_name(const kiln_files* files, size_t index);
KILN_C_API int kiln_files_outcome(const kiln_files* files); /* KILN_EVENT_... */
/* Why they are not in the cache; "": they are. */
KILN_C_API const char* kiln_files_not_stored(const kiln_files* files);
KILN_C_API void kiln_files_free(kiln_files* files);

/* ---- Operations ---- */

/* Each operation launches its kernels in `stream` and returns without waiting for them.
 * ..._prepare() fetches and loads the kernels. ..._workspace() returns the bytes of
 * device scratch memory that the operation needs. Both ignore pointers; for rope see
 * kiln/ops/rope.h. The functions and structs are in kiln/c_operations.h, which is
 * written from the C++ headers when Kiln is built: the same names, order and defaults.
 */

/* 0: not set. */
typedef uint8_t kiln_dtype;
enum { KILN_F16 = 1, KILN_BF16, KILN_F32 };

#include "kiln/c_operations.h" /* IWYU pragma: export */

/* kiln/ops/attention.h. If all strides of q, k, v and o are 0, the tensors are
 * contiguous in `layout`; C++ has set_strides() for that. options NULL: the defaults.
 */

KILN_C_RESULT kiln_result kiln_attention_forward(kiln_service* service, int device,
                                                 kiln_stream stream,
                                                 const kiln_attention_problem* problem,
                                                 const kiln_attention_tensors* tensors,
                                                 const kiln_attention_options* options);
KILN_C_RESULT kiln_result kiln_attention_forward_prepare(
    kiln_service* service, int device, const kiln_attention_problem* problem,
    const kiln_attention_options* options);
/* Prepares, as kiln_attention_forward_prepare() does, and returns the
 * workspace_bytes of AttentionChoice. Likewise for the backward pass. */
KILN_C_RESULT kiln_result kiln_attention_forward_workspace(
    kiln_service* service, int device, const kiln_attention_problem* problem,
    const kiln_attention_options* options, uint64_t* bytes);
KILN_C_RESULT kiln_result kiln_attention_backward(
    kiln_service* service, int device, kiln_stream stream,
    const kiln_attention_problem* problem, const kiln_attention_tensors* tensors,
    const kiln_attention_options* options);
KILN_C_RESULT kiln_result kiln_attention_backward_prepare(
    kiln_service* service, int device, const kiln_attention_problem* problem,
    const kiln_attention_options* options);
KILN_C_RESULT kiln_result kiln_attention_backward_workspace(
    kiln_service* service, int device, const kiln_attention_problem* problem,
    const kiln_attention_options* options, uint64_t* bytes);
/* JSON, as explain_attention() returns it. The caller frees `*json` with
 * kiln_text_free(). */
KILN_C_RESULT kiln_result kiln_attention_explain(kiln_service* service, int device,
                                                 const kiln_attention_problem* problem,
                                                 const kiln_attention_options* options,
                                                 char** json);
KILN_C_API void kiln_text_free(char* text);

#ifdef __cplusplus
}
#endif

#endif /* KILN_C_H */
/* NOLINTEND(readability-identifier-naming) */
