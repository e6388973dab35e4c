// All kernels that can be asked for by name: those built in and those of the folders
// that a user names. Read once; a later change on disk is seen by the next open.

#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "render/embedded_templates.h"
#include "render/kernel_spec.h"

namespace kiln::render {

/// Immutable after open. Thread safety: any number of threads may use one.
class TemplateCatalog {
 public:
  /// `folders` are searched in this order, before `built_in`; a kernel found earlier
  /// replaces one of an equal name. A folder holds family folders, or is one itself.
  /// Every rule of templates/README.md is checked.
  /// Errors: kInvalidArgument "<file>:<line>: <reason>"; kNotFound for a folder that is
  /// not there; kIo.
  [[nodiscard]] static Result<TemplateCatalog> open(
      const EmbeddedTemplates& built_in,
      std::span<const std::filesystem::path> folders = {});

  /// Errors: kNotFound, with the nearest name.
  [[nodiscard]] Result<std::shared_ptr<const KernelSpec>> find(
      std::string_view name) const;

  /// Sorted by name.
  [[nodiscard]] const std::vector<std::shared_ptr<const KernelSpec>>& kernels() const {
    return kernels_;
  }

  /// The kernels of one family, sorted by name; empty if there is no such family.
  [[nodiscard]] std::vector<std::shared_ptr<const KernelSpec>> family(
      std::string_view name) const;

  /// Sorted; for messages.
  [[nodiscard]] std::vector<std::string> family_names() const;

 private:
  TemplateCatalog() = default;
  std::vector<std::shared_ptr<const KernelSpec>> kernels_;
};

}  // namespace kiln::render
