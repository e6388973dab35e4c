#include "remote/client/remote.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>

#include "util/either_stop.h"

namespace kiln::remote {

using Step = Hedge::Step;

namespace {

/// The uploads of a process that ends without destroying its services, as Python does.
class UploadsAtExit {
 public:
  static void add(const std::shared_ptr<Uploads>& uploads) {
    auto* const node = new Node{.uploads = uploads};  // for the rest of the process
    node->next = first().load();
    while (!first().compare_exchange_weak(node->next, node)) {
    }
    static const int registered = std::atexit(end_all);
    std::ignore = registered;  // without it they end as the process does
  }

 private:
  struct Node {
    const OwnerProcess owner{};
    const std::weak_ptr<Uploads> uploads;
    Node* next = nullptr;
  };

  /// Without a lock, which a forked child could find held.
  static std::atomic<Node*>& first() {
    static constinit std::atomic<Node*> node{nullptr};
    return node;
  }

  static void end_all() {
    const auto deadline = std::chrono::steady_clock::now() + Remote::kUploadsAtExit;
    for (const Node* node = first(); node != nullptr; node = node->next) {
      const auto uploads = node->owner.is_this() ? node->uploads.lock() : nullptr;
      if (uploads != nullptr)
        uploads->end(std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now()));
    }
  }
};

}  // namespace

Remote::Remote(RemoteOptions options, cache::Counters& counters) {
  auto servers = std::make_shared<Servers>(std::move(options), counters);
  auto uploads = std::make_shared<Uploads>(servers, counters);
  if (servers->is_any_written())
    UploadsAtExit::add(uploads);
  parts_ = std::make_unique<const Parts>(Parts{std::move(servers), std::move(uploads)});
}

Remote::~Remote() {
  // In a forked child the parent's threads, which are not there, may hold the locks.
  if (owner_.is_this())
    parts_->uploads->end(kUploadsAtExit);
  else
    std::ignore = parts_.release();
}

std::optional<Found> Remote::get(const Digest& key, std::string_view target,
                                 const std::stop_token& stop, const Build& build,
                                 Duration passed) {
  if (!owner_.is_this()) {
    std::ignore = build(stop);
    return std::nullopt;
  }
  const auto lookup = std::make_shared<Lookup>(
      parts_->servers, key, std::string(target), Hedge::Build::kAllowed, passed);
  std::optional<Step> step = lookup->wait(stop);
  Built built = Built::kStopped;
  if (step == Step::kStartBuild) {
    const EitherStop either(stop, lookup->found_it());
    built = build(either.token());
    if (built != Built::kStopped)
      step = lookup->on_build(built == Built::kImpossible ? Hedge::BuildEnd::kImpossible
                                                          : Hedge::BuildEnd::kEnded);
    if (step == Step::kWait)
      std::ignore = lookup->wait(stop);
  }
  auto found = lookup->end();
  // A build that has ended all the same is an answer that needs no publish any more.
  return built == Built::kAnswer ? std::nullopt : std::move(found);
}

std::optional<Found> Remote::get(const Digest& key, std::string_view target,
                                 const std::stop_token& stop) {
  if (!owner_.is_this())
    return std::nullopt;
  const auto lookup = std::make_shared<Lookup>(
      parts_->servers, key, std::string(target), Hedge::Build::kForbidden);
  std::ignore = lookup->wait(stop);
  return lookup->end();
}

void Remote::pass_over(const Digest& key) {
  if (owner_.is_this())
    parts_->servers->pass_over(key);
}

void Remote::upload(Uploads::Object object) {
  if (parts_->servers->is_any_written() && owner_.is_this())
    parts_->uploads->add(std::move(object));
}

}  // namespace kiln::remote
