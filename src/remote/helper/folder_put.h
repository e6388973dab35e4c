// A PUT to a mounted folder: atomically, unlike libcurl, and in steps, since others
// wait for the same thread.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "remote/transfer.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::remote {

/// Thread safety: one thread. Its destruction leaves the folder as it was.
class FolderPut {
 public:
  FolderPut(const TransferRequest& request, std::filesystem::path path, UniqueFd body);

  /// Copies a piece. The reply, once it is done.
  [[nodiscard]] std::optional<TransferReply> step();

 private:
  [[nodiscard]] TransferReply refused(const Error& error) const;

  const std::uint64_t id_;
  const std::uint64_t size_;
  const std::filesystem::path path_;
  const UniqueFd body_;
  std::optional<NewFile> file_;
  std::uint64_t done_ = 0;
};

}  // namespace kiln::remote
