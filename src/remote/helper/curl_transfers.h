// Transfers by libcurl, any number at a time in one thread.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kiln/result.h"
#include "remote/transfer.h"
#include "util/unique_fd.h"

namespace kiln::remote {

/// Thread safety: one thread.
class CurlTransfers {
 public:
  using Done = std::function<void(TransferReply)>;

  /// `done` is called by poll(), once for each request that is not cancelled. Errors:
  /// kUnavailable: libcurl is missing, or cannot start.
  [[nodiscard]] static Result<CurlTransfers> make(Done done);
  CurlTransfers(CurlTransfers&&) noexcept;
  CurlTransfers& operator=(CurlTransfers&&) noexcept;
  CurlTransfers(const CurlTransfers&) = delete;
  CurlTransfers& operator=(const CurlTransfers&) = delete;
  ~CurlTransfers();

  /// `body`: see has_body(). A null one fails the transfer.
  void start(TransferRequest request, UniqueFd body);
  /// Of an id that has ended, or never was: nothing.
  void cancel(std::uint64_t id);
  /// Goes on with all transfers until one has ended, or `descriptor` can be read (or
  /// written, if that is asked for) or has hung up, or some time has passed.
  void poll(int descriptor, bool or_write);

 private:
  struct State;
  explicit CurlTransfers(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace kiln::remote
