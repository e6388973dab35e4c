// Transfers by libcurl, any number at a time in one thread.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "kiln/result.h"
#include "remote/helper/folder_transfer.h"
#include "remote/helper/libcurl.h"
#include "remote/helper/running_transfer.h"
#include "remote/transfer.h"
#include "util/unique_fd.h"

namespace kiln::remote {

/// Thread safety: one thread.
class CurlTransfers {
 public:
  using Done = std::function<void(TransferReply)>;

  /// `done` is called by poll(), once for each request that is not cancelled. Errors:
  /// kUnavailable: libcurl is missing, or cannot start.
  [[nodiscard]] static Result<std::unique_ptr<CurlTransfers>> make(Done done);
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
  CurlTransfers(Done done, CURLM* multi) : done_(std::move(done)), multi_(multi) {}

  void end(std::uint64_t id, CURLcode code);
  [[nodiscard]] bool repeats(Running& one, CURLcode code) const;

  const Done done_;
  CURLM* const multi_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Running>> running_;
  std::unordered_map<std::uint64_t, FolderTransfer> folders_;
};

}  // namespace kiln::remote
