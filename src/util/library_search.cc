#include "util/library_search.h"

#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "util/ascii.h"
#include "util/bytes.h"
#include "util/folder_names.h"
#include "util/fork_mutex.h"
#include "util/loader_cache.h"
#include "util/mutex.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/this_library.h"
#include "util/try.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

#if defined(__aarch64__)
constexpr std::array<std::string_view, 2> kTargets{"sbsa-linux", "aarch64-linux"};
constexpr std::string_view kMultiarch = "aarch64-linux-gnu";
#else
constexpr std::array<std::string_view, 1> kTargets{"x86_64-linux"};
constexpr std::string_view kMultiarch = "x86_64-linux-gnu";
#endif

// The numbers in a name: "libnvrtc.so.13.0" gives 13, 0; "cuda-12.9" gives 12, 9.
std::vector<unsigned long> numbers_in(std::string_view name) {
  std::vector<unsigned long> numbers;
  bool inside = false;
  for (const char c : name) {
    if (is_digit(c) && !inside)
      numbers.push_back(0);
    inside = is_digit(c);
    if (inside)
      numbers.back() = numbers.back() * 10 + static_cast<unsigned long>(c - '0');
  }
  return numbers;
}

void newest_first(std::vector<fs::path>& paths) {
  std::sort(paths.begin(), paths.end(), [](const fs::path& a, const fs::path& b) {
    const auto left = numbers_in(a.filename().native());
    const auto right = numbers_in(b.filename().native());
    return left != right ? left > right : a < b;
  });
}

// The paths in `folder` whose names `wanted` accepts, newest version first.
template <typename Wanted>
std::vector<fs::path> entries(const fs::path& folder, const Wanted& wanted) {
  std::vector<fs::path> found;
  for (const std::string& name : folder_names(folder, wanted))
    found.push_back(folder / name);
  newest_first(found);
  return found;
}

std::vector<fs::path> subfolders(const fs::path& folder, std::string_view prefix) {
  return entries(folder,
                 [&](std::string_view name) { return name.starts_with(prefix); });
}

// Collects candidates, each file once.
class Candidates {
 public:
  explicit Candidates(std::string name) : name_(std::move(name)) {}

  void add_file(const fs::path& file, std::string_view found_in) {
    // Most are links to one file; resolving a path takes a system call per component.
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
        files_.contains({info.st_dev, info.st_ino}))
      return;
    std::error_code error;
    fs::path real = fs::canonical(file, error);
    const auto known = [&](const LibraryCandidate& each) { return each.path == real; };
    if (error || std::any_of(list_.begin(), list_.end(), known))
      return;
    list_.push_back({std::move(real), std::string(found_in), file});
    if (info.st_nlink == 1)  // another hard link may have other files beside it
      files_.emplace(info.st_dev, info.st_ino);
  }

  void add_folder(const fs::path& folder, std::string_view found_in) {
    // Most folders of a toolkit are links to one folder, which is read once.
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0 ||
        !folders_.emplace(info.st_dev, info.st_ino).second)
      return;
    const auto wanted = [&](std::string_view file) {
      return is_version_of(file, name_);
    };
    for (const fs::path& file : entries(folder, wanted)) add_file(file, found_in);
  }

  // A toolkit, or a folder that is laid out like one.
  void add_toolkit(const fs::path& root, std::string_view found_in) {
    add_folder(root / "lib64", found_in);
    add_folder(root / "lib", found_in);
    for (const std::string_view target : kTargets)
      add_folder(root / "targets" / target / "lib", found_in);
  }

  // `packages`/nvidia/*/lib, where NVIDIA's wheels put their libraries.
  void add_wheels(const fs::path& packages, std::string_view found_in) {
    for (const fs::path& package : subfolders(packages / "nvidia", ""))
      add_folder(package / "lib", found_in);
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool empty() const { return list_.empty(); }
  [[nodiscard]] std::vector<LibraryCandidate> take() && { return std::move(list_); }

 private:
  std::string name_;
  std::vector<LibraryCandidate> list_;
  std::set<std::pair<dev_t, ino_t>> files_;    // listed files with one hard link
  std::set<std::pair<dev_t, ino_t>> folders_;  // already read
};

void add_loaded(const LibraryPlaces& places, Candidates& found) {
  for (const fs::path& file : places.loaded) {
    if (is_version_of(file.filename().native(), found.name()))
      found.add_file(file, "loaded by this process");
  }
}

void add_loader(const LibraryPlaces& places, Candidates& found) {
  constexpr std::uint64_t kLargestCache = 64ULL << 20U;
  for (const fs::path& folder : places.loader_path)
    found.add_folder(folder, "LD_LIBRARY_PATH");
  const auto cache = places.loader_cache.empty()
                         ? std::nullopt
                         : read_file(places.loader_cache, kLargestCache)
                               .value_or(std::nullopt);  // unreadable: as if missing
  if (cache) {
    // The cache lists the libraries of the default folders, too.
    for (const LoaderCacheEntry& entry : read_loader_cache(*cache, found.name())) {
      if (is_version_of(entry.name, found.name()))
        found.add_file(entry.path, "the loader's cache");
    }
    return;
  }
  for (const fs::path& folder : places.default_folders)
    found.add_folder(folder, "the loader's folders");
}

