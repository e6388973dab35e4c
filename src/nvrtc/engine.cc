// The functions of NVRTC that stand-ins call (standin/engine.h). A program that is none
// of ours, or that the real library has taken over, is the real library's.

#include "standin/engine.h"

#include <nvrtc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kiln/export.h"
#include "nvrtc/compiler.h"
#include "nvrtc/program.h"
#include "util/fork_mutex.h"
#include "util/mutex.h"
#include "util/no_cancellation.h"

namespace kiln::nvrtc {
namespace {

using Handle = standin::Program;
using standin::RealLibrary;

Mutex& programs_mutex() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const mutex = new Mutex();
  return *mutex;
}

/// By their handles, which are their addresses.
class Programs {
 public:
  Handle add(Inputs inputs) {
    auto program = std::make_shared<Program>(std::move(inputs));
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): a name, never read
    auto* const handle = reinterpret_cast<Handle>(program.get());
    const MutexLock lock(programs_mutex());
    programs_[handle] = std::move(program);
    return handle;
  }

  std::shared_ptr<Program> find(Handle handle) {
    const MutexLock lock(programs_mutex());
    const auto known = programs_.find(handle);
    return known == programs_.end() ? nullptr : known->second;
  }

  std::shared_ptr<Program> remove(Handle handle) {
    const MutexLock lock(programs_mutex());
    auto known = programs_.extract(handle);
    return known.empty() ? nullptr : std::move(known.mapped());
  }

 private:
  std::unordered_map<Handle, std::shared_ptr<Program>> programs_;
};

// Made when the library is loaded: no fork comes between. Never destroyed: other
// threads run on while the process ends.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
Programs* const kPrograms = [] {
  hold_over_forks<programs_mutex>();
  return new Programs();
}();

/// The program of this handle, if it is ours to answer; else null, and `handle` is the
/// real library's.
std::shared_ptr<Program> own(Handle& handle) {
  auto program = kPrograms->find(handle);
  if (program == nullptr || program->passed_to() == nullptr)
    return program;
  handle = program->passed_to();
  return nullptr;
}

/// What the real library refuses, or only it can read.
bool is_odd(Handle* program, const char* source, int count, const char* const* texts,
            const char* const* names) {
  if (program == nullptr || source == nullptr || count < 0 ||
      (count > 0 && (texts == nullptr || names == nullptr)))
    return true;
  std::set<std::string_view> known;
  for (int i = 0; i < count; ++i) {
    if (texts[i] == nullptr || names[i] == nullptr || !known.insert(names[i]).second)
      return true;
  }
  return false;
}

// NOLINTNEXTLINE(readability-function-size): NVRTC's arguments
int create(const RealLibrary& real, Handle* program, const char* source,
           const char* name, int count, const char* const* texts,
           const char* const* names) {
  if (is_odd(program, source, count, texts, names))
    return call_real(real, "nvrtcCreateProgram", program, source, name, count, texts,
                     names);
  Inputs inputs{source, name == nullptr ? "" : name, {}};
  for (int i = 0; i < count; ++i) inputs.headers[names[i]] = texts[i];
  *program = kPrograms->add(std::move(inputs));
  return NVRTC_SUCCESS;
}

int destroy(const RealLibrary& real, Handle* handle) {
  const auto program = handle == nullptr ? nullptr : kPrograms->remove(*handle);
  if (program == nullptr)
    return call_real(real, "nvrtcDestroyProgram", handle);
  Handle passed_to = program->passed_to();
  *handle = nullptr;
  return passed_to == nullptr ? NVRTC_SUCCESS
                              : call_real(real, "nvrtcDestroyProgram", &passed_to);
}

int add_name(const RealLibrary& real, Handle handle, const char* expression) {
  if (const auto program = own(handle))
    return program->add_name(expression);
  return call_real(real, "nvrtcAddNameExpression", handle, expression);
}

