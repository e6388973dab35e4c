#include "render/catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "render/prelude_file.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::render {

namespace {

constexpr std::size_t kMaxFamilies = 1000;

DigestedText digested(std::string_view text, std::string_view sha256) {
  if (const auto known = Digest::from_hex(sha256))
    return {std::string(text), *known};
  return DigestedText::of(std::string(text));
}

Result<DigestedText> embedded_text(const EmbeddedTemplates& built_in,
                                   std::string_view family, std::string_view name) {
  for (const EmbeddedFile& file : built_in.files) {
    if (file.family == family && file.name == name)
      return digested(file.text, file.sha256);
  }
  return fail(ErrorCode::kNotFound, "{}/kernel.toml: no file '{}' there", family, name);
}

/// The folder itself if it holds a kernel.toml, and every folder in it that does.
Result<std::vector<std::filesystem::path>> family_folders(
    const std::filesystem::path& folder) {
  std::error_code status;
  std::vector<std::filesystem::path> out;
  const auto add = [&](const std::filesystem::path& candidate) {
    std::error_code ignored;  // an unreadable file fails later, when it is read
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
    return fail(status == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound
                                                               : ErrorCode::kIo,
                "template folder {}: {}", folder.string(), status.message());
  add(root);
  for (const std::filesystem::directory_iterator end; entries != end;
       entries.increment(status)) {
    add(entries->path());
    if (out.size() > kMaxFamilies)
      return fail(ErrorCode::kResourceLimit, "template folder {}: over {} families",
                  folder.string(), kMaxFamilies);
  }
  if (status)
    return fail(ErrorCode::kIo, "template folder {}: {}", folder.string(),
                status.message());
  std::sort(out.begin(), out.end());
  return out;
}

Result<FamilySource> family_in(const std::filesystem::path& folder) {
  std::string toml = KILN_TRY(read_text_file(folder / "kernel.toml", kMaxTomlBytes));
  return FamilySource{
      .family = folder.filename().string(),
      .label = folder.string(),
      .folder = folder,
      .toml = DigestedText::of(std::move(toml)),
      .read_text = [folder](const std::string& name) -> Result<DigestedText> {
        return DigestedText::of(KILN_TRY(read_text_file(folder / name, kMaxTextBytes)));
      }};
}

void warn_of_prelude(const std::filesystem::path& folder, const Prelude& prelude) {
  const auto found = read_prelude(folder);
  if (!found || (!found->empty() && *found != *prelude.text))
    log(LogLevel::kWarning, {(folder / "prelude.cuh").string(),
                             ": the prelude cannot be replaced; this one is not used"});
}

}  // namespace

/// A kernel that is read when it is first asked for.
/// Thread safety: read() may run concurrently.
class TemplateCatalog::BuiltInKernel {
 public:
  BuiltInKernel(const EmbeddedTemplates& built_in, const EmbeddedKernel& kernel,
                Prelude prelude)
      : built_in_(built_in), embedded_(kernel), prelude_(std::move(prelude)) {}

  Result<Kernel> read() {
    const MutexLock lock(mutex_);
    if (kernel_ == nullptr)
      kernel_ = KILN_TRY(KILN_TRY(open())->read(embedded_.name));
    return kernel_;
  }

 private:
  [[nodiscard]] Result<std::unique_ptr<FamilyReader>> open() const {
    FamilySource source;
    source.family = embedded_.family;
    source.label = embedded_.family;
    source.toml = KILN_TRY(embedded_text(built_in_, embedded_.family, "kernel.toml"));
    if (!embedded_.declaration.empty())
      source.toml.text = embedded_.declaration;
    source.read_text = [this](const std::string& name) {
      return embedded_text(built_in_, embedded_.family, name);
    };
    return FamilyReader::open(std::move(source), prelude_, VariantChecks::kSkip);
  }

  const EmbeddedTemplates built_in_;
  const EmbeddedKernel embedded_;
  const Prelude prelude_;

