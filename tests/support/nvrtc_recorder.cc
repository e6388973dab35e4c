#include "tests/support/nvrtc_recorder.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <regex>

namespace kiln::test {
namespace {

using GetSize = nvrtcResult (*)(nvrtcProgram, std::size_t*);
using Get = nvrtcResult (*)(nvrtcProgram, char*);

constexpr std::array kKinds{"PTX",  "CUBIN",  "LTOIR",     "OptiXIR",
                            "NVVM", "TileIR", "ProgramLog"};
constexpr char kUnwritten = '\xee';
constexpr std::size_t kMargin = 64;  // bytes behind an output, which must stay

std::string quoted(const char* text) {
  return text == nullptr ? "null" : fmt::format("\"{}\"", text);
}

std::string with_visible_nuls(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) c == '\0' ? text += "<NUL>" : text += c;
  return text;
}

}  // namespace

NvrtcRecorder::NvrtcRecorder(const std::filesystem::path& library)
    : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr)
    line(::dlerror());
}

template <typename Function>
Function NvrtcRecorder::find(const std::string& name) const {
  return library_ == nullptr
             ? nullptr
             : reinterpret_cast<Function>(::dlsym(library_, name.c_str()));
}

template <typename Function, typename... Arguments>
int NvrtcRecorder::call(const std::string& name, Arguments... arguments) {
  const auto function = find<Function>(name);
  const int code = function == nullptr ? -1 : static_cast<int>(function(arguments...));
  line(fmt::format("{} {}", name,
                   function == nullptr ? "absent" : std::to_string(code)));
  return code;
}

void NvrtcRecorder::step(int code) {
  codes_ += fmt::format("{}{}", codes_.empty() ? "" : " ", code);
}

void NvrtcRecorder::line(std::string_view text) {
  text_.append(text).append("\n");
}

std::string NvrtcRecorder::without_chance(std::string text) {
  // Of an internal name, if the source defines nothing external: the time and the
  // process, and in front the length of it all.
  static const std::regex internal(R"(\d+_GLOBAL__N__(0{8}_\d+_\w+?)_[0-9a-f]{8}_\d+)");
  static const std::regex ptxas_time(R"(Compile time = [0-9.]+ ms)");
  static const std::regex phase_time(R"(, \d+, ms)");
  text = std::regex_replace(text, internal, "LENGTH_GLOBAL__N__$1_TIME_PROCESS");
  text = std::regex_replace(text, ptxas_time, "Compile time = TIME");
  return std::regex_replace(text, phase_time, ", TIME, ms");
}

void NvrtcRecorder::describe() {
  int major = 0;
  int minor = 0;
  int count = 0;
  std::array<int, 100> architectures{};
  call<decltype(&nvrtcVersion)>("nvrtcVersion", &major, &minor);
  call<nvrtcResult (*)(int*)>("nvrtcGetNumSupportedArchs", &count);
  call<nvrtcResult (*)(int*)>("nvrtcGetSupportedArchs", architectures.data());
  line(fmt::format("{}.{} {}: {}", major, minor, count, fmt::join(architectures, " ")));
  const auto text = find<decltype(&nvrtcGetErrorString)>("nvrtcGetErrorString");
  for (int code = -1; text != nullptr && code < 25; ++code)
    line(fmt::format("{} {}", code, text(static_cast<nvrtcResult>(code))));
}

void NvrtcRecorder::create(const NvrtcInput& input) {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const NvrtcHeader& header : input.headers) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  const int count = input.header_count == NvrtcInput::kAll
                        ? static_cast<int>(names.size())
                        : input.header_count;
  auto* const untouched = reinterpret_cast<nvrtcProgram>(this);
  nvrtcProgram program = untouched;
  step(call<decltype(&nvrtcCreateProgram)>(
      "nvrtcCreateProgram", &program, input.source, input.name, count,
      input.no_texts || texts.empty() ? nullptr : texts.data(),
      input.no_names || names.empty() ? nullptr : names.data()));
  program_ = program == untouched ? nullptr : program;
  line(program == untouched ? "untouched" : program == nullptr ? "null" : "a program");
}

void NvrtcRecorder::add(const char* expression) {
  using Add = decltype(&nvrtcAddNameExpression);
  step(call<Add>("nvrtcAddNameExpression", program_, expression));
}

void NvrtcRecorder::compile(const std::vector<const char*>& options, int count) {
  for (const char* const option : options) line("  option " + quoted(option));
  if (count == NvrtcInput::kAll)
    count = static_cast<int>(options.size());
  step(
      call<decltype(&nvrtcCompileProgram)>("nvrtcCompileProgram", program_, count,
                                           options.empty() ? nullptr : options.data()));
}

void NvrtcRecorder::lowered(const char* expression) {
  using Lowered = decltype(&nvrtcGetLoweredName);
  const char* name = "untouched";
  const char* again = name;
  step(call<Lowered>("nvrtcGetLoweredName", program_, expression, &name));
  call<Lowered>("nvrtcGetLoweredName", program_, expression, &again);
  line(fmt::format("  {} -> {}{}", quoted(expression), quoted(name),
                   name == again ? "" : ", then elsewhere"));
}

