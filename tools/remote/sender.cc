#include "tools/remote/sender.h"

#include <fmt/format.h>

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
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "no machine would take unsigned objects from {}: name a private key by "
          "--sign, or say {};unsigned=1 if all writers of this server are trusted",
          server.base, server.base));
}

Result<void> check_signers(const RemoteRun& run, const std::vector<Signer>& signers) {
  for (std::size_t i = 0; i < run.server_count(); ++i)
    KILN_TRY(check_signers(run.address(i), signers));
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

void Sender::send(const Wanted& object) {
  if (progress_ != nullptr)
    progress_->start(object.label);
  std::optional<cache::StoredObject> read;
  for (std::size_t i = 0; i < run_.server_count(); ++i) {
    auto sent = send_to(i, object.key, read);
    if (sent)
      continue;
    const MutexLock lock(mutex_);
    ++totals_.servers[i].failed;
    totals_.add_problem(object, std::move(sent).error(), run_.address(i).base);
  }
  if (progress_ != nullptr)
    progress_->finish(object.label, std::nullopt);
}

Result<void> Sender::send_to(std::size_t server, const Digest& key,
                             std::optional<cache::StoredObject>& read) {
  if (options_.existing == remote::Existing::kStays) {
    const Answer answer =
        run_.ask(server, Method::kHead, [&](Server& asked, Server::Done done) {
          return asked.head(key, std::move(done));
        });
    if (answer.verdict != Verdict::kGood)
      return tl::unexpected(error_of(answer));
    if (answer.is_there) {
      const MutexLock lock(mutex_);
      ++totals_.servers[server].already_there;
      return {};
    }
  }
  if (!read)
    read = KILN_TRY(sound_object(cache_, key, options_.source));
  const Answer answer =
      run_.ask(server, Method::kPut, [&](Server& asked, Server::Done done) {
        return asked.put(*read, options_.signers, std::move(done), {},
                         options_.existing);
      });
  if (!answer.is_there)
    return tl::unexpected(error_of(answer));
  const MutexLock lock(mutex_);
  ++totals_.servers[server].moved;
  totals_.bytes += answer.bytes;
  return {};
}

}  // namespace kiln::tools
