#include "tools/remote/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "util/quiet_thread.h"
#include "util/try.h"

namespace kiln::tools {

using remote::Answer;
using remote::Method;
using remote::Server;
using remote::Verdict;

Result<void> check_signers(const remote::ServerAddress& server,
                           const std::vector<Signer>& signers) {
  if (server.takes_unsigned || !signers.empty())
    return {};
  return refuse(
      "no machine would take unsigned objects from {}: name a private key by "
      "--sign, or say {};unsigned=1 if all writers of this server are trusted",
      server.base, server.base);
}

Result<void> check_signers(const RemoteRun& run, const std::vector<Signer>& signers) {
  const auto keys = KILN_TRY(run.trusted());
  for (std::size_t i = 0; i < run.server_count(); ++i) {
    KILN_TRY(check_signers(run.address(i), signers));
    if (keys != nullptr && !run.address(i).takes_unsigned &&
        is_any_known(signers, *keys) && !would_believe(signers, *keys))
      return refuse(
          "no machine with these trusted keys would take objects that --sign signs "
          "here "
          "for {}: each object needs signatures by {} keys of KILN_REMOTE_KEYS that "
          "may "
          "sign objects; name more private keys by --sign, or change the lines of the "
          "keys",
          run.address(i).base, keys->signatures);
  }
  return {};
}

Sender::Sender(RemoteRun& run, const cache::Cache& cache, SendOptions options,
               Progress* progress)
    : run_(run),
      cache_(cache),
      options_(std::move(options)),
      progress_(progress),
      totals_(run) {}

Sender::~Sender() {
  {
    const MutexLock lock(mutex_);
    queue_.clear();
  }
  close();
}

void Sender::add(Wanted object) {
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(object));
  changed_.notify_one();
  if (threads_.size() < RemoteRun::kThreads && threads_.size() < queue_.size()) {
    // Without any thread finish() sends.
    if (auto thread = start_quiet_thread([this] { work(); }, Thread::kJoinable))
      threads_.push_back(*std::move(thread));
  }
}

TransferTotals Sender::finish() {
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  work();
  close();
  const MutexLock lock(mutex_);
  for (const auto& [server, key] : sent_) {
    const auto back = run_.stop().stop_requested() || totals_.lost.has_given_up()
                          ? Result<void>()
                          : read_back(server, key);
    if (back)
      continue;
    ++totals_.servers[server].failed;
    totals_.add_problem({.key = key, .label = key.hex(), .arch = ""}, back.error(),
                        run_.address(server).base);
  }
  return std::move(totals_);
}

void Sender::close() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
    threads = std::move(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void Sender::work() {
  for (;;) {
    Wanted object;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !is_closed_) changed_.wait(mutex_);
      if (queue_.empty())
        return;
      object = std::move(queue_.front());
      queue_.pop_front();
    }
    send(object);
  }
}

bool Sender::has_given_up() {
  const MutexLock lock(mutex_);
  return totals_.lost.has_given_up();
}

void Sender::send(const Wanted& object) {
  if (has_given_up())
    return;
  if (progress_ != nullptr)
    progress_->start(object.label);
  std::shared_ptr<const void> share;
  std::optional<cache::StoredObject> read;  // once for all servers, unless one drops it
  for (std::size_t i = 0; i < run_.server_count(); ++i) {
    const auto cache = run_.check_is_cache(i);
    auto sent = cache;
    bool is_lost = false;
    if (cache && share == nullptr)
      share = held_.take(bytes_to_read(cache_, object.key));
    if (cache && !read)
      sent = read_into(read, object.key);
    if (sent) {
      sent = send_to(i, object.key, read);
      is_lost = !sent && sent.error().code == ErrorCode::kIo;
    }
    const MutexLock lock(mutex_);
    if (is_lost && totals_.lost.has_given_up())
      break;  // others have said it
    if (sent || is_lost)
      totals_.lost.count(is_lost);
    if (sent)
      continue;
    // Of a server that is no cache, one word is enough.
    if (++totals_.servers[i].failed == 1 || cache)
      totals_.add_problem(object, std::move(sent).error(), run_.address(i).base);
  }
  if (progress_ != nullptr)
    progress_->finish(object.label, std::nullopt);
}

