#include "remote/client/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <utility>

#include "cache/layout.h"
#include "cache/object_header.h"
#include "remote/client/credential_keeper.h"
#include "remote/client/credential_sources.h"
#include "util/ascii.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

static_assert(cache::kFormatVersion == 1, "object_url() has the version in its paths");

enum Status : std::uint32_t {  // NOLINT(performance-enum-size): HTTP's
  kOk = 200,
  kCreated = 201,
  kNoContent = 204,
  kBadRequest = 400,
  kUnauthorized = 401,
  kForbidden = 403,
  kNotFound = 404,
  kMethodNotAllowed = 405,
  kProxyWantsPassword = 407,
  kConflict = 409,
  kGone = 410,
  kPreconditionFailed = 412,
  kTooLargeForIt = 413,
  kNoSuchRange = 416,
  kNotImplemented = 501,
};

/// Into a file that was made or rewound. Returns the bytes.
Result<std::uint64_t> write_signed(const cache::StoredObject& object,
                                   std::span<const Signer> signers,
                                   const BodyFile& file) {
  Bytes block;
  if (!signers.empty()) {
    const Blake2b512 digest = KILN_TRY(Blake2bHasher::of(object.file()));
    std::vector<Signature> signatures;
    for (const Signer& signer : signers)
      signatures.push_back({signer.key, KILN_TRY(signer.sign(digest))});
    block = encode_signatures(signatures);
  }
  KILN_TRY(file.append(object.file()));
  KILN_TRY(file.append(block));
  return object.file().size() + block.size();
}

std::string_view name_of(Method method) {
  constexpr std::array<std::string_view, 3> kNames{"GET", "HEAD", "PUT"};
  return kNames[static_cast<std::size_t>(method)];
}

/// What a status says of a request.
struct Meaning {
  Verdict verdict = Verdict::kFailed;
  bool is_there = false;
  std::string_view advice{};
};

Meaning meaning_of_put(std::uint32_t status) {
  switch (status) {
    case kOk:
    case kCreated:
    case kNoContent:
    case kPreconditionFailed:  // another was first
      return {Verdict::kGood, true};
    case kMethodNotAllowed:
    case kNotImplemented:
      return {Verdict::kDenied, false, ": the server takes no PUT, so say mode=r"};
    case kTooLargeForIt:  // this one
      return {Verdict::kGood, false, ": the object is too large for the server"};
    case kConflict:
      return {Verdict::kFailed, false,
              ": the server makes no folders, so make them beforehand"};
    default:
      return {};
  }
}

Meaning meaning_of(Method method, std::uint32_t status, std::string_view code,
                   bool has_session) {
  // S3 has no status for it, and a HEAD no body that would say so.
  if (status == kBadRequest &&
      (code == "ExpiredToken" || code == "InvalidToken" ||
       code == "TokenRefreshRequired" || (method == Method::kHead && has_session)))
    return {Verdict::kDenied, false,
            ": the session of the credentials seems to have ended"};
  if (status == kUnauthorized || status == kForbidden)
    return {Verdict::kDenied, false,
            ": the credentials of KILN_REMOTE_AUTH do not suffice"};
  if (status == kProxyWantsPassword)
    return {Verdict::kDenied, false, ": the proxy wants a user and a password"};
  if (status == kConflict && code == "BlobAlreadyExists")
    status = kPreconditionFailed;  // as Azure says it
  if (method == Method::kPut)
    return meaning_of_put(status);
  const bool is_head = method == Method::kHead;
  if (status == kOk || (is_head && (status == kCreated || status == kNoContent)))
    return {Verdict::kGood, is_head};
  if (status == kNotFound || status == kGone)
    return {Verdict::kGood, false};
  return {};
}