  Mutex mutex_;
  Kernel kernel_ KILN_GUARDED_BY(mutex_);
};

Result<TemplateCatalog> TemplateCatalog::open(
    const EmbeddedTemplates& built_in, std::span<const std::filesystem::path> folders) {
  const Prelude prelude =
      KILN_TRY(make_prelude(digested(built_in.prelude, built_in.prelude_sha256)));
  TemplateCatalog catalog;
  for (const std::filesystem::path& folder : folders) {
    Entries found = KILN_TRY(read_folder(folder, prelude));
    catalog.entries_.merge(found);  // keeps the entries that are there already
  }
  Entries found = built_in_entries(built_in, prelude);
  catalog.entries_.merge(found);
  return catalog;
}

Result<TemplateCatalog::Entries> TemplateCatalog::read_folder(
    const std::filesystem::path& folder, const Prelude& prelude) {
  Entries found;
  for (const std::filesystem::path& family : KILN_TRY(family_folders(folder))) {
    const auto reader = KILN_TRY(FamilyReader::open(KILN_TRY(family_in(family)),
                                                    prelude, VariantChecks::kTryAll));
    for (const std::string& name : reader->names()) {
      Kernel kernel = KILN_TRY(reader->read(name));
      const std::string of_family = kernel->family();
      const auto [at, added] =
          found.emplace(name, Entry{of_family, std::move(kernel), nullptr});
      if (!added)
        return refuse("{}/kernel.toml: kernel '{}' is declared in family '{}' too",
                      family.string(), name, at->second.family);
    }
  }
  warn_of_prelude(folder, prelude);
  return found;
}

TemplateCatalog::Entries TemplateCatalog::built_in_entries(
    const EmbeddedTemplates& built_in, const Prelude& prelude) {
  Entries entries;
  for (const EmbeddedKernel& kernel : built_in.kernels)
    entries.emplace(kernel.name,
                    Entry{std::string(kernel.family), nullptr,
                          std::make_shared<BuiltInKernel>(built_in, kernel, prelude)});
  return entries;
}

Result<TemplateCatalog::Kernel> TemplateCatalog::read(const Entry& entry) {
  return entry.kernel != nullptr ? entry.kernel : entry.read_by->read();
}

Result<std::vector<TemplateCatalog::Kernel>> TemplateCatalog::read(
    const std::vector<std::string>& names) const {
  std::vector<Kernel> kernels;
  for (const std::string& name : names) kernels.push_back(KILN_TRY(find(name)));
  return kernels;
}

Result<TemplateCatalog::Kernel> TemplateCatalog::find(std::string_view name) const {
  const auto at = entries_.find(name);
  if (at != entries_.end())
    return read(at->second);
  constexpr std::size_t kMostShown = 12;
  std::vector<std::string> near = names();
  const std::string known =
      near.empty() ? "; there are none"
      : near.size() > kMostShown
          ? fmt::format(" among the {} that `kiln templates` lists", near.size())
          : fmt::format("; there are: {}", fmt::join(near, ", "));
  // The caller may have meant a family.
  for (std::string& family : family_names()) near.push_back(std::move(family));
  const std::string meant = did_you_mean(name, near);
  return fail(ErrorCode::kNotFound, "no template '{}'{}", name,
              meant.empty() ? known : meant);
}

Result<std::vector<TemplateCatalog::Kernel>> TemplateCatalog::kernels() const {
  return read(names());
}

Result<std::vector<TemplateCatalog::Kernel>> TemplateCatalog::family(
    std::string_view name) const {
  return read(names_in(name));
}

std::vector<std::string> TemplateCatalog::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::vector<std::string> TemplateCatalog::names_in(std::string_view family) const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.family == family)
      names.push_back(name);
  }
  return names;
}

std::vector<std::string> TemplateCatalog::family_names() const {
  std::set<std::string> names;
  for (const auto& [name, entry] : entries_) names.insert(entry.family);
  return {names.begin(), names.end()};
}

}  // namespace kiln::render
