#include "remote/helper/folder_put.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <system_error>
#include <utility>

namespace kiln::remote {
namespace {

constexpr mode_t kFileMode = 0644;

}  // namespace

FolderPut::FolderPut(const TransferRequest& request, std::filesystem::path path,
                     UniqueFd body)
    : id_(request.id),
      size_(request.body_bytes),
      path_(std::move(path)),
      body_(std::move(body)) {}

std::optional<TransferReply> FolderPut::step() {
  if (!file_) {
    std::error_code unknown;  // then the file cannot be made
    std::filesystem::create_directories(path_.parent_path(), unknown);
    auto file = NewFile::create(path_);
    if (!file)
      return refused(file.error());
    file_.emplace(*std::move(file));
  }
  if (done_ < size_) {
    const auto copied =
        copy_some(body_.get(), done_, size_ - done_, file_->descriptor(), path_);
    if (!copied)
      return refused(copied.error());
    if (*copied == 0)
      return TransferReply{.id = id_,
                           .end = TransferEnd::kHelper,
                           .error = "the file of the body is cut off"};
    done_ += *copied;
    return std::nullopt;
  }
  constexpr std::uint32_t kCreated = 201;
  if (const auto done = file_->commit(kFileMode); !done)
    return refused(done.error());
  return TransferReply{.id = id_, .end = TransferEnd::kAnswered, .status = kCreated};
}

TransferReply FolderPut::refused(const Error& error) const {
  constexpr std::uint32_t kNoRoom = 507;
  return {.id = id_,
          .end = TransferEnd::kAnswered,
          .status = kNoRoom,
          .error = error.message};
}

}  // namespace kiln::remote
