#include "request/source_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "request/nvcc_words.h"
#include "request/program_name.h"
#include "request/source_kernels.h"
#include "util/nearest.h"
#include "util/text.h"

namespace kiln::request {
namespace {

/// "energy" of "phys::energy<float>" and of "&phys::energy".
std::string plain_name(std::string_view expression) {
  expression = expression.substr(0, expression.find('<'));
  const std::size_t scope = expression.rfind("::");
  if (scope != std::string_view::npos)
    expression.remove_prefix(scope + 2);
  expression.remove_prefix(
      std::min(expression.find_first_not_of("& "), expression.size()));
  return std::string(trimmed(expression, " "));
}

constexpr std::size_t kMostShown = 20;  // kernels in a hint
constexpr std::size_t kMostHints = 3;

/// Of a name expression that cannot be found. A variable's begins with '&'.
std::optional<std::string> name_hint(const SourceOptions& source,
                                     const std::vector<SourceKernel>& kernels,
                                     const std::string& expression) {
  const std::string name = plain_name(expression);
  const auto known = std::ranges::find(kernels, name, &SourceKernel::name);
  if (expression.starts_with("&"))
    return std::nullopt;
  if (known != kernels.end()) {
    const bool has_arguments = expression.find('<') != std::string::npos;
    if (known->is_template == has_arguments)
      return std::nullopt;
    return has_arguments
               ? fmt::format("{} is no template: name it without arguments", name)
               : fmt::format("{0} is a template: name an instance, such as {0}<float>",
                             name);
  }
  std::vector<std::string> names;
  std::vector<std::string> shown;
  for (const SourceKernel& each : kernels) {
    names.push_back(each.name);
    if (shown.size() < kMostShown)
      shown.push_back(each.is_template ? each.name + "<...>" : each.name);
  }
  if (kernels.size() > kMostShown)
    shown.push_back(fmt::format("and {} more", kernels.size() - kMostShown));
  return fmt::format("there is no kernel '{}' in {}; it has {}{}", name,
                     program_name(source.file_name),
                     shown.empty() ? "none" : fmt::format("{}", fmt::join(shown, ", ")),
                     did_you_mean(name, names));
}

/// PTX begins with its version, behind comments.
bool is_ptx(std::string_view source) {
  while (source.starts_with("//") || source.starts_with('\n') ||
         source.starts_with(' '))
    source.remove_prefix(std::min(
        source.starts_with("//") ? source.find('\n') : std::size_t{1}, source.size()));
  return source.starts_with(".version");
}

/// The name expressions that NVRTC's log quotes.
std::vector<std::string> refused_names(std::string_view log) {
  constexpr std::string_view kSays = "Input name expression was: \"";
  std::vector<std::string> names;
  for (std::size_t at = log.find(kSays); at != std::string_view::npos;
       at = log.find(kSays, at)) {
    at += kSays.size();
    std::string_view name = log.substr(at, log.find('"', at) - at);
    while (name.starts_with(' ')) name.remove_prefix(1);
    if (names.size() < kMostHints)
      names.emplace_back(name);
  }
  return names;
}

/// The word of the runtime's interface, in the lines that the log quotes, which shows
/// host code; empty: there is none.
std::string_view host_code_in(std::string_view log) {
  constexpr std::array<std::string_view, 7> kWords{
      "<<<",        "cudaMalloc", "cudaMemcpy", "cudaFree", "cudaDeviceSynchronize",
      "cudaStream", "int main("};
  for (const std::string_view word : kWords) {
    if (log.find(word) != std::string_view::npos)
      return word;
  }
  return {};
}

/// Of nvcc's "-std 20" and "--std=20".
std::string language_hint(const std::vector<std::string>& options) {
  for (auto option = options.rbegin(); option != options.rend(); ++option) {
    const std::string value = option->substr(option->find('=') + 1);
    const bool is_of_it = option->starts_with("-std=") || option->starts_with("--std=");
    if (is_of_it && value.size() == 2 &&
        value.find_first_not_of("0123456789") == value.npos)
      return fmt::format("the option is --std=c++{}", value);
  }
  return "the languages are --std=c++20, c++17, c++14 and c++11";
}

std::optional<std::string> host_hint(std::string_view log) {
  constexpr std::string_view kGuard =
      "keep host code from NVRTC with #ifndef __CUDACC_RTC__";
  if (const auto word = host_code_in(log); !word.empty())
    return fmt::format(
        "the source has host code ({}), and NVRTC compiles device code: {}", word,
        kGuard);
  if (log.find("<thrust/") != std::string_view::npos ||
      log.find("/thrust/") != std::string_view::npos)
    return "Thrust's algorithms run on the host: in a kernel use CUB's, such as "
           "cub::BlockReduce";
  // NVRTC itself advises -default-device, which makes device code of host functions.
  if (log.find("not allowed in JIT mode") != std::string_view::npos)
    return fmt::format("a function without __device__ is host code: annotate it, or {}",
                       kGuard);
  return std::nullopt;
}

}  // namespace

std::vector<std::string> source_hints(const SourceOptions& source,
                                      std::string_view log) {
  std::vector<std::string> hints;
  if (is_ptx(source.source))
    return {
        "the source is PTX, and NVRTC takes CUDA C++: name a file NAME.ptx, or link "
        "it"};
  if (log.find("invalid value for --std") != std::string_view::npos)
    return {language_hint(source.options)};
  if (log.find("unrecognized option") != std::string_view::npos ||
      log.find("NVRTC_ERROR_INVALID_OPTION") != std::string_view::npos) {
    for (const std::string& option : source.options) {
      auto hint = nvcc_hint(option);
      if (hint.kind == NvccOption::kElsewhere &&
          log.find(option) != std::string_view::npos)
        hints.push_back(std::move(hint.advice));
    }
    return hints;
  }
  if (log.find("__nv_name_map") != std::string_view::npos) {
    const auto kernels = kernels_in(source.source);
    for (const std::string& name : refused_names(log)) {
      if (auto hint = name_hint(source, kernels, name);
          hint && hints.size() < kMostHints)
        hints.push_back(*std::move(hint));
    }
    return hints;
  }
  if (auto hint = host_hint(log))
    hints.push_back(*std::move(hint));
  return hints;
}

}  // namespace kiln::request
