#include "remote/helper/curl_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

namespace kiln::remote {
namespace {

constexpr long kMostRedirects = 3;
constexpr int kPollMs = 200;  // how often a running transfer's speed is looked at
constexpr int kIdlePollMs = 10'000;
constexpr long kOk = 200;

using Clock = std::chrono::steady_clock;
using Took = TransferBody::Took;

TransferEnd end_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return TransferEnd::kAnswered;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return TransferEnd::kConnect;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return TransferEnd::kTls;
    case CURLE_OPERATION_TIMEDOUT:
      return TransferEnd::kTimeout;
    case CURLE_FILESIZE_EXCEEDED:
      return TransferEnd::kTooLarge;
    default:
      return TransferEnd::kBroken;
  }
}

template <typename Value>
void set(CURL* easy, CURLoption option, Value value) {
  // It fails for an option that this libcurl lacks, none of which is used here, or for
  // want of memory, which the transfer then reports.
  std::ignore = curl().easy_setopt(easy, option, value);
}

void set_text(CURL* easy, CURLoption option, const std::string& text) {
  if (!text.empty())
    set(easy, option, text.c_str());
}

/// What every transfer has: its limits, and nothing of this machine's settings.
void set_limits(Running& running) {
  CURL* const easy = running.easy.get();
  const TransferLimits& limits = running.request.limits;
  set(easy, CURLOPT_NOSIGNAL, 1L);
  // The parent has decided; no variable of this process changes that.
  set(easy, CURLOPT_PROXY, running.request.credentials.proxy.c_str());
  set(easy, CURLOPT_NOPROXY, "");
  // A name that has moved is found at the next connection, and there are few of these.
  set(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
  set(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  // Never from TLS to none.
  set(easy, CURLOPT_REDIR_PROTOCOLS_STR,
      running.request.url.starts_with("https:") ? "https" : "http,https");
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits.connect.count()));
  // on_progress() knows the size of one that grows.
  set(easy, CURLOPT_TIMEOUT_MS,
      limits.grows ? 0L : static_cast<long>(limits.whole.count()));
  set(easy, CURLOPT_NOPROGRESS, 0L);
  set(easy, CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(easy, CURLOPT_XFERINFODATA, static_cast<void*>(&running));
  set(easy, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(limits.most_bytes));
}

void add_header(Running& running, const std::string& header) {
  running.headers.reset(curl().slist_append(running.headers.release(), header.c_str()));
}

void set_credentials(Running& running) {
  CURL* const easy = running.easy.get();
  const Credentials& who = running.request.credentials;
  // libcurl sends neither to another host that it is redirected to.
  if (!who.authorization.empty())
    add_header(running, "Authorization: " + who.authorization);
  if (!who.aws_region.empty()) {
    const bool is_sts = !running.request.form.empty();
    set(easy, CURLOPT_AWS_SIGV4,
        fmt::format("aws:amz:{}:{}", who.aws_region, is_sts ? "sts" : "s3").c_str());
    // S3 wants it, and libcurl does not send it before 8.
    if (!is_sts)
      add_header(running, "x-amz-content-sha256: " + running.request.body_sha256);
  }
  if (!who.aws_token.empty())
    add_header(running, "x-amz-security-token: " + who.aws_token);
  for (const std::string& header : running.request.headers) add_header(running, header);
  set_text(easy, CURLOPT_USERPWD, who.user);
  set_text(easy, CURLOPT_PROXYUSERPWD, who.proxy_user);
  set_text(easy, CURLOPT_CAINFO, who.ca_bundle);
  set_text(easy, CURLOPT_PROXY_CAINFO, who.ca_bundle);
  set_text(easy, CURLOPT_SSLCERT, who.certificate);
  set_text(easy, CURLOPT_SSLKEY, who.certificate);
}

void set_method(Running& running) {
  CURL* const easy = running.easy.get();
  const TransferRequest& request = running.request;
  set(easy, CURLOPT_WRITEFUNCTION, &on_bytes);
  set(easy, CURLOPT_WRITEDATA, static_cast<void*>(&running));
  switch (request.method) {
    case Method::kGet:
      set_text(easy, CURLOPT_POSTFIELDS, request.form);
      // Not "the last bytes": Azure knows no such range.
      if (request.resumes_at != 0)
        set(easy, CURLOPT_RANGE, fmt::format("{}-", request.resumes_at).c_str());
      if (!request.validator.empty())
        add_header(running, "If-Range: " + request.validator);
      break;
    case Method::kHead:
      set(easy, CURLOPT_NOBODY, 1L);
      break;
    case Method::kPut:
      set(easy, CURLOPT_UPLOAD, 1L);
      set(easy, CURLOPT_READFUNCTION, &on_read);
      set(easy, CURLOPT_READDATA, static_cast<void*>(&running));
      set(easy, CURLOPT_SEEKFUNCTION, &on_seek);
      set(easy, CURLOPT_SEEKDATA, static_cast<void*>(&running));
      set(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body_bytes));
      // nginx ignores it; others answer 412 where an equal object is there.
      if (!request.replaces)
        add_header(running, "If-None-Match: *");
      // Azure wants it; nobody else looks at it.
      if (!request.credentials.query.empty())
        add_header(running, "x-ms-blob-type: BlockBlob");
      // libcurl 7.88 would sign this header, which it does not send.
      if (request.credentials.aws_region.empty())
        add_header(running, "Expect:");
      return;  // redirected bytes would have to be sent again
  }
  // libcurl would send the token and the headers to the other host, too.
  const bool is_bound =
      !request.credentials.aws_token.empty() || !request.headers.empty();
  set(easy, CURLOPT_FOLLOWLOCATION, is_bound ? 0L : 1L);
  set(easy, CURLOPT_MAXREDIRS, kMostRedirects);
}