bool Sender::is_same(std::size_t server, const cache::StoredObject& object,
                     const Answer& there) const {
  const SignatureBlock block = signatures_at_end(there.end_bytes);
  const ByteView own =
      ByteView(there.end_bytes).subspan(0, there.end_bytes.size() - block.size);
  const ByteView file = object.file();
  if (own.empty() || own.size() > file.size() ||
      there.whole_bytes != file.size() + block.size ||
      !std::ranges::equal(own, file.last(own.size())))
    return false;
  if (!judges_signatures(server))
    return true;
  const auto digest = Blake2bHasher::of(file);
  const auto keys = run_.trusted();
  return digest && keys && *keys && check_signed(*digest, block.signatures, **keys);
}

bool Sender::judges_signatures(std::size_t server) const {
  const auto keys = run_.trusted();
  return !run_.address(server).takes_unsigned && keys && *keys &&
         would_believe(options_.signers, **keys);
}

Answer Sender::get(std::size_t server, const Digest& key) {
  return run_.ask(server, Method::kGet, [&](Server& asked, Server::Done done) {
    return asked.get(key, {}, std::move(done), kObjectLimits);
  });
}

Result<Sender::There> Sender::judge(std::size_t server, const Answer& whole) const {
  if (whole.rejected &&
      (whole.rejected != remote::Rejected::kSignature || judges_signatures(server)))
    return There::kBad;
  if (whole.object || whole.rejected)
    return There::kGood;
  return whole.verdict == Verdict::kGood ? Result<There>(There::kNothing)
                                         : tl::unexpected(error_of(whole));
}

Result<Sender::There> Sender::look(std::size_t server,
                                   std::optional<cache::StoredObject>& object) {
  const Digest key = object->key();
  const std::uint64_t size = object->file().size();
  Answer answer = run_.ask(server, Method::kGet, [&](Server& asked, Server::Done done) {
    return asked.get_end(run_.address(server).object_url(key),
                         size - std::min(size, kLargestSignatureBlock), std::move(done),
                         {.most_bytes = size + kLargestSignatureBlock});
  });
  if (answer.is_there || answer.rejected) {
    if (is_same(server, *object, answer))
      return There::kGood;
    object.reset();
    answer = get(server, key);
  }
  return judge(server, answer);
}

Result<void> Sender::read_into(std::optional<cache::StoredObject>& object,
                               const Digest& key) const {
  object = KILN_TRY(sound_object(cache_, key, options_.source));
  return {};
}

Result<void> Sender::send_to(std::size_t server, const Digest& key,
                             std::optional<cache::StoredObject>& object) {
  if (const auto keys = run_.trusted();
      keys && *keys && (*keys)->revoked_objects.contains(key))
    return fail(ErrorCode::kUntrusted, "KILN_REMOTE_KEYS revokes the object");
  There there = There::kNothing;
  if (options_.existing == remote::Existing::kStays)
    there = KILN_TRY(look(server, object));
  if (there == There::kGood) {
    const MutexLock lock(mutex_);
    ++totals_.servers[server].already_there;
    return {};
  }
  if (!object)
    KILN_TRY(read_into(object, key));
  const auto existing =
      there == There::kBad ? remote::Existing::kIsReplaced : options_.existing;
  const Answer answer =
      run_.ask(server, Method::kPut, [&](Server& asked, Server::Done done) {
        return asked.put(*object, options_.signers, std::move(done), kObjectLimits,
                         existing);
      });
  if (!answer.is_there)
    return tl::unexpected(error_of(answer));
  const MutexLock lock(mutex_);
  ++totals_.servers[server].moved;
  totals_.servers[server].replaced += there == There::kBad ? 1 : 0;
  totals_.bytes += answer.bytes;
  sent_.try_emplace(server, key);
  return {};
}

Result<void> Sender::read_back(std::size_t server, const Digest& key) {
  constexpr int kLooks = 3;
  for (int looks = 1;; ++looks) {
    const Answer answer = get(server, key);
    if (answer.verdict == Verdict::kDenied)
      return {};  // whoever may only write cannot look
    if (KILN_TRY(judge(server, answer)) == There::kGood)
      return {};
    // A proxy may still say that it is not there.
    if (looks < kLooks &&
        run_.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(1)))
      continue;
    return fail(ErrorCode::kUnavailable,
                "{} takes objects and does not give them back: it has none, or another "
                "one, for {}. Look into its log, and whether its disk is full",
                run_.address(server).base, key.hex());
  }
}

}  // namespace kiln::tools