void add_python(const LibraryPlaces& places, Candidates& found) {
  constexpr std::string_view kFoundIn = "a Python environment";
  // Python may run without VIRTUAL_ENV: .venv/bin/python, a notebook.
  for (const fs::path& folder : places.own_folders) {
    const fs::path package = folder.parent_path();
    if (package.filename() == "kiln" &&
        (folder.filename() == "lib" || folder.filename() == "bin"))
      found.add_wheels(package.parent_path(), kFoundIn);
  }
  for (const fs::path& root : places.python_environments) {
    for (const fs::path& python : subfolders(root / "lib", "python3")) {
      found.add_wheels(python / "site-packages", kFoundIn);
      found.add_wheels(python / "dist-packages", kFoundIn);
    }
    found.add_toolkit(root, kFoundIn);  // Conda puts libraries beside Python
  }
}

void add_own(const LibraryPlaces& places, Candidates& found) {
  constexpr std::string_view kFoundIn = "the project's .deps";
  std::set<fs::path> looked_at;
  for (const fs::path& folder : places.own_folders) {
    // build/<preset>/bin, three levels below the folder that holds .deps.
    const fs::path deps = folder.parent_path().parent_path().parent_path() / ".deps";
    if (!looked_at.insert(deps).second)
      continue;
    found.add_wheels(deps, kFoundIn);
    for (const fs::path& part : subfolders(deps, "")) found.add_wheels(part, kFoundIn);
  }
}

Result<void> add_explicit(const LibraryQuery& query, Candidates& found) {
  if (query.explicit_path.empty())
    return {};
  found.add_file(query.explicit_path, query.explicit_origin);
  found.add_folder(query.explicit_path, query.explicit_origin);
  found.add_toolkit(query.explicit_path, query.explicit_origin);
  if (found.empty()) {
    return fail(ErrorCode::kUnavailable, "{} is {}: there is no {} in that place",
                query.explicit_origin, query.explicit_path.native(), query.name);
  }
  return {};
}

std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

Mutex& iterating() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
  static auto* const mutex = new Mutex();
  return *mutex;
}

// Not over a fork: the loader's lock, which it holds, stays held in the child, whose
// next dlopen would wait for ever.
std::vector<fs::path> loaded_libraries() {
  static const bool held = [] {
    hold_over_forks<iterating>();
    return true;
  }();
  std::ignore = held;
  const MutexLock lock(iterating());
  std::vector<fs::path> loaded;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0')
          static_cast<std::vector<fs::path>*>(out)->emplace_back(info->dlpi_name);
        return 0;
      },
      &loaded);
  return loaded;
}

// The program's folder, and that of the library that this code is in.
std::vector<fs::path> folders_of_own_code() {
  std::vector<fs::path> folders;
  for (const fs::path& file : {this_program(), this_library()}) {
    if (!file.empty() && (folders.empty() || file.parent_path() != folders.front()))
      folders.push_back(file.parent_path());
  }
  return folders;
}

}  // namespace

bool is_version_of(std::string_view file_name, std::string_view name) {
  if (!file_name.starts_with(name))
    return false;
  const std::string_view rest = file_name.substr(name.size());
  if (rest.empty())
    return true;
  return rest.front() == '.' && is_digit(rest.back()) &&
         rest.find("..") == std::string_view::npos &&
         rest.find_first_not_of(".0123456789") == std::string_view::npos;
}

std::vector<fs::path> folders_of_variable(const char* name) {
  const std::string listed = environment(name);
  const auto folders = parts_of(listed, ":;");
  return {folders.begin(), folders.end()};
}

LibraryPlaces LibraryPlaces::of_process() {
  LibraryPlaces places;
  places.loaded = loaded_libraries();
  places.cuda_home = environment("CUDA_HOME");
  if (places.cuda_home.empty())
    places.cuda_home = environment("CUDA_PATH");
  for (const char* const name : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"}) {
    if (const std::string root = environment(name); !root.empty())
      places.named_toolkits.emplace_back(root);
  }
  places.loader_path = folders_of_variable("LD_LIBRARY_PATH");
  places.loader_cache = "/etc/ld.so.cache";
  places.default_folders = {fs::path("/lib") / kMultiarch,
                            fs::path("/usr/lib") / kMultiarch, "/lib64", "/usr/lib64",
                            "/usr/lib"};
  places.toolkits = "/usr/local";
  places.system_root = "/";
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string root = environment(name); !root.empty())
      places.python_environments.emplace_back(root);
  }
  places.python_environments.emplace_back("/usr/local");
  places.own_folders = folders_of_own_code();
  return places;
}

Result<std::vector<LibraryCandidate>> find_libraries(const LibraryQuery& query,
                                                     const LibraryPlaces& places) {
  Candidates found(query.name);
  KILN_TRY(add_explicit(query, found));
  add_loaded(places, found);
  if (!places.cuda_home.empty())
    found.add_toolkit(places.cuda_home, "CUDA_HOME");
  add_loader(places, found);
  if (!places.toolkits.empty()) {
    found.add_toolkit(places.toolkits / "cuda", "an installed toolkit");
    for (const fs::path& toolkit : subfolders(places.toolkits, "cuda-"))
      found.add_toolkit(toolkit, "an installed toolkit");
  }
  add_python(places, found);
  add_own(places, found);
  return std::move(found).take();
}

}  // namespace kiln
