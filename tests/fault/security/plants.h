// What another user of the machine may leave in a cache root that stood open for a
// moment: links, FIFOs, devices, files and folders of his own.

#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "tests/support/second_user.h"

namespace kiln::test {

// Two users that no machine has.
inline constexpr User kVictim{47'110};
inline constexpr User kStranger{47'111};

enum class Plant : std::uint8_t {
  kLinkToFile,
  kLinkToFolder,
  kLinkToNothing,
  kHardLink,  // to a file of the victim's
  kFifo,
  kFifoToRead,  // that the victim cannot write
  kDevice,      // that never ends
  kFile,        // a copy of what was there, if that was a file
  kFolder,
  kOpenFolder,  // with a file of the victim's rights
};
inline constexpr std::array kPlants{
    Plant::kLinkToFile, Plant::kLinkToFolder, Plant::kLinkToNothing, Plant::kHardLink,
    Plant::kFifo,       Plant::kFifoToRead,   Plant::kDevice,        Plant::kFile,
    Plant::kFolder,     Plant::kOpenFolder};

[[nodiscard]] const char* to_string(Plant plant);

/// The victim's own files beside the cache, which nothing may change.
class Outside {
 public:
  explicit Outside(std::filesystem::path folder);

  [[nodiscard]] std::filesystem::path file() const { return folder_ / "precious"; }
  /// Has baits for whoever cleans up in a folder that is not his.
  [[nodiscard]] std::filesystem::path folder() const { return folder_ / "folder"; }
  [[nodiscard]] std::filesystem::path nothing() const { return folder_ / "nothing"; }

  /// "" or what is not as it was.
  [[nodiscard]] std::string change() const;

 private:
  using Look = std::map<std::string, std::string>;
  [[nodiscard]] Look look() const;

  std::filesystem::path folder_;
  Look before_;
};

/// Puts `plant` in the place of whatever is at `path`, as the stranger does it whom the
/// folder let in; its mode is as before in the end. False where it cannot be made here:
/// a device without the right to.
[[nodiscard]] bool put(Plant plant, const std::filesystem::path& path,
                       const Outside& outside);

}  // namespace kiln::test
