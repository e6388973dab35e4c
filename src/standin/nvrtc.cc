// libkiln-nvrtc.so, of which the audit module makes a stand-in for each real NVRTC.
// The functions that take a program ask the engine in libkiln.so, which is opened when
// a program is created. All others jump to the real library's, which is opened at the
// first such call: arguments stay in their registers and on the stack, so that private
// functions, too, need no signature here.

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <ctime>

#include "standin/engine.h"
#include "standin/identity.h"
#include "standin/nvrtc_functions.h"
#include "standin/trace.h"

namespace kiln::standin {

/// Its first member is read by assembly.
struct Function {
  void* target;  // where its calls jump to: at first, to what finds the real function
  const char* name;
  unsigned long calls;  // counted only with KILN_NVRTC_STANDIN=trace
};

}  // namespace kiln::standin

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of the process
extern "C" {

// In .data: zeros would have no bytes in the file that could be written over.
[[gnu::visibility("protected"),
  gnu::section(".data")]] kiln::standin::Identity kiln_standin_identity = {};

// kiln_first_call: from the first call of a function, with its Function in a scratch
// register, to the real one, with all argument registers as they were.
#if defined(__x86_64__)
// clang-format off
#define KILN_JUMP(name)                                  \
  "  endbr64\n"                                          \
  "  jmp *kiln_function_" #name "(%rip)\n"
#define KILN_FIRST_JUMP(name)                            \
  "  endbr64\n"                                          \
  "  lea kiln_function_" #name "(%rip), %r11\n"          \
  "  jmp kiln_first_call\n"
// clang-format on
__asm__(R"(
  .text
  .type kiln_first_call, @function
kiln_first_call:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  push %rax
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  push %r10
  sub $128, %rsp
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  mov %r11, %rdi
  call kiln_find_function
  mov %rax, %r11
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  add $128, %rsp
  pop %r10
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  pop %rax
  pop %rbp
  .cfi_def_cfa %rsp, 8
  jmp *%r11
  .cfi_endproc
  .size kiln_first_call, . - kiln_first_call
)");
#elif defined(__aarch64__)
// clang-format off
#define KILN_JUMP(name)                                  \
  "  hint #34\n" /* bti c */                             \
  "  adrp x16, kiln_function_" #name "\n"                \
  "  ldr x16, [x16, #:lo12:kiln_function_" #name "]\n"   \
  "  br x16\n"
#define KILN_FIRST_JUMP(name)                            \
  "  hint #34\n"                                         \
  "  adrp x17, kiln_function_" #name "\n"                \
  "  add x17, x17, #:lo12:kiln_function_" #name "\n"     \
  "  b kiln_first_call\n"
// clang-format on
__asm__(R"(
  .text
  .type kiln_first_call, %function
kiln_first_call:
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x17
  bl kiln_find_function
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
  .size kiln_first_call, . - kiln_first_call
)");
#else
#error "no thunks for this processor"
#endif

// clang-format off
#define KILN_CODE(name, code)                 \
  ".globl " #name "\n"                        \
  ".type " #name ", %function\n"              \
  #name ":\n"                                 \
  code                                        \
  ".size " #name ", . - " #name "\n"

#define KILN_DEFINE(name)                                               \
  __asm__(".text\n"                                                     \
          ".hidden kiln_first_" #name "\n"                              \
          KILN_CODE(name, KILN_JUMP(name))                              \
          KILN_CODE(kiln_first_##name, KILN_FIRST_JUMP(name)));         \
  [[gnu::visibility("hidden")]] void kiln_first_##name();               \
  [[gnu::visibility("hidden"), gnu::used]]                              \
  kiln::standin::Function kiln_function_##name = {                      \
      reinterpret_cast<void*>(&kiln_first_##name), #name, 0};
// clang-format on
KILN_NVRTC_FUNCTIONS(KILN_DEFINE)

[[gnu::visibility("hidden"), gnu::used]] void* kiln_find_function(
    kiln::standin::Function* function);

}  // extern "C"
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

namespace kiln::standin {
namespace {

#define KILN_ADDRESS(name) &kiln_function_##name,
Function* const kFunctions[] = {KILN_NVRTC_FUNCTIONS(KILN_ADDRESS)};

// Set before there is a second thread.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
char trace[Identity::kCapacity];
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
bool is_tracing = false;

// Held while a library is opened, so that no fork copies a loader at work, with whose
// half the child could do nothing.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
thread_local bool is_held = false;
int forks = 0;  // that have begun, and not ended
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// For a second at most: a library that registers handlers while it is opened waits for
/// the fork, in a glibc before 2.36.
void before_fork() {
  __atomic_fetch_add(&forks, 1, __ATOMIC_ACQ_REL);
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  ++until.tv_sec;
  is_held = pthread_mutex_timedlock(&opening, &until) == 0;
}

void after_fork() {
  __atomic_fetch_sub(&forks, 1, __ATOMIC_ACQ_REL);
  if (is_held)
    pthread_mutex_unlock(&opening);
}

/// A child says what it did itself.
void after_fork_in_child() {
  after_fork();
  forks = 0;
  if (!is_held)  // by a thread that is not here
    opening = PTHREAD_MUTEX_INITIALIZER;
  for (Function* each : kFunctions) each->calls = 0;
}

void* open_library(const char* path, int mode) {
  pthread_mutex_lock(&opening);
  void* library = dlopen(path, mode);
  pthread_mutex_unlock(&opening);
  // A fork that waited for it runs no handler that the library has registered: until it
  // has ended, the library may hold no lock.
  constexpr int kMostWaits = 1000;
  constexpr timespec kWait{0, 1'000'000};
  for (int i = 0; i < kMostWaits && __atomic_load_n(&forks, __ATOMIC_ACQUIRE) > 0; ++i)
    nanosleep(&kWait, nullptr);
  return library;
}

[[gnu::constructor]] void begin() {
  pthread_atfork(before_fork, after_fork, after_fork_in_child);
  const char* file = trace_file();
  is_tracing = file != nullptr;
  if (is_tracing)
    std::snprintf(trace, sizeof trace, "%s", file);
}

// What a program gets where the real library has gone since the stand-in was made.
constexpr int kInternalError = 11;  // NVRTC_ERROR_INTERNAL_ERROR
int fails() {
  return kInternalError;
}
const char* names_the_error() {
  return "NVRTC_ERROR_INTERNAL_ERROR";
}

void* without_real(const char* function, const char* why) {
  std::fprintf(stderr, "kiln: %s of the real NVRTC cannot be called: %s\n", function,
               why);
  return std::strcmp(function, "nvrtcGetErrorString") == 0
             ? reinterpret_cast<void*>(&names_the_error)
             : reinterpret_cast<void*>(&fails);
}

/// Threads that come at once get the same handle. Never closed, as this library is not.
void* real_library() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static void* opened = nullptr;
  void* library = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
  if (library == nullptr && kiln_standin_identity.real_path[0] != '\0') {
    library = open_library(kiln_standin_identity.real_path, RTLD_LAZY | RTLD_LOCAL);
    __atomic_store_n(&opened, library, __ATOMIC_RELEASE);
  }
  return library;
}

/// Null: the real library does not have it, or is gone.
void* in_real(const char* function) {
  void* library = real_library();
  return library == nullptr ? nullptr : dlsym(library, function);
}

void* find_real(const char* function) {
  if (void* target = in_real(function))
    return target;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): its text is the thread's own in glibc
  const char* why = dlerror();
  return without_real(function, why == nullptr ? "this is no stand-in" : why);
}

constexpr RealLibrary kReal{kiln_standin_identity.real_path, find_real};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
const Engine kNoEngine{};
const Engine* opened = nullptr;  // kNoEngine: there is none
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

const Engine* open_engine() {
  void* library =
      kiln_standin_identity.engine_path[0] == '\0'
          ? nullptr
          : open_library(kiln_standin_identity.engine_path, RTLD_NOW | RTLD_LOCAL);
  const auto find = library == nullptr
                        ? nullptr
                        : reinterpret_cast<FindEngine>(dlsym(library, kEngineSymbol));
  const Engine* engine = find == nullptr ? nullptr : find(kEngineLayout);
  if (engine == nullptr && is_tracing)
    std::fprintf(stderr,
                 "kiln: %s: there is no engine in '%s', so NVRTC itself compiles\n",
                 kiln_standin_identity.real_path, kiln_standin_identity.engine_path);
  return engine == nullptr ? &kNoEngine : engine;
}

enum class Open : bool { kNo, kYes };

/// Null: there is none, or none yet. Threads that come at once open the same.
const Engine* engine(Open open) {
  const Engine* known = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
  if (known == nullptr && open == Open::kYes) {
    known = open_engine();
    __atomic_store_n(&opened, known, __ATOMIC_RELEASE);
  }
  return known == &kNoEngine ? nullptr : known;
}

/// What a call of `function` runs: the engine's member.
template <auto member, Function* function>
struct Call;
template <typename... Arguments,
          int (*Engine::*member)(const RealLibrary&, Arguments...), Function* function>
struct Call<member, function> {
  static int run(Arguments... arguments) {
    const bool creates = function == &kiln_function_nvrtcCreateProgram;
    if (const Engine* known = engine(creates ? Open::kYes : Open::kNo))
      return (known->*member)(kReal, arguments...);
    return reinterpret_cast<int (*)(Arguments...)>(find_real(function->name))(
        arguments...);
  }
};

struct EngineCall {
  const Function* function;
  void* run;
};

/// Null: the real library's alone.
void* engine_call(const Function* function) {
#define KILN_ENGINE_CALL(name, ...) \
  {&kiln_function_##name,           \
   reinterpret_cast<void*>(&Call<&Engine::name, &kiln_function_##name>::run)},
  static const EngineCall calls[] = {KILN_NVRTC_PROGRAM_FUNCTIONS(KILN_ENGINE_CALL)};
  for (const EngineCall& each : calls) {
    if (each.function == function)
      return each.run;
  }
  return nullptr;
}

/// One line, so that those of several processes do not mix.
[[gnu::destructor]] void end() {
  char did[512] = "";
  if (const Engine* known = engine(Open::kNo))
    known->end(did, sizeof did);
  if (!is_tracing)
    return;
  char line[3 * Identity::kCapacity];
  int length = std::snprintf(line, sizeof line,
                             "kiln: stand-in for %s:", kiln_standin_identity.real_path);
  const auto add = [&](const char* format, const char* text, unsigned long count) {
    length +=
        std::snprintf(line + length, sizeof line - static_cast<std::size_t>(length),
                      format, text, count);
  };
  for (const Function* each : kFunctions) {
    if (each->calls != 0)
      add(" %s %lu", each->name, each->calls);
  }
  if (did[0] != '\0')
    add("; %s", did, 0);
  add("%s", "\n", 0);
  tell(trace, line);
}

}  // namespace
}  // namespace kiln::standin

/// Where the call goes; while tracing, each call comes here to be counted.
void* kiln_find_function(kiln::standin::Function* function) {
  __atomic_fetch_add(&function->calls, 1, __ATOMIC_RELAXED);
  void* target = kiln::standin::engine_call(function);
  if (target == nullptr)
    target = kiln::standin::in_real(function->name);
  if (target == nullptr)
    return kiln::standin::find_real(function->name);
  if (!kiln::standin::is_tracing)
    __atomic_store_n(&function->target, target, __ATOMIC_RELEASE);
  return target;
}