bool is_plain(int count, const char* const* options) {
  return count == 0 ||
         (count > 0 && options != nullptr &&
          std::find(options, options + count, nullptr) == options + count);
}

int compile(const RealLibrary& real, Handle handle, int count,
            const char* const* options) {
  const auto program = kPrograms->find(handle);
  if (program == nullptr) {
    Compiler::of_process().count({Reason::kPrivate}, "a program");
    return call_real(real, "nvrtcCompileProgram", handle, count, options);
  }
  if (program->passed_to() == nullptr && is_plain(count, options)) {
    const auto size = static_cast<std::size_t>(count);
    if (const auto code = program->compile(real, {options, size}))
      return *code;
  } else if (program->passed_to() == nullptr) {
    if (const int code = program->pass(real, {Reason::kArguments});
        code != NVRTC_SUCCESS)
      return code;
  }
  return call_real(real, "nvrtcCompileProgram", program->passed_to(), count, options);
}

int lowered_name(const RealLibrary& real, Handle handle, const char* expression,
                 const char** lowered) {
  if (const auto program = own(handle))
    return program->lowered_name(expression, lowered);
  return call_real(real, "nvrtcGetLoweredName", handle, expression, lowered);
}

// The names of a kind's two functions.
constexpr const char* kPtx[] = {"nvrtcGetPTXSize", "nvrtcGetPTX"};
constexpr const char* kCubin[] = {"nvrtcGetCUBINSize", "nvrtcGetCUBIN"};
constexpr const char* kLtoIr[] = {"nvrtcGetLTOIRSize", "nvrtcGetLTOIR"};
constexpr const char* kNvvm[] = {"nvrtcGetNVVMSize", "nvrtcGetNVVM"};  // an older name
constexpr const char* kOptixIr[] = {"nvrtcGetOptiXIRSize", "nvrtcGetOptiXIR"};
constexpr const char* kTileIr[] = {"nvrtcGetTileIRSize", "nvrtcGetTileIR"};
constexpr const char* kLog[] = {"nvrtcGetProgramLogSize", "nvrtcGetProgramLog"};

/// The program with its output; null: `handle` is the real library's.
std::shared_ptr<Program> owner_of(Output kind, const RealLibrary& real,
                                  Handle& handle) {
  auto program = own(handle);
  if (program != nullptr && kind == Output::kLog)
    program->find_log(real);
  return program;
}

template <Output kind, auto& names>
int size_of(const RealLibrary& real, Handle handle, std::size_t* size) {
  const auto program = owner_of(kind, real, handle);
  if (program == nullptr)
    return call_real(real, names[0], handle, size);
  if (size == nullptr)
    return NVRTC_ERROR_INVALID_INPUT;
  *size = program->output(kind).size();
  return NVRTC_SUCCESS;
}

template <Output kind, auto& names>
int copy_of(const RealLibrary& real, Handle handle, char* to) {
  const auto program = owner_of(kind, real, handle);
  if (program == nullptr)
    return call_real(real, names[1], handle, to);
  if (to == nullptr)
    return NVRTC_ERROR_INVALID_INPUT;
  const auto bytes = program->output(kind);
  std::copy_n(reinterpret_cast<const char*>(bytes.data()), bytes.size(), to);
  return NVRTC_SUCCESS;
}

// A program with an option for precompiled headers is the real library's. NVRTC says
// this of every other, compiled or not (tried with 12.9, 13.0 and 13.5).
constexpr int kNoPchCreateAttempted = 13;

int pch_status(const RealLibrary& real, Handle handle) {
  return own(handle) != nullptr ? kNoPchCreateAttempted
                                : call_real(real, "nvrtcGetPCHCreateStatus", handle);
}

constexpr const char* kPchHeap[] = {"nvrtcGetPCHHeapSizeRequired"};

int set_callback(const RealLibrary& real, Handle handle, int (*callback)(void*, void*),
                 void* payload) {
  if (const auto program = own(handle)) {
    const int code = program->pass(real, {Reason::kCallback});
    if (code != NVRTC_SUCCESS)
      return code;
    handle = program->passed_to();
  }
  return call_real(real, "nvrtcSetFlowCallback", handle, callback, payload);
}

