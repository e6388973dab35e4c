#include "kiln/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "device/launch.h"
#include "device/primary_context.h"
#include "library/loaded_kernel.h"
#include "util/demangle.h"
#include "util/public_border.h"
#include "util/try.h"

namespace kiln {
namespace {

const std::string& no_name() {
  static const auto* const empty = new std::string;
  return *empty;
}

tl::unexpected<Error> none_chosen(const Kernel& kernel) {
  return refuse("{} on {} has {} kernels ({}): choose one with entry()", kernel.name(),
                device::label_of(kernel.device()), kernel.entry_points().size(),
                fmt::join(kernel.entry_points(), ", "));
}

tl::unexpected<Error> wrong_kind(const device::Function& function, std::size_t index,
                                 ArgumentKind wanted) {
  const bool is_float = wanted == ArgumentKind::kFloat;
  return refuse(
      "kernel {} of {}: argument {} (counted from 0) is {}, and its parameter is {}: "
      "pass {}",
      function.name(), function.module().label(), index,
      is_float ? "a whole number" : "a floating-point number",
      is_float ? "float or double" : "a whole number",
      is_float ? "a float or a double" : "an integer");
}

}  // namespace

Kernel LoadedKernel::handle(std::shared_ptr<const LoadedKernel> loaded) {
  const std::size_t entry = loaded->entry_;
  return Kernel(std::move(loaded), entry);
}

Kernel::Kernel(std::shared_ptr<const LoadedKernel> loaded, std::size_t entry)
    : loaded_(std::move(loaded)), entry_(entry) {}

const std::string& Kernel::name() const {
  return loaded_->label();
}
const std::string& Kernel::key() const {
  return loaded_->key();
}
const Device& Kernel::device() const {
  return loaded_->device();
}

std::vector<std::string> Kernel::entry_points() const {
  std::vector<std::string> names;
  for (const device::Function& function : loaded_->module().functions())
    names.push_back(function.name());
  return names;
}

const std::string& Kernel::entry_point() const {
  return entry_ == kNoEntry ? no_name() : loaded_->function(entry_).name();
}

Result<Kernel> Kernel::entry(std::string_view name) const {
  return at_border([&]() -> Result<Kernel> {
    if (const auto found = loaded_->find(name))
      return Kernel(loaded_, *found);
    const auto& unreachable = loaded_->module().unreachable();
    std::vector<std::string> names;
    const auto given = loaded_->entry_names();
    for (const std::string& each : given) {
      const std::string shown = source_name(each);
      const bool is_overloaded = std::ranges::count(given, shown, source_name) > 1;
      names.push_back(is_overloaded ? each : shown);
    }
    return fail(ErrorCode::kNotFound, "{} has no kernel '{}'; it has {}{}{}",
                loaded_->label(), name, fmt::join(names, ", "),
                unreachable.empty() ? "" : "; ",
                unreachable.empty() ? "" : device::why_unreachable(unreachable));
  });
}

Result<GlobalVariable> Kernel::global(std::string_view name) const {
  return at_border([&] { return loaded_->global(name); });
}

Result<KernelAttributes> Kernel::attributes() const {
  if (entry_ == kNoEntry)
    return at_border([&]() -> Result<KernelAttributes> { return none_chosen(*this); });
  const device::FunctionAttributes& known = loaded_->function(entry_).attributes();
  return KernelAttributes{.registers = known.registers,
                          .local_bytes = known.local_bytes,
                          .constant_bytes = known.constant_bytes,
                          .static_shared_bytes = known.static_shared_bytes,
                          .max_dynamic_shared_bytes = known.max_dynamic_shared_bytes,
                          .max_threads_per_block = known.max_threads_per_block};
}

Result<std::vector<std::size_t>> Kernel::parameter_sizes() const {
  return at_border([&]() -> Result<std::vector<std::size_t>> {
    if (entry_ == kNoEntry)
      return none_chosen(*this);
    const device::Function& function = loaded_->function(entry_);
    if (function.parameters())
      return *function.parameters();
    return fail(ErrorCode::kUnavailable,
                "kernel {} of {}: neither its image nor the driver tells the sizes of "
                "its parameters; a driver for CUDA 12.4 or later does",
                function.name(), loaded_->label());
  });
}

Result<std::vector<ArgumentKind>> Kernel::parameter_kinds() const {
  KILN_TRY(parameter_sizes());
  return at_border(
      [&]() -> Result<std::vector<ArgumentKind>> { return loaded_->kinds(entry_); });
}

Result<Geometry> Kernel::geometry(const LaunchArguments& arguments) const {
  return at_border([&] { return loaded_->geometry(arguments, entry_point()); });
}

Result<void> Kernel::launch_with(const Geometry& geometry, CUstream_st* stream,
                                 std::span<void* const> arguments,
                                 std::span<const std::size_t> sizes_bytes) const {
  return at_border([&]() -> Result<void> {
    if (entry_ == kNoEntry)
      return none_chosen(*this);
    return device::launch(loaded_->function(entry_), geometry, stream, arguments,
                          sizes_bytes);
  });
}

Result<void> Kernel::launch_typed(const Geometry& geometry, CUstream_st* stream,
                                  std::span<void* const> arguments,
                                  std::span<const std::size_t> sizes_bytes,
                                  std::span<const ArgumentKind> kinds) const {
  return at_border([&]() -> Result<void> {
    if (entry_ == kNoEntry)
      return none_chosen(*this);
    const device::Function& function = loaded_->function(entry_);
    const std::vector<ArgumentKind>& wanted = loaded_->kinds(entry_);
    for (std::size_t i = 0; i < std::min(kinds.size(), wanted.size()); ++i) {
      if (kinds[i] != wanted[i] && kinds[i] != ArgumentKind::kAny &&
          wanted[i] != ArgumentKind::kAny)
        return wrong_kind(function, i, wanted[i]);
    }
    return device::launch(function, geometry, stream, arguments, sizes_bytes);
  });
}

std::span<const std::byte> Kernel::image() const {
  return loaded_->image();
}

CUfunc_st* Kernel::function() const {
  return entry_ == kNoEntry ? nullptr : loaded_->function(entry_).handle();
}

}  // namespace kiln
