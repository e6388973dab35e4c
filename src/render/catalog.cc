#include "render/catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "render/kernel_file.h"
#include "util/log.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::render {

namespace {

using Kernels = std::map<std::string, std::shared_ptr<const KernelSpec>, std::less<>>;

constexpr std::size_t kMaxFamilies = 1000;

/// Adds the family's kernels. In one folder (or among those built in) a name may occur
/// once; `file` of the other one is in the message.
Result<void> add_family(const FamilySource& source, const Prelude& prelude,
                        VariantChecks checks, Kernels& to) {
  for (auto& kernel : KILN_TRY(read_family(source, prelude, checks))) {
    const auto [at, added] = to.emplace(kernel->name(), kernel);
    if (!added)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}/kernel.toml: kernel '{}' is declared in family '{}' "
                              "too",
                              source.label, kernel->name(), at->second->family()));
  }
  return {};
}

Result<void> read_built_in(const EmbeddedTemplates& built_in, const Prelude& prelude,
                           Kernels& to) {
  for (const EmbeddedFile& file : built_in.files) {
    if (file.name != "kernel.toml")
      continue;
    FamilySource source;
    source.family = std::string(file.family);
    source.label = source.family;
    source.toml = file.text;
    source.read_text = [&](const std::string& name) -> Result<std::string> {
      for (const EmbeddedFile& other : built_in.files) {
        if (other.family == file.family && other.name == name)
          return std::string(other.text);
      }
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}/kernel.toml: no file '{}' there", file.family, name));
    };
    KILN_TRY(add_family(source, prelude, VariantChecks::kSkip, to));
  }
  return {};
}

Result<void> read_family_folder(const std::filesystem::path& folder,
                                const Prelude& prelude, Kernels& to) {
  const std::string toml =
      KILN_TRY(read_text_file(folder / "kernel.toml", kMaxTomlBytes));
  FamilySource source;
  source.family = folder.filename().string();
  source.label = folder.string();
  source.folder = folder;
  source.toml = toml;
  source.read_text = [&](const std::string& name) {
    return read_text_file(folder / name, kMaxTextBytes);
  };
  return add_family(source, prelude, VariantChecks::kTryAll, to);
}

/// The folder itself if it holds a kernel.toml, and every folder in it that does.
Result<std::vector<std::filesystem::path>> family_folders(
    const std::filesystem::path& folder) {
  std::error_code status;
  std::vector<std::filesystem::path> out;
  const auto add = [&](const std::filesystem::path& candidate) {
    std::error_code ignored;  // what is there and cannot be read fails when it is read
    if (std::filesystem::exists(candidate / "kernel.toml", ignored))
      out.push_back(candidate);
  };
  // Lexically normal and without a trailing slash, so that filename() is its name.
  std::filesystem::path root = std::filesystem::absolute(folder, status);
  root = root.lexically_normal();
  if (root.filename().empty())
    root = root.parent_path();
  std::filesystem::directory_iterator entries(root, status);
  if (status)
    return fail(
        status == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound
                                                       : ErrorCode::kIo,
        fmt::format("template folder {}: {}", folder.string(), status.message()));
  add(root);
  for (const std::filesystem::directory_iterator end; entries != end;
       entries.increment(status)) {
    add(entries->path());
    if (out.size() > kMaxFamilies)
      return fail(ErrorCode::kResourceLimit,
                  fmt::format("template folder {}: over {} families", folder.string(),
                              kMaxFamilies));
  }
  if (status)
    return fail(ErrorCode::kIo, fmt::format("template folder {}: {}", folder.string(),
                                            status.message()));
  std::sort(out.begin(), out.end());
  return out;
}

void warn_of_prelude(const std::filesystem::path& folder, const Prelude& prelude) {
  const auto found = read_text_file(folder / "prelude.cuh", kMaxTextBytes);
  if (found && *found != *prelude.text)
    logger().warn("{}: the prelude cannot be replaced; this one is not used",
                  (folder / "prelude.cuh").string());
}

}  // namespace

Result<TemplateCatalog> TemplateCatalog::open(
    const EmbeddedTemplates& built_in, std::span<const std::filesystem::path> folders) {
  const Prelude prelude = KILN_TRY(make_prelude(built_in.prelude));
  Kernels all;
  for (const std::filesystem::path& folder : folders) {
    Kernels found;
    for (const auto& family : KILN_TRY(family_folders(folder)))
      KILN_TRY(read_family_folder(family, prelude, found));
    warn_of_prelude(folder, prelude);
    all.merge(found);  // what is there already stays
  }
  Kernels found;
  KILN_TRY(read_built_in(built_in, prelude, found));
  all.merge(found);
  TemplateCatalog catalog;
  for (auto& [name, kernel] : all) catalog.kernels_.push_back(std::move(kernel));
  return catalog;
}

Result<std::shared_ptr<const KernelSpec>> TemplateCatalog::find(
    std::string_view name) const {
  const auto at = std::lower_bound(kernels_.begin(), kernels_.end(), name,
                                   [](const auto& kernel, std::string_view wanted) {
                                     return kernel->name() < wanted;
                                   });
  if (at != kernels_.end() && (*at)->name() == name)
    return *at;
  std::vector<std::string> names;
  for (const auto& kernel : kernels_) names.push_back(kernel->name());
  const std::string known =
      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  // A family may have been meant.
  for (std::string& family : family_names()) names.push_back(std::move(family));
  return fail(ErrorCode::kNotFound,
              fmt::format("no template '{}'{}; there are: {}", name,
                          did_you_mean(name, names), known));
}

std::vector<std::shared_ptr<const KernelSpec>> TemplateCatalog::family(
    std::string_view name) const {
  std::vector<std::shared_ptr<const KernelSpec>> out;
  for (const auto& kernel : kernels_) {
    if (kernel->family() == name)
      out.push_back(kernel);
  }
  return out;
}

std::vector<std::string> TemplateCatalog::family_names() const {
  std::set<std::string> names;
  for (const auto& kernel : kernels_) names.insert(kernel->family());
  return {names.begin(), names.end()};
}

}  // namespace kiln::render