/// Of the whole process, and so once.
void end(char* text, std::size_t size) {
  static std::atomic<bool> is_told = false;
  Compiler* const compiler = Compiler::if_opened();
  if (compiler == nullptr || is_told.exchange(true))
    return;
  try {
    std::snprintf(text, size, "%s", compiler->end().c_str());
  } catch (const std::bad_alloc&) {  // then it is not told
  }
}

/// `function` as programs may call it: nothing is thrown into them, and a thread that
/// is cancelled meanwhile finishes the call.
template <auto function>
struct AtBorder;
template <typename... Arguments, int (*function)(const RealLibrary&, Arguments...)>
struct AtBorder<function> {
  static int call(const RealLibrary& real, Arguments... arguments) noexcept {
    const NoCancellation uncancelled;
    try {
      return function(real, arguments...);
    } catch (const std::bad_alloc&) {
      return NVRTC_ERROR_OUT_OF_MEMORY;
    } catch (...) {
      return NVRTC_ERROR_INTERNAL_ERROR;
    }
  }
};

template <auto function>
constexpr auto kAtBorder = &AtBorder<function>::call;

constexpr standin::Engine kEngine{
    .nvrtcCreateProgram = kAtBorder<create>,
    .nvrtcDestroyProgram = kAtBorder<destroy>,
    .nvrtcAddNameExpression = kAtBorder<add_name>,
    .nvrtcCompileProgram = kAtBorder<compile>,
    .nvrtcGetLoweredName = kAtBorder<lowered_name>,
    .nvrtcGetPTXSize = kAtBorder<size_of<Output::kPtx, kPtx>>,
    .nvrtcGetPTX = kAtBorder<copy_of<Output::kPtx, kPtx>>,
    .nvrtcGetCUBINSize = kAtBorder<size_of<Output::kCubin, kCubin>>,
    .nvrtcGetCUBIN = kAtBorder<copy_of<Output::kCubin, kCubin>>,
    .nvrtcGetLTOIRSize = kAtBorder<size_of<Output::kLtoIr, kLtoIr>>,
    .nvrtcGetLTOIR = kAtBorder<copy_of<Output::kLtoIr, kLtoIr>>,
    .nvrtcGetNVVMSize = kAtBorder<size_of<Output::kLtoIr, kNvvm>>,
    .nvrtcGetNVVM = kAtBorder<copy_of<Output::kLtoIr, kNvvm>>,
    .nvrtcGetOptiXIRSize = kAtBorder<size_of<Output::kOther, kOptixIr>>,
    .nvrtcGetOptiXIR = kAtBorder<copy_of<Output::kOther, kOptixIr>>,
    .nvrtcGetTileIRSize = kAtBorder<size_of<Output::kOther, kTileIr>>,
    .nvrtcGetTileIR = kAtBorder<copy_of<Output::kOther, kTileIr>>,
    .nvrtcGetProgramLogSize = kAtBorder<size_of<Output::kLog, kLog>>,
    .nvrtcGetProgramLog = kAtBorder<copy_of<Output::kLog, kLog>>,
    .nvrtcGetPCHCreateStatus = kAtBorder<pch_status>,
    .nvrtcGetPCHHeapSizeRequired = kAtBorder<size_of<Output::kOther, kPchHeap>>,
    .nvrtcSetFlowCallback = kAtBorder<set_callback>,
    .end = end,
};

}  // namespace
}  // namespace kiln::nvrtc

/// Of standin/engine.h; for nobody else.
extern "C" KILN_EXPORT const kiln::standin::Engine* kiln_nvrtc_engine(
    const char* layout) {
  const bool is_ours = std::strcmp(layout, kiln::standin::kEngineLayout) == 0;
  return is_ours ? &kiln::nvrtc::kEngine : nullptr;
}
