// NVRTC's table of entry points with a compiler behind it that is the test's own data:
// what it was asked, and what it answers.

#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compile/worker/nvrtc.h"

namespace kiln::compile {

/// Of the one program there is at a time. Not thread-safe.
struct FakeCompiler {
  // What it is asked.
  std::string source, program_name;
  std::vector<MemoryHeader> headers;
  std::vector<std::string> options, expressions;
  int programs = 0;  // that live
  int (*flow)(void*, void*) = nullptr;
  bool was_stopped = false;  // the flow callback said so
  // What it answers.
  std::map<std::string, nvrtcResult> failing;  // by the entry point's name
  std::string log, ptx, cubin;
  std::string lowered = "_Z1kv";
  bool has_lowered_names = true;
  int major = 13;
  int minor = 0;

  [[nodiscard]] nvrtcResult result(const char* call) const {
    const auto found = failing.find(call);
    return found == failing.end() ? NVRTC_SUCCESS : found->second;
  }
};

inline FakeCompiler& fake_compiler() {
  static FakeCompiler compiler;
  return compiler;
}

/// A table whose entry points are those of a new fake_compiler().
inline Nvrtc fake_nvrtc() {
  fake_compiler() = {};
  // As NVRTC gives texts: with the NUL, whose place is in the size.
  static const auto give_text = [](const std::string& text, char* out) {
    std::copy(text.begin(), text.end(), out);
    out[text.size()] = '\0';
    return NVRTC_SUCCESS;
  };
  Nvrtc nvrtc;
  nvrtc.path = "/x/libnvrtc.so";
  nvrtc.version = [](int* major, int* minor) {
    *major = fake_compiler().major;
    *minor = fake_compiler().minor;
    return fake_compiler().result("nvrtcVersion");
  };
  nvrtc.error_string = [](nvrtcResult result) {
    return result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION"
                                             : "NVRTC_OTHER";
  };
  nvrtc.num_supported_archs = [](int* count) {
    *count = 3;
    return NVRTC_SUCCESS;
  };
  nvrtc.supported_archs = [](int* numbers) {
    numbers[0] = 100;
    numbers[1] = 75;
    numbers[2] = 121;
    return NVRTC_SUCCESS;
  };
  nvrtc.create_program = [](nvrtcProgram* program, const char* source, const char* name,
                            int count, const char* const* texts,
                            const char* const* names) {
    FakeCompiler& self = fake_compiler();
    self.source = source;
    self.program_name = name;
    for (int i = 0; i < count; ++i) self.headers.push_back({names[i], texts[i]});
    const nvrtcResult result = self.result("nvrtcCreateProgram");
    self.programs += result == NVRTC_SUCCESS ? 1 : 0;
    *program = reinterpret_cast<nvrtcProgram>(&self);
    return result;
  };
  nvrtc.destroy_program = [](nvrtcProgram* program) {
    --fake_compiler().programs;
    *program = nullptr;
    return NVRTC_SUCCESS;
  };
  nvrtc.add_name_expression = [](nvrtcProgram, const char* expression) {
    fake_compiler().expressions.emplace_back(expression);
    return fake_compiler().result("nvrtcAddNameExpression");
  };
  nvrtc.set_flow_callback = [](nvrtcProgram, int (*callback)(void*, void*),
                               void* payload) {
    FakeCompiler& self = fake_compiler();
    self.flow = callback;
    self.was_stopped = callback(payload, nullptr) == 1;
    return NVRTC_SUCCESS;
  };
  nvrtc.compile_program = [](nvrtcProgram, int count, const char* const* options) {
    fake_compiler().options.assign(options, options + count);
    return fake_compiler().result("nvrtcCompileProgram");
  };
  nvrtc.lowered_name = [](nvrtcProgram, const char*, const char** lowered) {
    const FakeCompiler& self = fake_compiler();
    *lowered = self.has_lowered_names ? self.lowered.c_str() : nullptr;
    return NVRTC_SUCCESS;
  };
  nvrtc.log_size = [](nvrtcProgram, std::size_t* size) {
    *size = fake_compiler().log.size() + 1;
    return fake_compiler().result("nvrtcGetProgramLogSize");
  };
  nvrtc.log = [](nvrtcProgram, char* out) {
    return give_text(fake_compiler().log, out);
  };
  nvrtc.ptx_size = [](nvrtcProgram, std::size_t* size) {
    *size = fake_compiler().ptx.size() + 1;
    return fake_compiler().result("nvrtcGetPTXSize");
  };
  nvrtc.ptx = [](nvrtcProgram, char* out) {
    return give_text(fake_compiler().ptx, out);
  };
  nvrtc.cubin_size = [](nvrtcProgram, std::size_t* size) {
    *size = fake_compiler().cubin.size();
    return NVRTC_SUCCESS;
  };
  nvrtc.cubin = [](nvrtcProgram, char* out) {
    const std::string& cubin = fake_compiler().cubin;
    std::copy(cubin.begin(), cubin.end(), out);
    return NVRTC_SUCCESS;
  };
  return nvrtc;
}

}  // namespace kiln::compile
