// The part of Cache that finds its place: the named root, the same held open, or one
// that takes its place.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <tuple>
#include <utility>

#include "cache/cache.h"
#include "util/posix_error.h"

namespace kiln::cache {
namespace {

constexpr const char* kElsewhere = "; name another place in KILN_CACHE_DIR";
constexpr std::chrono::seconds kRootPatience{2};

bool is_refusal(int err) {
  return err == -EROFS || err == -EACCES || err == -EPERM;
}

}  // namespace

/// A lock may outlive its cache, and so does the file system that it uses.
void Cache::hold_open(HeldFolder folder) {
  held_ = &HeldFileSystem::make(*file_system_, std::move(folder));
  file_system_ = held_;
}

void Cache::let_go() {
  if (held_ == nullptr)
    return;
  held_->let_go();
  file_system_ = &held_->below();
  held_ = nullptr;
}

Mode Cache::turn_off(std::string why) {
  mode_reason_ = std::move(why);
  return Mode::kOff;
}

Mode Cache::turn_off(const Error& error) {
  is_refused_ = error.code == ErrorCode::kUntrusted;
  return turn_off(error.message);
}

Mode Cache::leave_absent(const std::string& path) {
  is_absent_ = true;
  return turn_off(path + " does not exist");
}

/// Touches no mount that may be dead.
bool Cache::find_silence() {
  const auto far =
      options_.ask_mount ? far_mount_of(layout_.root()) : std::optional<FarMount>();
  if (!far || options_.ask_mount(layout_.root(), *far, kRootPatience))
    return false;
  is_silent_ = true;
  std::ignore = turn_off(silence(layout_.root(), *far) + kElsewhere);
  return true;
}

Mode Cache::determine_mode() {
  const std::string& root = layout_.root().native();
  if (!root.empty() && !layout_.root().is_absolute())
    return turn_off(fmt::format("'{}' is no absolute path; set KILN_CACHE_DIR", root));
  if (root.empty())
    return settle_elsewhere(
        "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME names a place for it");
  if (find_silence())
    return Mode::kOff;
  const Mode mode = settle();
  if (!is_refused_ && (mode != Mode::kOff || is_absent_ || options_.is_named))
    return mode;
  const bool was_refused = is_refused_;
  const Mode elsewhere = settle_elsewhere(mode_reason_);
  // Of a cache that is off in this process only: it writes nothing. One that is held
  // open is as safe as any.
  if (was_refused && !is_held() && !is_absent_)
    counters_.add(Counter::kUntrusted);
  return elsewhere;
}

/// Where the root is refused or cannot be made, and `why`: the same folder held open,
/// or one that takes its place.
Mode Cache::settle_elsewhere(std::string why) {
  const std::filesystem::path asked = layout_.root();
  std::optional<std::filesystem::path> could_be;  // not there yet
  const bool was_refused = is_refused_;
  const auto settles = [&](const std::filesystem::path& place) {
    if ((place != asked && settles_at(place)) || (is_refused_ && settles_held(place)))
      return true;
    if (is_absent_ && !could_be)
      could_be = layout_.root();
    return false;
  };
  if (settles(asked)) {
    const std::string_view because = std::string_view(why).substr(0, why.find("; "));
    const std::filesystem::path& root = layout_.root();
    place_reason_ =
        root == asked
            ? fmt::format("{}, so the cache is held open, without an index", because)
            : fmt::format("{}; {}, of this user alone, takes its place", because,
                          root.native());
    return mode_;
  }
  // A folder that others can change, and that cannot be held open either.
  if (was_refused && !is_absent_ && why.find(mode_reason_) == why.npos)
    why.insert(std::min(why.find("; "), why.size()),
               fmt::format(", and cannot be held open ({})", mode_reason_));
  const std::string own = fmt::format("kiln-{}", ::geteuid());
  for (const auto& [folder, name] : {std::pair{options_.runtime_dir, "kiln/cache"},
                                     {options_.temporary_dir, own.c_str()}}) {
    if (folder.empty() || options_.temporary_dir.empty() || !settles(folder / name))
      continue;
    place_reason_ = fmt::format("{}; {} takes its place", why, layout_.root().native());
    return mode_;
  }
  layout_ = Layout(could_be.value_or(asked));
  is_absent_ = false;
  return could_be ? leave_absent(could_be->native()) : turn_off(why);
}

/// As settles_at, of a folder that is refused by its path, and held open.
bool Cache::settles_held(const std::filesystem::path& root) {
  auto held = hold(*file_system_, trust_, root, options_.make_root);
  if (!held) {
    is_absent_ = held.error().code == ErrorCode::kNotFound;
    if (held.error().code != ErrorCode::kInvalidArgument)
      mode_reason_ = std::move(held).error().message;
    layout_ = Layout(root);
    return false;
  }
  const TrustPolicy by_path = trust_;
  const std::filesystem::path path = held->path;
  hold_open(*std::move(held));
  trust_ = by_path.below(path);
  if (settles_at(path))
    return true;
  let_go();
  trust_ = by_path;
  return false;
}

/// False if the cache cannot be there, or, where none is made, is not there yet.
bool Cache::settles_at(std::filesystem::path root) {
  layout_ = Layout(std::move(root));
  is_refused_ = is_absent_ = false;
  mode_reason_.clear();
  mode_ = settle();
  return mode_ != Mode::kOff;
}

Mode Cache::settle() {
  const std::string& root = layout_.root().native();
  if (const auto trusted = trust_.check_path(*file_system_, root); !trusted)
    return turn_off(trusted.error());
  struct stat info {};
  int err = file_system_->stat(root.c_str(), info);
  if (err == -ENOENT && !options_.make_root)
    return leave_absent(root);
  if (err == -ENOENT) {
    if (err = make_folders(*file_system_, root); err != 0)
      return turn_off(posix_message("mkdir", root, -err) + kElsewhere);
    // Once more, now that every component exists.
    if (const auto trusted = trust_.check_path(*file_system_, root); !trusted)
      return turn_off(trusted.error());
  } else if (err != 0 || !S_ISDIR(info.st_mode)) {
    return turn_off(posix_message("open", root, err != 0 ? -err : ENOTDIR) +
                    kElsewhere);
  }
  return prepare_objects();
}

Mode Cache::prepare_objects() {
  const std::string& objects = layout_.objects();
  // Check the components that exist before creating any.
  if (const auto trusted = trust_.check_path(*file_system_, objects); !trusted)
    return turn_off(trusted.error());
  struct stat found {};
  if (!options_.make_root && file_system_->stat(objects.c_str(), found) == -ENOENT)
    return leave_absent(objects);
  int err = make_folders(*file_system_, objects);
  std::string_view call = "mkdir";
  if (err == 0) {
    call = "write to";
    err = file_system_->writable(objects.c_str());
  }
  if (is_refusal(err)) {
    // A folder that cannot be entered cannot be read either.
    struct stat info {};
    if (file_system_->stat(objects.c_str(), info) == -EACCES)
      return turn_off(posix_message("open", objects, EACCES));
    mode_reason_ = posix_message(call, objects, -err);
    return Mode::kReadOnly;
  }
  // A full disk may have room later: each publish finds out by itself.
  const auto trusted = trust_.check_path(*file_system_, objects);
  if (!trusted)
    return turn_off(trusted.error());
  return Mode::kReadWrite;
}

}  // namespace kiln::cache
