// A transfer from or to a mounted folder. Unlike libcurl it replaces a file atomically,
// and goes in steps, since others wait for the same thread.

#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "remote/helper/transfer_body.h"
#include "remote/transfer.h"
#include "util/unique_fd.h"
#include "util/write_file.h"

namespace kiln::remote {

/// Thread safety: one thread. Its destruction leaves the folder as it was.
class FolderTransfer {
 public:
  FolderTransfer(const TransferRequest& request, std::filesystem::path path,
                 UniqueFd body);

  /// Copies a piece. The reply, once it is done.
  [[nodiscard]] std::optional<TransferReply> step() {
    return method_ == Method::kPut ? put() : get();
  }

 private:
  [[nodiscard]] TransferReply answer(std::uint32_t status,
                                     std::string error = {}) const;
  [[nodiscard]] TransferReply broken(TransferEnd end, std::string error) const;
  [[nodiscard]] std::optional<TransferReply> get();
  [[nodiscard]] std::optional<TransferReply> put();

  const std::uint64_t id_;
  const Method method_;
  const std::uint64_t from_;  // of a GET
  const std::filesystem::path path_;
  TransferBody body_;
  std::optional<NewFile> new_;  // of a PUT
  UniqueFd source_;             // of a GET
  struct stat info_ {};         // likewise
  std::uint64_t done_ = 0;
};

}  // namespace kiln::remote
