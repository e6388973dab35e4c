// A transfer that libcurl runs, and what libcurl calls for it.

#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "remote/helper/libcurl.h"
#include "remote/helper/transfer_body.h"
#include "remote/transfer.h"

namespace kiln::remote {

[[nodiscard]] const Result<Libcurl>& opened_libcurl();

/// CurlTransfers::make() fails without it.
[[nodiscard]] const Libcurl& curl();

struct EasyDeleter {
  void operator()(CURL* easy) const { curl().easy_cleanup(easy); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl().slist_free_all(list); }
};

/// libcurl has pointers to it.
struct Running {
  TransferRequest request;
  TransferReply reply;
  TransferBody body;
  TransferBody::Took took = TransferBody::Took::kAll;
  bool has_begun = false;  // the body of the answer
  bool is_rest = false;    // of the file
  bool is_too_slow = false;
  bool is_repeated = false;
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  // Since then it has moved fewer bytes than it must in `slow_for`.
  std::chrono::steady_clock::time_point slow_since = began;
  curl_off_t moved_then = 0;
  std::unique_ptr<curl_slist, ListDeleter> headers{};
  std::array<char, CURL_ERROR_SIZE> error{};  // of libcurl: why it failed
  std::unique_ptr<CURL, EasyDeleter> easy{};
};

/// Of the last answer; "" if it has none.
[[nodiscard]] std::string header_of(CURL* easy, const char* name);

/// What the body of an answer is, when its first byte comes, or its end.
void begin_body(Running& running);

// libcurl's callbacks; `user` is a Running.

std::size_t on_bytes(const char* bytes, std::size_t one, std::size_t size, void* user);
std::size_t on_read(char* bytes, std::size_t one, std::size_t size, void* user);
/// A server may close a connection that was kept just when it is used again: then
/// libcurl sends the body once more, from its beginning, over a new one.
int on_seek(void* user, curl_off_t offset, int origin);
/// libcurl's own limit looks at a mean of five seconds, so a transfer that stalls after
/// a quick start would be given up late.
int on_progress(void* user, curl_off_t total, curl_off_t received, curl_off_t to_send,
                curl_off_t sent);

}  // namespace kiln::remote
