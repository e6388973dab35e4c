#include "tests/fault/security/plants.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/support/test.h"

namespace kiln::test {
namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void give_to_victim(const fs::path& path) {
  EXPECT_EQ(::lchown(path.c_str(), kVictim.uid(), kVictim.uid()), 0) << path;
}

void write_text(const fs::path& path, const std::string& text, mode_t mode) {
  std::ofstream(path, std::ios::binary) << text;
  ::chmod(path.c_str(), mode);
}

std::string add_folder(const fs::path& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0 || ::chmod(path.c_str(), mode) != 0)
    return "no folder";
  write_text(path / "a file", "the stranger's", 0666);
  return "";
}

/// What a user can do; "" if it is done.
std::string add(Plant plant, const fs::path& path, const Outside& outside,
                const std::string& copy) {
  const auto made = [](int result) { return result == 0 ? "" : "it cannot be made"; };
  switch (plant) {
    case Plant::kLinkToFile:
      return made(::symlink(outside.file().c_str(), path.c_str()));
    case Plant::kLinkToFolder:
      return made(::symlink(outside.folder().c_str(), path.c_str()));
    case Plant::kLinkToNothing:
      return made(::symlink(outside.nothing().c_str(), path.c_str()));
    case Plant::kFifo:
      return made(::mkfifo(path.c_str(), 0600) | ::chmod(path.c_str(), 0666));
    case Plant::kFifoToRead:
      return made(::mkfifo(path.c_str(), 0600) | ::chmod(path.c_str(), 0444));
    case Plant::kFile:
      write_text(path, copy, 0666);
      return fs::is_regular_file(path) ? "" : "no file";
    case Plant::kFolder:
      return add_folder(path, 0755);
    case Plant::kOpenFolder:
      return add_folder(path, 0777);
    default:
      return "not as a user";
  }
}

/// The folder and those above it, up to the victim's first, let everybody in until this
/// goes out of scope.
class OpenDoors {
 public:
  explicit OpenDoors(fs::path folder) {
    struct stat info {};
    for (; ::stat(folder.c_str(), &info) == 0 && info.st_uid == kVictim.uid();
         folder = folder.parent_path()) {
      before_.emplace_back(folder, info.st_mode & 07777U);
      ::chmod(folder.c_str(), 0777);
    }
  }
  OpenDoors(const OpenDoors&) = delete;
  OpenDoors& operator=(const OpenDoors&) = delete;
  ~OpenDoors() {
    for (const auto& [folder, mode] : before_) ::chmod(folder.c_str(), mode);
  }

 private:
  std::vector<std::pair<fs::path, mode_t>> before_;
};

}  // namespace

const char* to_string(Plant plant) {
  constexpr std::array kNames{"a link to a file",
                              "a link to a folder",
                              "a link to nothing",
                              "a hard link",
                              "a FIFO",
                              "a FIFO that can only be read",
                              "a device",
                              "a file of the stranger's",
                              "a folder of his own",
                              "a folder that all can write"};
  return kNames[static_cast<std::size_t>(plant)];
}

Outside::Outside(fs::path folder) : folder_(std::move(folder)) {
  fs::create_directories(this->folder());
  write_text(file(), "precious\n", 0600);
  // A temporary and an object by their names, old enough to be swept and evicted.
  // Once more in a folder that has the name of one of objects.
  const std::array baits{std::string(".tmp-") + std::string(32, 'a'),
                         std::string(62, 'b'), std::string("notes.txt")};
  const fs::path objects = this->folder() / "bb";
  fs::create_directories(objects);
  for (const fs::path& place : {this->folder(), objects}) {
    for (const std::string& name : baits) {
      write_text(place / name, "a bait\n", 0600);
      fs::last_write_time(
          place / name, fs::file_time_type::clock::now() - std::chrono::hours(24 * 30));
      give_to_victim(place / name);
    }
  }
  for (const auto& path : {folder_, this->folder(), objects, file()})
    give_to_victim(path);
  before_ = look();
}

Outside::Look Outside::look() const {
  Look look;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    struct stat info {};
    ::lstat(entry.path().c_str(), &info);
    std::ostringstream text;
    text << info.st_mode << ' ' << info.st_uid << ' ' << info.st_size << ' '
         << info.st_mtim.tv_sec << '.' << info.st_mtim.tv_nsec << ' '
         << (S_ISREG(info.st_mode) ? text_of(entry.path()) : "");
    look[entry.path()] = text.str();
  }
  return look;
}

std::string Outside::change() const {
  const Look now = look();
  for (const auto& [path, what] : before_) {
    const auto found = now.find(path);
    if (found == now.end())
      return path + " is gone";
    if (found->second != what)
      return path + " was " + what + " and is " + found->second;
  }
  for (const auto& [path, what] : now) {
    if (!before_.contains(path))
      return path + " is new: " + what;
  }
  return "";
}

bool put(Plant plant, const fs::path& path, const Outside& outside) {
  const std::string copy = fs::is_regular_file(path) ? text_of(path) : "no copy";
  fs::remove_all(path);
  if (plant == Plant::kDevice) {
    // Only root can make one, which somebody may have brought it to.
    return ::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 5)) == 0 &&
           ::chmod(path.c_str(), 0666) == 0;
  }
  if (plant == Plant::kHardLink) {
    // Where the kernel does not protect them a stranger can make these as well.
    return ::link(outside.file().c_str(), path.c_str()) == 0;
  }
  const OpenDoors doors(path.parent_path());
  const std::string wrong =
      kStranger.run([&] { return add(plant, path, outside, copy); });
  EXPECT_EQ(wrong, "") << to_string(plant) << " at " << path;
  return wrong.empty();
}

}  // namespace kiln::test
