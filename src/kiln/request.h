// What a program asks Kiln for: a kernel by name and parameters, or CUDA C++ source.

#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kiln/export.h"

namespace kiln {

namespace request {
class Answers;
class FirstResolve;
}  // namespace request

/// Parameter name to value, both as text: {{"dtype", "bf16"}, {"max_cols", "128"}}.
using Parameters = std::map<std::string, std::string>;

/// CUDA C++ source and everything that its compilation depends on.
struct SourceOptions {
  std::string source;
  /// For messages. The compiler always sees "kernel.cu".
  std::string file_name = "kernel.cu";
  /// Headers in memory: the name as #include spells it, and the text.
  std::map<std::string, std::string> headers{};
  /// Searched in this order, after the headers in memory and before the toolkit's own.
  std::vector<std::filesystem::path> include_dirs{};
  /// "NAME" or "NAME=VALUE".
  std::vector<std::string> defines{};
  /// Further NVRTC options, one a string. Those that Kiln sets itself are refused.
  std::vector<std::string> options{};
  /// C++ expressions that name kernels: "scale<float>". extern "C" kernels need none.
  std::vector<std::string> name_expressions{};
};

/// Immutable. A copy is cheap and shares everything with the original. A moved-from
/// Request can be assigned to and destroyed, nothing else.
/// Nothing is checked here: Service::get() says what is wrong. Headers on disk are read
/// at the first get(); a new Request sees later changes.
/// Thread safety: any number of threads may use one.
class KILN_EXPORT Request {
 public:
  /// A kernel of the template catalog. Implicit, so that a call can say
  /// `service.get({"scaled_softmax_fwd", {{"dtype", "bf16"}}}, device)`.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Request(std::string name, Parameters params = {});

  /// Source of the caller's own.
  [[nodiscard]] static Request from_source(SourceOptions options);

  [[nodiscard]] bool is_template() const;
  /// The template's name, or the file name of a source.
  [[nodiscard]] const std::string& name() const;
  /// As given. Empty for a source.
  [[nodiscard]] const Parameters& parameters() const;
  /// As given. Everything in it is empty for a template.
  [[nodiscard]] const SourceOptions& source() const;

 private:
  friend class request::Answers;
  friend class request::FirstResolve;
  struct KILN_HIDDEN Content;
  explicit Request(std::shared_ptr<const Content> content);

  std::shared_ptr<const Content> content_;  // never null
};

}  // namespace kiln