/// "" if it is no URL of a file.
std::filesystem::path path_of(const std::string& file_url) {
  char* decoded = nullptr;
  CURLU* const url = curl().url();
  const bool is_url =
      curl().url_set(url, CURLUPART_URL, file_url.c_str(), 0) == CURLUE_OK &&
      curl().url_get(url, CURLUPART_PATH, &decoded, CURLU_URLDECODE) == CURLUE_OK;
  std::filesystem::path path = is_url ? decoded : "";
  curl().free(decoded);
  curl().url_cleanup(url);
  return path;
}

void note_times(Running& one) {
  CURL* const easy = one.easy.get();
  const auto time = [&](CURLINFO info) {
    curl_off_t microseconds = 0;
    std::ignore = curl().easy_getinfo(easy, info, &microseconds);
    return std::chrono::microseconds(microseconds);
  };
  one.reply.times = {.name = time(CURLINFO_NAMELOOKUP_TIME_T),
                     .connect = time(CURLINFO_CONNECT_TIME_T),
                     .tls = time(CURLINFO_APPCONNECT_TIME_T),
                     .first_byte = time(CURLINFO_STARTTRANSFER_TIME_T),
                     .whole = time(CURLINFO_TOTAL_TIME_T)};
  const auto date = [&](const char* name) {
    const std::string text = header_of(easy, name);
    return text.empty()
               ? 0
               : std::max<std::int64_t>(0, curl().getdate(text.c_str(), nullptr));
  };
  one.reply.server_time = date("Date");
  one.reply.modified = date("Last-Modified");
}

void note_answer(Running& one) {
  CURL* const easy = one.easy.get();
  long status = 0;
  curl_off_t rest = 0;
  std::ignore = curl().easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  std::ignore = curl().easy_getinfo(easy, CURLINFO_RETRY_AFTER, &rest);
  one.reply.status = static_cast<std::uint32_t>(one.is_rest ? kOk : status);
  constexpr curl_off_t kLongest = 1 << 30;
  if (rest > 0)
    one.reply.retry_after_s = static_cast<std::uint32_t>(std::min(rest, kLongest));
}

}  // namespace

Result<std::unique_ptr<CurlTransfers>> CurlTransfers::make(Done done) {
  if (!opened_libcurl())
    return tl::unexpected(opened_libcurl().error());
  CURLM* multi = nullptr;
  if (curl().global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
      (multi = curl().multi_init()) == nullptr)
    return fail(ErrorCode::kUnavailable, "libcurl cannot start");
  return std::unique_ptr<CurlTransfers>(new CurlTransfers(std::move(done), multi));
}

CurlTransfers::~CurlTransfers() {
  for (auto& [id, each] : running_)
    curl().multi_remove_handle(multi_, each->easy.get());
  running_.clear();
  curl().multi_cleanup(multi_);
}

void CurlTransfers::start(TransferRequest request, UniqueFd body) {
  const std::uint64_t id = request.id;
  if (has_body(request) && !body)
    return done_({.id = id,
                  .end = TransferEnd::kHelper,
                  .error = "kiln-remote has too many files open"});
  if (request.url.starts_with("file:")) {
    auto path = path_of(request.url);
    if (path.empty())
      return done_({.id = id, .error = "it is no URL of a file"});
    folders_.try_emplace(id, request, std::move(path), std::move(body));
    return;
  }
  TransferBody bytes(std::move(body), request);
  auto running = std::make_unique<Running>(Running{
      .request = std::move(request), .reply = {.id = id}, .body = std::move(bytes)});
  running->reply.validator = running->request.validator;
  running->easy.reset(curl().easy_init());
  CURL* const easy = running->easy.get();
  if (easy == nullptr)
    return done_({.id = id, .error = "there is no memory for a transfer"});
  if (const std::string& query = running->request.credentials.query; !query.empty())
    running->request.url += "?" + query;
  set(easy, CURLOPT_URL, running->request.url.c_str());
  set(easy, CURLOPT_ERRORBUFFER, running->error.data());
  set(easy, CURLOPT_PRIVATE, static_cast<void*>(running.get()));
  set_limits(*running);
  set_credentials(*running);
  set_method(*running);
  if (running->headers)
    set(easy, CURLOPT_HTTPHEADER, running->headers.get());
  if (curl().multi_add_handle(multi_, easy) != CURLM_OK)
    return done_({.id = id, .error = "libcurl takes no further transfer"});
  running_[id] = std::move(running);
}

