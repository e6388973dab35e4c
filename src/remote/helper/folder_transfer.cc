#include "remote/helper/folder_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "util/bytes.h"
#include "util/posix_error.h"

namespace kiln::remote {
namespace {

// As a web server would say it.
constexpr std::uint32_t kThere = 200;
constexpr std::uint32_t kCreated = 201;
constexpr std::uint32_t kNotFound = 404;
constexpr std::uint32_t kNoRoom = 507;
constexpr mode_t kFileMode = 0644;
constexpr std::size_t kStep = 1U << 20U;

/// What senders that were killed have left in that folder: files of NewFile.
void remove_old_files(const std::filesystem::path& folder) {
  using std::filesystem::directory_iterator;
  std::error_code error;
  std::error_code unknown;  // of one file, which stays
  for (directory_iterator each(folder, error); !error && each != directory_iterator();
       each.increment(error)) {
    if (!each->path().filename().native().starts_with(".new-"))
      continue;
    const auto written = each->last_write_time(unknown);
    if (!unknown &&
        std::filesystem::file_time_type::clock::now() - written > std::chrono::days(1))
      std::filesystem::remove(*each, unknown);
  }
}

}  // namespace

FolderTransfer::FolderTransfer(const TransferRequest& request,
                               std::filesystem::path path, UniqueFd body)
    : id_(request.id),
      method_(request.method),
      from_(request.resumes_at),
      path_(std::move(path)),
      body_(std::move(body), request) {}

std::optional<TransferReply> FolderTransfer::get() {
  if (!source_) {
    source_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!source_ && (errno == ENOENT || errno == ENOTDIR))
      return answer(kNotFound);
    if (!source_ || ::fstat(source_.get(), &info_) != 0)
      return broken(TransferEnd::kBroken, posix_message("open", path_, errno));
    if (!S_ISREG(info_.st_mode))
      return broken(TransferEnd::kBroken, path_.native() + " is not a regular file");
    done_ = std::min(from_, static_cast<std::uint64_t>(info_.st_size));
    if (method_ == Method::kGet)
      body_.begin_at(done_);
  }
  if (method_ == Method::kHead)
    return answer(kThere);
  std::string bytes(kStep, '\0');
  const ssize_t n =
      ::pread(source_.get(), bytes.data(), bytes.size(), static_cast<off_t>(done_));
  if (n < 0)
    return broken(TransferEnd::kBroken, posix_message("read", path_, errno));
  done_ += static_cast<std::uint64_t>(n);
  using Took = TransferBody::Took;
  switch (body_.take(std::string_view(bytes).substr(0, static_cast<std::size_t>(n)))) {
    case Took::kTooMuch:
      return broken(TransferEnd::kTooLarge, path_.native() + " is too large");
    case Took::kNothing:
      return broken(TransferEnd::kBodyFile, body_.error());
    case Took::kEnough:
      return answer(kThere);
    case Took::kAll:
      break;
  }
  return n == 0 ? std::optional(answer(kThere)) : std::nullopt;
}

std::optional<TransferReply> FolderTransfer::put() {
  if (!new_) {
    std::error_code unknown;  // then the file cannot be made
    std::filesystem::create_directories(path_.parent_path(), unknown);
    remove_old_files(path_.parent_path());
    auto file = NewFile::create(path_);
    if (!file)
      return answer(kNoRoom, file.error().message);
    new_.emplace(*std::move(file));
  }
  std::string bytes(kStep, '\0');
  const ssize_t n = body_.give(bytes.data(), bytes.size());
  if (n < 0)
    return broken(TransferEnd::kBodyFile, body_.error());
  bytes.resize(static_cast<std::size_t>(n));
  const auto kept = n == 0 ? new_->commit(kFileMode)
                           : write_all(new_->descriptor(), as_bytes(bytes), path_);
  if (!kept)
    return answer(kNoRoom, kept.error().message);
  return n == 0 ? std::optional(answer(kCreated)) : std::nullopt;
}

TransferReply FolderTransfer::answer(std::uint32_t status, std::string error) const {
  return {.id = id_,
          .end = TransferEnd::kAnswered,
          .status = status,
          .error = std::move(error),
          .modified = info_.st_mtime,
          .whole_bytes = static_cast<std::uint64_t>(info_.st_size),
          .body_bytes = body_.received()};
}

TransferReply FolderTransfer::broken(TransferEnd end, std::string error) const {
  return {.id = id_, .end = end, .error = std::move(error)};
}

}  // namespace kiln::remote