void NvrtcRecorder::outputs() {
  for (const char* const kind : kKinds) output(kind);
}

void NvrtcRecorder::output(const std::string& kind) {
  std::size_t size = 0;
  if (call<GetSize>("nvrtcGet" + kind + "Size", program_, &size) != NVRTC_SUCCESS)
    size = 0;
  std::string bytes(size + kMargin, kUnwritten);
  if (call<Get>("nvrtcGet" + kind, program_, bytes.data()) != NVRTC_SUCCESS)
    return;
  if (!std::all_of(bytes.end() - kMargin, bytes.end(),
                   [](char c) { return c == kUnwritten; }))
    line("  written beyond its end");
  bytes.resize(size);
  if (kind == "PTX" || kind == "ProgramLog") {
    const std::string text = without_chance(bytes);
    line(fmt::format("  {} bytes: {}", text.size(), with_visible_nuls(text)));
  } else {
    line(fmt::format("  {} bytes, {:x}", size, std::hash<std::string>()(bytes)));
  }
}

void NvrtcRecorder::cancel() {
  using Callback = int (*)(void*, void*);
  step(call<nvrtcResult (*)(nvrtcProgram, Callback, void*)>(
      "nvrtcSetFlowCallback", program_, [](void*, void*) { return 1; }, nullptr));
}

void NvrtcRecorder::destroy() {
  step(call<decltype(&nvrtcDestroyProgram)>("nvrtcDestroyProgram", &program_));
  line(program_ == nullptr ? "null" : "untouched");
}

void NvrtcRecorder::null_arguments() {
  std::size_t size = 0;
  int number = 0;
  const char* name = nullptr;
  std::vector<char> bytes(1U << 20U);
  nvrtcProgram none = nullptr;
  for (const char* const kind : kKinds) {
    const std::string get = std::string("nvrtcGet") + kind;
    call<GetSize>(get + "Size", none, &size);
    call<GetSize>(get + "Size", program_, nullptr);
    call<Get>(get, none, bytes.data());
    call<Get>(get, program_, nullptr);
    call<Get>(get, none, nullptr);
  }
  using Create = decltype(&nvrtcCreateProgram);
  call<Create>("nvrtcCreateProgram", nullptr, "", "k.cu", 0, nullptr, nullptr);
  call<Create>("nvrtcCreateProgram", nullptr, nullptr, nullptr, -1, nullptr, nullptr);
  call<nvrtcResult (*)(nvrtcProgram*)>("nvrtcDestroyProgram", nullptr);
  call<nvrtcResult (*)(nvrtcProgram*)>("nvrtcDestroyProgram", &none);
  call<decltype(&nvrtcCompileProgram)>("nvrtcCompileProgram", none, -1, nullptr);
  using Add = decltype(&nvrtcAddNameExpression);
  for (const nvrtcProgram each : {none, program_})
    call<Add>("nvrtcAddNameExpression", each, nullptr);
  call<Add>("nvrtcAddNameExpression", none, "k");
  using Lowered = decltype(&nvrtcGetLoweredName);
  call<Lowered>("nvrtcGetLoweredName", none, "k", &name);
  call<Lowered>("nvrtcGetLoweredName", program_, nullptr, &name);
  call<Lowered>("nvrtcGetLoweredName", program_, "k", nullptr);
  call<Lowered>("nvrtcGetLoweredName", none, nullptr, nullptr);
  call<decltype(&nvrtcVersion)>("nvrtcVersion", nullptr, &number);
  call<decltype(&nvrtcVersion)>("nvrtcVersion", &number, nullptr);
  for (const char* const each : {"nvrtcGetNumSupportedArchs", "nvrtcGetSupportedArchs",
                                 "nvrtcGetPCHHeapSize", "nvrtcGetPCHCreateStatus"})
    call<nvrtcResult (*)(void*)>(each, nullptr);
  call<nvrtcResult (*)(nvrtcProgram)>("nvrtcGetPCHCreateStatus", program_);
  call<GetSize>("nvrtcGetPCHHeapSizeRequired", program_, &size);
  call<GetSize>("nvrtcGetPCHHeapSizeRequired", none, &size);
  call<GetSize>("nvrtcGetPCHHeapSizeRequired", program_, nullptr);
  for (const nvrtcProgram each : {none, program_})
    call<nvrtcResult (*)(nvrtcProgram, void*, void*)>("nvrtcSetFlowCallback", each,
                                                      nullptr, nullptr);
  // From 13.3 on.
  for (const char* const each :
       {"nvrtcGetBundledHeadersInfo", "nvrtcRemoveBundledHeaders"})
    call<nvrtcResult (*)(void*, const char**)>(each, nullptr, nullptr);
  call<nvrtcResult (*)(const char*, unsigned, const char**)>(
      "nvrtcInstallBundledHeaders", nullptr, 0U, nullptr);
}

}  // namespace kiln::test
