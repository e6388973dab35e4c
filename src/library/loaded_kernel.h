// The object behind a Kernel: one artifact, loaded on one device.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "build/build_service.h"
#include "build/request_keys.h"
#include "cache/object.h"
#include "device/function.h"
#include "device/module.h"
#include "device/primary_context.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "render/expression.h"

namespace kiln {

/// Thread safety: immutable, but for what is found out once.
class LoadedKernel {
 public:
  /// Loads `object`, which was fetched for `request`, on the device of `context`.
  /// Errors: as LoadedModule::load.
  [[nodiscard]] static Result<std::shared_ptr<const LoadedKernel>> load(
      const KeyedRequest& request, std::shared_ptr<const cache::StoredObject> object,
      const std::shared_ptr<const device::PrimaryContext>& context);

  /// A handle to the first entry point of a template, or to the only one of a source.
  [[nodiscard]] static Kernel handle(std::shared_ptr<const LoadedKernel> loaded);
  /// What the handle stands for.
  [[nodiscard]] static const LoadedKernel& of(const Kernel& kernel) {
    return *kernel.loaded_;
  }
  /// The one that the handle launches; null if none was chosen.
  [[nodiscard]] static const device::Function* function_of(const Kernel& kernel) {
    return kernel.entry_ == Kernel::kNoEntry ? nullptr
                                             : &of(kernel).function(kernel.entry_);
  }

  [[nodiscard]] const std::string& label() const { return label_; }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] const Device& device() const { return module_->context().device(); }
  [[nodiscard]] const device::LoadedModule& module() const { return *module_; }
  /// The cubin or PTX.
  [[nodiscard]] ByteView image() const { return object_->payload(); }

  /// Of each function of the module the name expression, if it has one, or its name.
  [[nodiscard]] std::vector<std::string> entry_names() const;
  /// The index of a function of the module by lowered name or name expression, whatever
  /// its spaces.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  [[nodiscard]] const device::Function& function(std::size_t index) const {
    return module_->functions()[index];
  }

  /// Of the parameters of function(index); found out at the first call.
  [[nodiscard]] const std::vector<ArgumentKind>& kinds(std::size_t index) const;

  /// A variable of the module by lowered name, or by name expression with or without
  /// its '&'. Errors: kNotFound, listing the named ones; as LoadedModule::variable.
  [[nodiscard]] Result<GlobalVariable> global(std::string_view name) const;

  /// Errors: as KernelSpec::geometry; kInvalidArgument for a source.
  [[nodiscard]] Result<Geometry> geometry(const LaunchArguments& arguments,
                                          const std::string& entry) const;

 private:
  LoadedKernel(const KeyedRequest& request,
               std::shared_ptr<const cache::StoredObject> object,
               const cache::Metadata& metadata,
               std::shared_ptr<const device::LoadedModule> module);
  [[nodiscard]] std::size_t choose_entry(const KeyedRequest& request) const;
  /// For messages: the expressions that name variables, then all others of a cubin.
  [[nodiscard]] std::string variable_names() const;

  // Constant after construction.
  const std::string label_;
  const std::string key_;
  const std::optional<request::TemplateRequest> template_;
  const std::vector<render::Value> values_;  // of the template's parameters
  const std::shared_ptr<const cache::StoredObject> object_;
  const std::vector<cache::EntryPoint> names_;  // those requested first
  const std::vector<cache::EntryPoint> variables_;
  const std::shared_ptr<const device::LoadedModule> module_;
  const std::size_t entry_;  // Kernel::kNoEntry: there is no default

  struct Kinds {
    std::once_flag asked;
    std::vector<ArgumentKind> found;
  };
  mutable std::vector<Kinds> kinds_;  // of each function
};

}  // namespace kiln