/// What an answer says without the body of a success. `has_session`: of AWS.
Answer read_status(Method method, TransferReply& reply, bool has_session) {
  Answer answer{.verdict = Verdict::kFailed,
                .whole_bytes = reply.whole_bytes,
                .end = reply.end,
                .status = reply.status,
                .times = reply.times,
                .server_time = reply.server_time};
  if (reply.retry_after_s)
    answer.retry_after = std::chrono::seconds(*reply.retry_after_s);
  if (reply.modified > 0)
    answer.age = std::chrono::seconds(
        (reply.server_time > 0 ? reply.server_time : ::time(nullptr)) - reply.modified);
  if (reply.end != TransferEnd::kAnswered) {
    answer.why = std::move(reply.error);
    if (reply.end == TransferEnd::kTooLarge)
      answer.rejected = Rejected::kSize;
    if (reply.end == TransferEnd::kBodyFile)  // which says nothing of the server
      answer.verdict = Verdict::kAbandoned;
    return answer;
  }
  if (reply.status == 0) {  // it was not sent, for want of credentials
    answer.verdict = Verdict::kDenied;
    answer.why = std::move(reply.error);
    return answer;
  }
  const std::string_view code =
      reply.status >= kBadRequest ? error_code_of(reply.refusal) : std::string_view();
  const auto [verdict, is_there, advice] =
      meaning_of(method, reply.status, code, has_session);
  answer.verdict = verdict;
  answer.is_there = is_there;
  if (verdict != Verdict::kGood || !advice.empty())
    answer.why = fmt::format("it answers {}{}{}{}{}", reply.status,
                             code.empty() ? "" : fmt::format(" ({})", code), advice,
                             reply.error.empty() ? "" : ": ", reply.error);
  return answer;
}

}  // namespace

struct Server::State {
  State(ServerAddress server, ServerFiles files, std::shared_ptr<cache::KeyFile> keys,
        cache::PayloadCheck check, Transfers& by)
      : address(std::move(server)),
        trusted(std::move(keys)),
        payload_check(std::move(check)),
        transfers(by),
        credentials(std::make_shared<CredentialKeeper>(address, std::move(files), by)) {
  }

  /// `done`, and then `files` have the file for the next object, if there was an
  /// answer: only then no helper has it open any more.
  static Done keeping(std::shared_ptr<State> state, SpareFiles State::*files,
                      BodyFile file, Done done) {
    return [state = std::move(state), files, file = std::move(file),
            done = std::move(done)](Answer answer) {
      if (answer.status != 0)
        ((*state).*files).keep(file);
      done(std::move(answer));
    };
  }

  /// `finish` adds to the answer what the body says.
  using Finish = std::function<void(Answer&, std::uint64_t body_bytes)>;
  std::uint64_t start(TransferRequest request, BodyFile body, Finish finish,
                      Done done) {
    if (credentials->may_sign()) {
      const auto digest = body.sha256(request.body_bytes);
      if (!digest)
        return abandon(done, digest.error());
      request.body_sha256 = digest->hex();
    }
    const Method method = request.method;
    const std::string url = request.url;
    const std::uint64_t begun = request.resumes_at;
    const std::uint64_t sent = request.body_bytes;
    const std::uint64_t id = transfers.hold(
        std::move(request), std::move(body),
        [method, url, begun, sent, keeper = credentials, finish = std::move(finish),
         done = std::move(done)](TransferReply reply) {
          Answer answer = read_status(method, reply, keeper->has_session());
          answer.bytes = sent + reply.body_bytes - std::min(begun, reply.body_bytes);
          if (!reply.validator.empty() && answer.status != kNoSuchRange)
            answer.resume = {reply.body_bytes, std::move(reply.validator)};
          if (finish && answer.status == kOk && answer.verdict == Verdict::kGood)
            finish(answer, reply.body_bytes);
          if (!answer.why.empty() && answer.end != TransferEnd::kBodyFile)
            answer.why = fmt::format("{} {}: {}", name_of(method), url, answer.why);
          done(std::move(answer));
        });
    if (id != 0)
      credentials->send(id);
    return id;
  }

  [[nodiscard]] Result<tl::expected<SignedObject, BadBody>> object_in(
      const BodyFile& file, std::uint64_t size, const Digest& key,
      const std::string& target) const {
    const auto keys = KILN_TRY(cache::keys_of(trusted));
    const FileRange body = KILN_TRY(KILN_TRY(file.range()).part(0, size));
    return read_object(body, {.key = key,
                              .target = target,
                              .payload_check = payload_check,
                              .trusted = keys.get(),
                              .takes_unsigned = address.takes_unsigned});
  }

  /// Of what went wrong on this machine.
  static std::uint64_t abandon(const Done& done, const Error& error) {
    done({.verdict = Verdict::kAbandoned,
          .end = TransferEnd::kBodyFile,
          .why = error.message});
    return 0;
  }

  const ServerAddress address;
  const std::shared_ptr<cache::KeyFile> trusted;  // null: nobody is
  const cache::PayloadCheck payload_check;
  Transfers& transfers;
  const std::shared_ptr<CredentialKeeper> credentials;
  SpareFiles received;  // bodies of answers
  SpareFiles sent;      // objects
};