void CurlTransfers::end(std::uint64_t id, CURLcode code) {
  const auto found = running_.find(id);
  if (found == running_.end() || repeats(*found->second, code))
    return;
  const std::unique_ptr<Running> one = std::move(found->second);
  running_.erase(found);
  CURL* const easy = one->easy.get();
  TransferReply& reply = one->reply;
  begin_body(*one);  // of an empty one
  // Only the host that looks at these bytes refuses them, and says why.
  const bool is_enough = one->took == Took::kEnough;
  reply.end = !one->body.error().empty()    ? TransferEnd::kBodyFile
              : one->took == Took::kTooMuch ? TransferEnd::kTooLarge
              : one->is_too_slow            ? TransferEnd::kTimeout
              : is_enough                   ? TransferEnd::kAnswered
                                            : end_of(code);
  long tunnel = 0;  // what a proxy has answered to CONNECT
  std::ignore = curl().easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &tunnel);
  constexpr long kRefusals = 400;
  constexpr long kWantsPassword = 407;
  if (reply.end == TransferEnd::kBroken && tunnel >= kRefusals)
    reply.end =
        tunnel == kWantsPassword ? TransferEnd::kAnswered : TransferEnd::kConnect;
  if (reply.end == TransferEnd::kAnswered)
    note_answer(*one);
  else
    reply.error = !one->body.error().empty()   ? one->body.error()
                  : one->is_too_slow           ? "it is too slow"
                  : one->error.front() != '\0' ? one->error.data()
                                               : curl().easy_strerror(code);
  if (reply.end == TransferEnd::kAnswered && tunnel == kWantsPassword)
    reply.status = kWantsPassword;
  note_times(*one);
  reply.body_bytes = one->body.received();
  curl().multi_remove_handle(multi_, easy);
  done_(std::move(reply));
}

/// True if it begins again, over a new connection: the server closed a kept one just
/// then. libcurl itself repeats what it had sent whole, and gives up what it was
/// sending.
bool CurlTransfers::repeats(Running& one, CURLcode code) const {
  if (code != CURLE_SEND_ERROR || std::exchange(one.is_repeated, true))
    return false;
  CURL* const easy = one.easy.get();
  long connected = 0;
  long received = 0;
  curl_off_t took = 0;
  std::ignore = curl().easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connected);
  std::ignore = curl().easy_getinfo(easy, CURLINFO_HEADER_SIZE, &received);
  std::ignore = curl().easy_getinfo(easy, CURLINFO_TOTAL_TIME_T, &took);
  const auto left =
      one.request.limits.whole -
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::microseconds(took));
  if (connected != 0 || received != 0 || left.count() <= 0)
    return false;
  curl().multi_remove_handle(multi_, easy);
  std::ignore = one.body.seek(0);
  one.moved_then = 0;
  one.slow_since = Clock::now();
  one.error.front() = '\0';
  set(easy, CURLOPT_FRESH_CONNECT, 1L);
  if (!one.request.limits.grows)
    set(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
  return curl().multi_add_handle(multi_, easy) == CURLM_OK;
}

void CurlTransfers::cancel(std::uint64_t id) {
  folders_.erase(id);
  const auto found = running_.find(id);
  if (found == running_.end())
    return;
  curl().multi_remove_handle(multi_, found->second->easy.get());
  running_.erase(found);
}

void CurlTransfers::poll(int descriptor, bool or_write) {
  int still_running = 0;
  std::ignore = curl().multi_perform(multi_, &still_running);
  bool has_ended = false;
  int left = 0;
  while (const CURLMsg* const message = curl().multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE)
      continue;
    void* user = nullptr;
    std::ignore = curl().easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
    const CURLcode code = message->data.result;
    end(static_cast<Running*>(user)->request.id, code);
    has_ended = true;
  }
  for (auto each = folders_.begin(); each != folders_.end();) {
    auto reply = each->second.step();
    const auto next = std::next(each);
    if (reply) {
      folders_.erase(each);
      done_(*std::move(reply));
      has_ended = true;
    }
    each = next;
  }
  if (has_ended || !folders_.empty())
    return;
  const int events = CURL_WAIT_POLLIN | (or_write ? CURL_WAIT_POLLOUT : 0);
  curl_waitfd extra{
      .fd = descriptor, .events = static_cast<short>(events), .revents = 0};
  const int timeout = running_.empty() ? kIdlePollMs : kPollMs;
  std::ignore = curl().multi_poll(multi_, &extra, 1, timeout, nullptr);
}

}  // namespace kiln::remote
