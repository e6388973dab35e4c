#include "remote/helper/running_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <tuple>
#include <utility>

namespace kiln::remote {
namespace {

constexpr long kWhole = 200;
constexpr long kPartial = 206;
constexpr long kNoSuchRange = 416;
constexpr std::size_t kMostRefusal = 1024;
constexpr std::chrono::seconds kStoredWithin{60};
/// Of a pack: a proxy that fetches it for others lets this one wait.
constexpr std::chrono::seconds kFirstByteWithin{35};

/// 0: it is no number.
std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::ignore = std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// "bytes 5-9/10" of a body that goes on at 5, and up to its end.
bool goes_on_at(std::uint64_t at, std::uint64_t total, std::string_view range) {
  return total > at && range == fmt::format("bytes {}-{}/{}", at, total - 1, total);
}

}  // namespace

const Result<Libcurl>& opened_libcurl() {
  static const Result<Libcurl> opened = open_libcurl();
  return opened;
}

const Libcurl& curl() {
  return *opened_libcurl();
}

std::string header_of(CURL* easy, const char* name) {
  curl_header* header = nullptr;
  return curl().easy_header(easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK
             ? header->value
             : "";
}

void begin_body(Running& running) {
  if (std::exchange(running.has_begun, true))
    return;
  CURL* const easy = running.easy.get();
  const TransferRequest& request = running.request;
  long status = 0;
  std::ignore = curl().easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  const bool is_whole = status == kWhole;
  const std::string range = header_of(easy, "Content-Range");
  const std::uint64_t total = number_in(range.substr(range.rfind('/') + 1));
  const bool is_rest = status == kPartial && request.resumes_at != 0 &&
                       header_of(easy, "Content-Encoding").empty() &&
                       goes_on_at(request.resumes_at, total, range);
  // A shorter file has no such part, and one that is encoded none of its own.
  running.is_rest =
      is_rest || (is_look(request) && (status == kPartial || status == kNoSuchRange));
  if (const auto length = header_of(easy, "Content-Length");
      is_rest || (is_whole && !length.empty()))
    running.reply.whole_bytes = is_rest ? total : number_in(length);
  if (request.method != Method::kGet || !(is_whole || is_rest))
    return running.body.ignore();
  running.body.begin_at(is_rest ? request.resumes_at : 0);
  // A mark of the bytes as they are, and of nothing that decodes to them.
  std::string& mark = running.reply.validator;
  mark = header_of(easy, "ETag");
  if (!mark.starts_with('"'))
    mark = header_of(easy, "Last-Modified");
  if (!header_of(easy, "Content-Encoding").empty())
    mark.clear();
}

std::size_t on_bytes(const char* bytes, std::size_t one, std::size_t size, void* user) {
  auto& running = *static_cast<Running*>(user);
  begin_body(running);
  std::string& refusal = running.reply.refusal;
  if (running.body.is_ignored() && refusal.size() < kMostRefusal)
    refusal.append(bytes, std::min(one * size, kMostRefusal - refusal.size()));
  running.took = running.body.take({bytes, one * size});
  return running.took == TransferBody::Took::kAll ? one * size : 0;
}

std::size_t on_read(char* bytes, std::size_t one, std::size_t size, void* user) {
  const ssize_t n = static_cast<Running*>(user)->body.give(bytes, one * size);
  return n < 0 ? CURL_READFUNC_ABORT : static_cast<std::size_t>(n);
}

int on_seek(void* user, curl_off_t offset, int origin) {
  const bool is_there =
      origin == SEEK_SET && offset >= 0 &&
      static_cast<Running*>(user)->body.seek(static_cast<std::uint64_t>(offset));
  return is_there ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

int on_progress(void* user, curl_off_t total, curl_off_t received, curl_off_t to_send,
                curl_off_t sent) {
  auto& running = *static_cast<Running*>(user);
  const TransferLimits& limits = running.request.limits;
  const curl_off_t moved = received + sent;
  const auto least = static_cast<curl_off_t>(limits.least_bytes_per_second) *
                     static_cast<curl_off_t>(limits.slow_for.count());
  const auto now = std::chrono::steady_clock::now();
  const bool is_awaited =
      limits.grows && running.request.method == Method::kGet && received == 0;
  if (moved - running.moved_then >= least || is_awaited) {
    running.slow_since = now;
    running.moved_then = moved;
  }
  // A server may take its time to store what it has got.
  const bool is_sent = limits.grows && to_send > 0 && sent >= to_send;
  running.is_too_slow =
      now - running.slow_since >= (is_sent ? kStoredWithin : limits.slow_for) ||
      (is_awaited && now - running.began >= kFirstByteWithin) ||
      (limits.grows &&
       now - running.began >=
           whole_limit(limits, static_cast<std::uint64_t>(total + to_send)));
  return running.is_too_slow ? 1 : 0;
}

}  // namespace kiln::remote
