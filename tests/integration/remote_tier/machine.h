// A machine with a cache of its own that asks remote caches, and builds what no
// compiler is needed for.

#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "build/build_options.h"
#include "build/cached_builds.h"
#include "cache/cache.h"
#include "codec/private_key.h"
#include "remote/client/remote.h"
#include "tests/support/paths.h"
#include "tests/support/remote_server.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trusted_keys.h"

namespace kiln::test {

using namespace std::chrono_literals;

inline cache::StoredObject object_of(int number,
                                     const std::string& payload = "\177ELF a cubin") {
  return cache::StoredObject::make(*SampleObject(number, payload)).value();
}

/// Time that also passes when a test says so.
class JumpingClock {
 public:
  [[nodiscard]] remote::TimePoint now() const {
    return std::chrono::steady_clock::now() + jumped_.load();
  }
  void jump(std::chrono::seconds time) { jumped_ = jumped_.load() + time; }

 private:
  std::atomic<std::chrono::seconds> jumped_{0s};
};

/// How a build goes.
struct BuildPlan {
  std::chrono::milliseconds takes{0};
  std::optional<Error> error{};
  bool begins = true;  // a worker is asked
  bool is_as_keyed = true;
  std::chrono::milliseconds passed{};  // of the get, before its fetch
};

/// Thread safety: one thread changes its options, before its first fetch.
class Machine {
 public:
  explicit Machine(std::vector<remote::ServerAddress> servers) {
    options.servers = std::move(servers);
    for (auto& server : options.servers)
      server.mode = server.mode.value_or(remote::Mode::kRead);
    replace_keys(keys, to_text(signing_key().public_key()));
    options.trusted = std::make_shared<cache::KeyFile>(
        cache::real_file_system(), cache::TrustPolicy::of_this_process({}), keys,
        [this] { return clock.now(); });
    options.helper = [] {
      return ChildCommand{.path = paths::built("bin/kiln-remote"),
                          .name = "remote helper"};
    };
    options.wait = 60s;  // no machine is so busy
    options.limits = {.whole = 6s, .slow_for = 2s};
    options.now = [this] { return clock.now(); };
    options.random = [] { return 0.5; };
  }

  /// Of the whole fleet.
  static const PrivateKey& signing_key() {
    static const auto* const key = new PrivateKey(PrivateKey::generate().value());
    return *key;
  }

  /// Its parts, made at the first use.
  CachedBuilds& builds() {
    if (builds_ == nullptr) {
      options.node = node_folder(cache(), "remote");
      if (!options.servers.empty())
        remote_ = std::make_unique<remote::Remote>(options, cache_->counters());
      builds_ = std::make_unique<CachedBuilds>(
          *cache_, BuildConditions{300s, 1U << 30U, {}}, remote_.get());
    }
    return *builds_;
  }
  cache::Cache& cache() {
    if (cache_ == nullptr) {
      cache::CacheOptions opened;
      opened.root = root;
      cache_ = cache::Cache::open(opened);
    }
    return *cache_;
  }
  /// As the end of a process; the counts stay.
  void close() {
    builds_.reset();
    remote_.reset();
  }

  Result<Fetched> fetch(int number, const BuildPlan& plan = {},
                        const std::stop_token& stop = {}) {
    const SampleObject sample(number);
    const Digest key = sample.key();
    if (auto found = builds().find(key, "sm_90a"))
      return *std::move(found);
    return builds().build({.key = key,
                           .target = "sm_90a",
                           .label = "k",
                           .build =
                               [&](const std::stop_token& stopping, auto& on_phase) {
                                 return build(number, plan, stopping, on_phase);
                               },
                           .begun = std::chrono::steady_clock::now() - plan.passed},
                          stop);
  }
  /// True if it comes from a remote, however slow that is, and from no build.
  bool hits(int number) {
    const auto fetched = fetch(number, {.takes = 60s});
    return fetched && fetched->tier == cache::Tier::kRemote;
  }
  /// Where nothing may be built.
  Result<std::optional<Fetched>> find_alone(int number,
                                            Remotes remotes = Remotes::kPatiently,
                                            const std::stop_token& stop = {}) {
    const Digest key = SampleObject(number).key();
    return builds().find_remote(
        {.key = key, .target = "sm_90a", .label = "k", .remotes = remotes}, stop);
  }

  [[nodiscard]] std::uint64_t counted(const std::string& name) {
    const auto counts = cache().counters().snapshot();
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  }
  /// "overtaken", say, of the GETs to all servers.
  [[nodiscard]] std::uint64_t gets(const std::string& result) {
    return counted_below("remote_requests.get." + result + ".");
  }
  /// Whatever their results, also those that a build overtook before they were sent.
  [[nodiscard]] std::uint64_t all_gets() {
    return counted_below("remote_requests.get.");
  }

  const TempDir dir;
  const std::filesystem::path keys = dir.path() / "trusted.pub";
  std::filesystem::path root = dir.path() / "root";
  JumpingClock clock;
  remote::RemoteOptions options;
  std::atomic<int> built = 0;    // builds that were begun
  std::atomic<int> stopped = 0;  // of these

 private:
  [[nodiscard]] std::uint64_t counted_below(const std::string& prefix) {
    std::uint64_t sum = 0;
    for (const auto& [name, count] : cache().counters().snapshot())
      sum += name.starts_with(prefix) ? count : 0;
    return sum;
  }
  Result<NewArtifact> build(int number, const BuildPlan& plan,
                            const std::stop_token& stop,
                            const compile::ProgressCallback& on_phase) {
    ++built;
    if (plan.begins)
      on_phase(compile::BuildPhase::kCompiling);
    const auto until = std::chrono::steady_clock::now() + plan.takes;
    while (std::chrono::steady_clock::now() < until) {
      if (stop.stop_requested()) {
        ++stopped;
        return fail(ErrorCode::kCancelled, "stopped");
      }
      std::this_thread::sleep_for(1ms);
    }
    if (plan.error)
      return tl::unexpected(*plan.error);
    NewArtifact made{std::make_shared<const cache::StoredObject>(object_of(number)),
                     {}};
    if (!plan.is_as_keyed)
      made.mismatch = Error{ErrorCode::kInvalidArgument, "not as keyed"};
    return made;
  }

  std::unique_ptr<cache::Cache> cache_;
  std::unique_ptr<remote::Remote> remote_;
  std::unique_ptr<CachedBuilds> builds_;
};

/// A server that has the objects 0 to `count` - 1, signed.
inline void fill(RemoteServer& server, int count) {
  for (int i = 0; i < count; ++i)
    server.put(SampleObject(i).key(),
               signed_body(object_of(i), Machine::signing_key()));
}

}  // namespace kiln::test
