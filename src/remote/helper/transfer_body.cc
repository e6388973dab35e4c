#include "remote/helper/transfer_body.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "util/bytes.h"
#include "util/little_endian.h"
#include "util/scratch_file.h"

namespace kiln::remote {
namespace {

/// Of a body that nobody reads, such as an error page.
constexpr std::uint64_t kMostIgnored = 1U << 20U;

/// Of the call that set errno.
std::string failure(std::string_view call, const UniqueFd& file) {
  const std::string why = std::generic_category().message(errno);
  return fmt::format("cannot {} {}: {}", call, scratch_name(file.get()), why);
}

}  // namespace

TransferBody::TransferBody(UniqueFd file, const TransferRequest& request)
    : file_(std::move(file)),
      head_(request.head),
      size_(request.body_bytes),
      is_look_(is_look(request)),
      most_(request.limits.most_bytes),
      received_(request.resumes_at),
      has_seen_head_(request.head.magic.empty()) {}

void TransferBody::begin_at(std::uint64_t at) {
  received_ = at;
  if (is_look_)
    most_ += at;  // the limit is that of the part
  if (::ftruncate(file_.get(), static_cast<off_t>(at)) != 0)
    error_ = failure("truncate", file_);
}

TransferBody::Took TransferBody::take(std::string_view bytes) {
  if (is_ignored_) {
    ignored_ += bytes.size();
    return ignored_ > kMostIgnored ? Took::kEnough : Took::kAll;
  }
  if (!error_.empty())
    return Took::kNothing;
  if (received_ > most_ || bytes.size() > most_ - received_)
    return Took::kTooMuch;
  for (std::string_view left = bytes; !left.empty();) {
    const ssize_t n =
        ::pwrite(file_.get(), left.data(), left.size(), static_cast<off_t>(received_));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      error_ = failure("write", file_);
      return Took::kNothing;
    }
    received_ += static_cast<std::uint64_t>(n);
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  if (has_seen_head_)
    return Took::kAll;
  begin_.append(bytes.substr(0, head_.size_at + sizeof(std::uint64_t)));
  return look_at_head();
}

TransferBody::Took TransferBody::look_at_head() {
  const std::size_t n = std::min(begin_.size(), head_.magic.size());
  if (std::string_view(begin_).substr(0, n) !=
      std::string_view(head_.magic).substr(0, n))
    return Took::kEnough;
  if (begin_.size() < head_.size_at + sizeof(std::uint64_t))
    return Took::kAll;
  has_seen_head_ = true;
  const auto size = load_le<std::uint64_t>(as_bytes(begin_), head_.size_at);
  if (size > most_)
    return Took::kTooMuch;
  most_ = std::min(most_, size + head_.most_behind);
  return received_ > most_ ? Took::kTooMuch : Took::kAll;
}

ssize_t TransferBody::give(char* to, std::size_t most) {
  const auto n = std::min<std::uint64_t>(most, size_ - sent_);
  ssize_t got = 0;
  do got = ::pread(file_.get(), to, n, static_cast<off_t>(sent_));
  while (got < 0 && errno == EINTR);
  if (got < 0)
    error_ = failure("read", file_);
  else if (got == 0 && n != 0)
    error_ = "the file of the body is cut off";
  if (!error_.empty())
    return -1;
  sent_ += static_cast<std::uint64_t>(got);
  return got;
}

bool TransferBody::seek(std::uint64_t place) {
  if (place > size_)
    return false;
  sent_ = place;
  return true;
}

}  // namespace kiln::remote
