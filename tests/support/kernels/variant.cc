#include "tests/support/kernels/variant.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "request/selection.h"
#include "tests/support/kernels/run_kernel.h"
#include "util/try.h"

namespace kiln_cpu {
namespace {

RunOptions run_options(const LaunchOptions& options) {
  const auto seed = static_cast<std::uint64_t>(options.order);
  return {.capability = options.capability,
          .schedule = {.seed = seed, .splits_warps = seed != 0},
          .checks = {.unset = options.order == Order::kDescending,
                     .races = options.order == Order::kDescending},
          .first_block = static_cast<std::uint64_t>(options.first_block),
          .most_blocks = static_cast<std::uint64_t>(options.most_blocks)};
}

}  // namespace

Variant::Variant(std::string name, std::string entry,
                 const kiln::render::TemplateCatalog& catalog)
    : name_(std::move(name)), entry_(std::move(entry)) {
  const auto pattern = kiln::request::parse_template_pattern(name_).value();
  spec_ = catalog.find(pattern.name).value();
  params_ = spec_->canonical(pattern.params).value().values();
}

kiln::Result<kiln::Geometry> Variant::geometry(
    const kiln::LaunchArguments& arguments) const {
  return spec_->geometry(spec_->canonical(params_).value(), arguments, entry_);
}

kiln::Result<void> Variant::launch_with(
    const kiln::Geometry& geometry, const LaunchOptions& options,
    std::span<void* const> arguments, std::span<const std::size_t> sizes_bytes) const {
  kiln::ptx::Report report;
  KILN_TRY(run_kernel({.spec = *spec_,
                       .parameters = params_,
                       .entry = entry_,
                       .geometry = geometry,
                       .arguments = arguments,
                       .sizes_bytes = sizes_bytes},
                      run_options(options), report));
  if (!report.notes.empty())
    return kiln::fail(kiln::ErrorCode::kDevice, report.notes.begin()->first);
  return {};
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
