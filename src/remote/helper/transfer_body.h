// The body of one transfer, between libcurl and the file that the parent has given.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "remote/transfer.h"
#include "util/unique_fd.h"

namespace kiln::remote {

/// Thread safety: one thread.
class TransferBody {
 public:
  TransferBody(UniqueFd file, const TransferRequest& request);

  // A GET.

  /// An answer has begun whose body is the file's, from there on.
  void begin_at(std::uint64_t at);
  /// One whose body nobody reads.
  void ignore() { is_ignored_ = true; }
  [[nodiscard]] bool is_ignored() const { return is_ignored_; }
  enum class Took : std::uint8_t { kAll, kEnough, kTooMuch, kNothing };
  /// kEnough: its reader will refuse what there is. kNothing: see error().
  [[nodiscard]] Took take(std::string_view bytes);
  /// In the file.
  [[nodiscard]] std::uint64_t received() const { return received_; }

  // A PUT.

  /// How many bytes it has put there; 0 at the end. Negative: see error().
  [[nodiscard]] ssize_t give(char* to, std::size_t most);
  /// False: there is no such place.
  [[nodiscard]] bool seek(std::uint64_t place);

  /// Why the file could not be read or written, if so.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  [[nodiscard]] Took look_at_head();

  UniqueFd file_;
  const BodyHead head_;
  const std::uint64_t size_;  // of a PUT
  const bool is_look_;
  std::uint64_t most_;
  std::uint64_t received_;
  std::uint64_t sent_ = 0;
  std::uint64_t ignored_ = 0;
  bool is_ignored_ = false;
  bool has_seen_head_;
  std::string begin_;  // as long as the head is not whole
  std::string error_;
};

}  // namespace kiln::remote
