// All kernels that can be requested by name: the built-in ones and those in folders
// that a user names. A folder is read once; the next open() sees later changes on disk.

#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
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

  /// Searches `folders` in this order, then `built_in`; the kernel that is found first
  /// replaces others of the same name. A folder holds family folders, or is one itself.
  /// Checks every rule of templates/README.md. Built-in kernels were checked when Kiln
  /// was built; each is read when it is first requested. What `built_in` views must
  /// outlive the catalog.
  /// Errors: kInvalidArgument "<file>:<line>: <reason>"; kNotFound for a folder that
  /// does not exist; kResourceLimit (over 1,000 families in a folder); kIo.
  [[nodiscard]] static Result<TemplateCatalog> open(
      const EmbeddedTemplates& built_in,
      std::span<const std::filesystem::path> folders = {});

  /// Returns the same object each time. Errors: kNotFound, with the nearest name.
  [[nodiscard]] Result<Kernel> find(std::string_view name) const;

  /// Sorted by name.
  [[nodiscard]] Result<std::vector<Kernel>> kernels() const;

  /// The kernels of one family, sorted by name; empty if there is no such family.
  [[nodiscard]] Result<std::vector<Kernel>> family(std::string_view name) const;

  // Sorted; they read no kernel.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<std::string> names_in(std::string_view family) const;
  [[nodiscard]] std::vector<std::string> family_names() const;

 private:
  class BuiltInKernel;
  struct Entry {
    std::string family;
    Kernel kernel;                           // null: `read_by` reads it
    std::shared_ptr<BuiltInKernel> read_by;  // null: `kernel` is set
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
