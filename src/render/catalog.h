// All kernels that can be asked for by name: those built in and those of the folders
// that a user names. A folder is read once; a later change on disk is seen by the next
// open.

#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "render/embedded_templates.h"
#include "render/kernel_file.h"
#include "render/kernel_spec.h"

namespace kiln::render {

/// Thread safety: any number of threads may use one.
class TemplateCatalog {
 public:
  using Kernel = std::shared_ptr<const KernelSpec>;

  /// `folders` are searched in this order, before `built_in`; a kernel found earlier
  /// replaces one of an equal name. A folder holds family folders, or is one itself.
  /// Every rule of templates/README.md is checked. What is built in was checked when it
  /// was, and each kernel of it is read when it is asked for.
  /// What `built_in` views outlives the catalog.
  /// Errors: kInvalidArgument "<file>:<line>: <reason>"; kNotFound for a folder that is
  /// not there; kIo.
  [[nodiscard]] static Result<TemplateCatalog> open(
      const EmbeddedTemplates& built_in,
      std::span<const std::filesystem::path> folders = {});

  /// The same object each time. Errors: kNotFound, with the nearest name.
  [[nodiscard]] Result<Kernel> find(std::string_view name) const;

  /// Sorted by name.
  [[nodiscard]] Result<std::vector<Kernel>> kernels() const;

  /// The kernels of one family, sorted by name; empty if there is no such family.
  [[nodiscard]] Result<std::vector<Kernel>> family(std::string_view name) const;

  // Sorted, and nothing is read for them.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<std::string> names_in(std::string_view family) const;
  [[nodiscard]] std::vector<std::string> family_names() const;

 private:
  class BuiltInKernel;
  struct Entry {
    std::string family;
    Kernel kernel;                           // null: to be read
    std::shared_ptr<BuiltInKernel> read_by;  // null: it was read
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  TemplateCatalog() = default;
  [[nodiscard]] static Result<Entries> read_folder(const std::filesystem::path& folder,
                                                   const Prelude& prelude);
  [[nodiscard]] static Entries built_in_entries(const EmbeddedTemplates& built_in,
                                                const Prelude& prelude);
  [[nodiscard]] static Result<Kernel> read(const Entry& entry);
  [[nodiscard]] Result<std::vector<Kernel>> read(
      const std::vector<std::string>& names) const;

  Entries entries_;
};

}  // namespace kiln::render