Server::Server(ServerAddress address, ServerFiles files,
               std::shared_ptr<cache::KeyFile> trusted,
               cache::PayloadCheck payload_check, Transfers& transfers)
    : state_(std::make_shared<State>(std::move(address), std::move(files),
                                     std::move(trusted), std::move(payload_check),
                                     transfers)) {}

const ServerAddress& Server::address() const {
  return state_->address;
}

std::uint64_t Server::get(const Digest& key, std::string target, Done done,
                          const TransferLimits& limits, MakeRoom make_room) {
  // No server is blamed for it.
  if (const auto keys = cache::keys_of(state_->trusted); !keys)
    return State::abandon(done, keys.error());
  auto file = state_->received.take();
  if (!file)
    return State::abandon(done, file.error());
  const auto finish = [state = state_, file = *file, key, target = std::move(target),
                       make_room = std::move(make_room)](Answer& answer,
                                                         std::uint64_t size) {
    auto room = make_room ? make_room(size) : nullptr;
    auto object = state->object_in(file, size, key, target);
    if (!object) {
      answer.verdict = Verdict::kAbandoned;
      answer.end = TransferEnd::kBodyFile;
      answer.why = std::move(object.error().message);
    } else if (*object) {
      answer.room = std::move(room);
      answer.object = std::move((*object)->object);
      answer.signers = std::move((*object)->signers);
    } else {
      answer.verdict = Verdict::kFailed;
      answer.rejected = object->error().check;
      answer.is_of_others = object->error().is_of_others;
      answer.why = std::move(object->error().why);
    }
  };
  return state_->start(
      {.method = Method::kGet,
       .url = address().object_url(key),
       .limits = limits,
       .head = {.magic = std::string(cache::header::kMagic),
                .size_at = cache::header::kFileBytes,
                .most_behind = kLargestSignatureBlock}},
      *file, finish, State::keeping(state_, &State::received, *file, std::move(done)));
}

std::uint64_t Server::head(const Digest& key, Done done, const TransferLimits& limits) {
  return state_->start(
      {.method = Method::kHead, .url = address().object_url(key), .limits = limits}, {},
      {}, std::move(done));
}

std::uint64_t Server::put(const cache::StoredObject& object,
                          std::span<const Signer> signers, Done done,
                          const TransferLimits& limits, Existing existing) {
  auto file = state_->sent.take();
  if (!file)
    return State::abandon(done, file.error());
  const auto size = write_signed(object, signers, *file);
  if (!size)
    return State::abandon(done, size.error());
  return state_->start({.method = Method::kPut,
                        .url = address().object_url(object.key()),
                        .limits = limits,
                        .body_bytes = *size,
                        .replaces = existing == Existing::kIsReplaced},
                       *file, {},
                       State::keeping(state_, &State::sent, *file, std::move(done)));
}

std::uint64_t Server::get_file(const std::string& url, BodyFile into,
                               const Resume& from, Done done,
                               const TransferLimits& limits) {
  return state_->start(
      {.method = Method::kGet,
       .url = url,
       .limits = limits,
       .resumes_at = from.bytes,
       .validator = from.validator},
      std::move(into),
      [](Answer& answer, std::uint64_t size) { answer.file_bytes = size; },
      std::move(done));
}

std::uint64_t Server::get_end(const std::string& url, std::uint64_t begin, Done done,
                              const TransferLimits& limits) {
  const auto file = state_->received.take();
  if (!file)
    return State::abandon(done, file.error());
  const auto finish = [file = *file, begin](Answer& answer, std::uint64_t size) {
    answer.is_there = true;
    if (size <= begin)
      return;
    if (auto body = file.read(begin, size - begin))
      answer.end_bytes = *std::move(body);
  };
  return state_->start(
      {.method = Method::kGet, .url = url, .limits = limits, .resumes_at = begin},
      *file, finish, State::keeping(state_, &State::received, *file, std::move(done)));
}

std::uint64_t Server::put_file(const std::string& url, BodyFile file,
                               std::uint64_t size, Done done,
                               const TransferLimits& limits) {
  return state_->start({.method = Method::kPut,
                        .url = url,
                        .limits = limits,
                        .body_bytes = size,
                        .replaces = true},
                       std::move(file), {}, std::move(done));
}

void Server::cancel(std::uint64_t id) {
  state_->transfers.cancel(id);
}

void Server::read_credentials_again() {
  state_->credentials->forget();
}

std::string Server::open_to() const {
  return state_->credentials->open_to();
}

std::string Server::credentials_source() const {
  return state_->credentials->source();
}

}  // namespace kiln::remote
