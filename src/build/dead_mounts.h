// Folders of the settings on mounts that give no answer: NFS or FUSE whose server is
// gone. Each is asked by a process before this one touches it.

#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "build/config.h"
#include "cache/seeds.h"
#include "kiln/result.h"

namespace kiln {

/// How long a folder that is needed is waited for.
inline constexpr std::chrono::seconds kMountWait{2};

/// Asks by a kiln-worker; where none is found, every mount counts as one that answers.
[[nodiscard]] cache::AskMount ask_mount(const Config& config);

/// Of the files and folders that a service reads when it is opened, besides the cache.
/// Errors: kUnavailable, for the first that gives no answer.
[[nodiscard]] Result<void> check_mounts(const Config& config);

/// The same of any place; an empty one is none. Errors: kUnavailable, naming `setting`.
[[nodiscard]] Result<void> check_mount(const Config& config, std::string_view setting,
                                       const std::filesystem::path& place);

/// The places where libraries are searched that give no answer, each in words.
[[nodiscard]] std::vector<std::string> dead_search_places(const Config& config);

}  // namespace kiln
