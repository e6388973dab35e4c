#include "nvrtc/program.h"

#include <nvrtc.h>

#include <algorithm>
#include <utility>

#include "build/artifact.h"
#include "request/program_name.h"

namespace kiln::nvrtc {
namespace {

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

std::span<const std::byte> with_nul(const std::string& text) {
  return std::as_bytes(std::span(text.c_str(), text.size() + 1));
}

}  // namespace

std::string Program::shown_name() const {
  return request::program_name(inputs_.name);
}

int Program::pass(const standin::RealLibrary& real, const Passed& why) {
  Compiler::of_process().count(why, shown_name());
  return repeat(real, real_);
}

int Program::repeat(const standin::RealLibrary& real, standin::Program& made) const {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : inputs_.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  standin::Program repeated = nullptr;
  const int code =
      call_real(real, "nvrtcCreateProgram", &repeated, inputs_.source.c_str(),
                inputs_.name.c_str(), static_cast<int>(names.size()),
                static_cast<const char* const*>(texts.data()),
                static_cast<const char* const*>(names.data()));
  if (code != NVRTC_SUCCESS)
    return code;
  for (const std::string& name : names_)
    call_real(real, "nvrtcAddNameExpression", repeated, name.c_str());
  for (const Options& options : compiles_) {
    const auto list = pointers(options);
    call_real(real, "nvrtcCompileProgram", repeated, static_cast<int>(list.size()),
              static_cast<const char* const*>(list.data()));
  }
  made = repeated;
  return NVRTC_SUCCESS;
}

int Program::add_name(const char* expression) {
  if (expression == nullptr)
    return NVRTC_ERROR_INVALID_INPUT;
  if (has_compiled_)
    return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
  names_.emplace_back(expression);
  return NVRTC_SUCCESS;
}

std::optional<int> Program::compile(const standin::RealLibrary& real,
                                    std::span<const char* const> options) {
  Options copies(options.begin(), options.end());
  SourceOptions source{.source = inputs_.source,
                       .file_name = inputs_.name,
                       .headers = inputs_.headers,
                       .options = copies,
                       .name_expressions = names_,
                       .as_nvrtc = true};
  auto compiled = Compiler::of_process().compile(real.path, std::move(source));
  if (!compiled) {
    const int code = pass(real, compiled.error());
    return code == NVRTC_SUCCESS ? std::nullopt : std::optional(code);
  }
  has_compiled_ = true;
  log_ = std::move(compiled->log);
  ptx_.reset();
  ptx_text_.reset();
  if (compiled->object != nullptr)
    take(compiled->object);
  if (compiled->object != nullptr || compiled->code == NVRTC_ERROR_COMPILATION)
    compiles_.push_back(std::move(copies));
  return compiled->code;
}

void Program::take(const Object& object) {
  has_succeeded_ = true;
  auto& lowered = lowered_.emplace_back();
  if (const auto metadata = object->metadata()) {
    for (const auto* const list : {&metadata->entry_points, &metadata->variables}) {
      for (const cache::EntryPoint& each : *list) lowered[each.name] = each.lowered;
    }
  }
  if (object->kind() == cache::Kind::kLtoIr) {
    lto_ir_ = object;
    return;
  }
  ptx_ = object;
  if (object->kind() == cache::Kind::kCubin)
    cubin_ = object;
}

int Program::lowered_name(const char* expression, const char** lowered) const {
  if (expression == nullptr || lowered == nullptr)
    return NVRTC_ERROR_INVALID_INPUT;
  *lowered = nullptr;
  if (!has_succeeded_)
    return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
  const auto known = lowered_.back().find(expression);
  // The image has other names, too, that nobody asked for.
  const bool is_asked = std::ranges::find(names_, expression) != names_.end();
  const bool is_known =
      is_asked && known != lowered_.back().end() && !known->second.empty();
  *lowered = is_known ? known->second.c_str() : nullptr;
  return is_known ? NVRTC_SUCCESS : NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

void Program::find_log(const standin::RealLibrary& real) {
  if (log_ != kLogLeftOut)
    return;
  Compiler::of_process().count({Reason::kOutput}, shown_name());
  standin::Program made = nullptr;
  if (repeat(real, made) != NVRTC_SUCCESS)
    return;
  std::size_t size = 0;
  call_real(real, "nvrtcGetProgramLogSize", made, &size);
  std::string log(std::max(size, std::size_t{1}), '\0');
  if (call_real(real, "nvrtcGetProgramLog", made, log.data()) == NVRTC_SUCCESS)
    log_ = log.substr(0, log.size() - 1);  // without its NUL
  call_real(real, "nvrtcDestroyProgram", &made);
}

std::span<const std::byte> Program::output(Output output) {
  const auto payload = [](const Object& object) {
    return object == nullptr ? std::span<const std::byte>() : object->payload();
  };
  switch (output) {
    case Output::kLog:
      return with_nul(log_);
    case Output::kCubin:
      return payload(cubin_);
    case Output::kLtoIr:
      return payload(lto_ir_);
    case Output::kOther:
      return {};
    case Output::kPtx:
      break;
  }
  if (!ptx_text_ && ptx_ != nullptr && ptx_->kind() == cache::Kind::kCubin)
    ptx_text_ = ptx_->ptx().value_or("");
  if (!ptx_text_) {
    const auto text = payload(ptx_);
    ptx_text_.emplace(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return with_nul(*ptx_text_);
}

}  // namespace kiln::nvrtc
