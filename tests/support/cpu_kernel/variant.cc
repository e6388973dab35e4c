#include "tests/support/cpu_kernel/variant.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "request/selection.h"

namespace kiln_cpu {

Variant::Variant(const CpuKernel& kernel, const kiln::render::TemplateCatalog& catalog)
    : name_(kernel.variant), kernel_(kernel) {
  const auto pattern = kiln::request::parse_template_pattern(name_).value();
  spec_ = catalog.find(pattern.name).value();
  params_ = spec_->canonical(pattern.params).value().values();
}

kiln::Result<kiln::Geometry> Variant::geometry(
    const kiln::LaunchArguments& arguments) const {
  return spec_->geometry(spec_->canonical(params_).value(), arguments, kernel_.entry);
}

kiln::Result<void> Variant::launch_with(
    const kiln::Geometry& geometry, const LaunchOptions& options,
    std::span<void* const> arguments, std::span<const std::size_t> sizes_bytes) const {
  if (arguments.size() != kernel_.sizes.size() ||
      !std::ranges::equal(sizes_bytes, kernel_.sizes)) {
    return kiln::fail(kiln::ErrorCode::kInvalidArgument,
                      fmt::format("{} takes arguments of {} bytes, and {} were given",
                                  kernel_.entry, kernel_.sizes, sizes_bytes));
  }
  return kiln_cpu::launch(geometry, options, [&] { kernel_.call(arguments.data()); });
}

kiln::render::TemplateCatalog catalog_with(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> folders;
  if (!folder.empty()) {
    folders.push_back(folder);
  }
  return kiln::render::TemplateCatalog::open(kiln::templates::embedded(), folders)
      .value();
}

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name();
}

std::string test_name(const Variant& variant) {
  std::string name = variant.name();
  for (char& c : name) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

}  // namespace kiln_cpu
