#include "tests/simulation/fleet.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remote/breaker.h"
#include "remote/client/node_failures.h"
#include "remote/hedge.h"
#include "remote/pacing.h"
#include "remote/shard.h"
#include "remote/upload_queue.h"

namespace kiln::simulation {
namespace {

using remote::Breaker;
using remote::Hedge;
using remote::Verdict;
using std::chrono::milliseconds;

/// The pauses of who waits for a lock: 1, 2, 4 ... 50 ms. Its first look after `now`.
TimePoint next_look(TimePoint since, TimePoint now) {
  constexpr milliseconds kLongest{50};
  Duration pause = milliseconds(1);
  TimePoint look = since + pause;
  while (look < now && pause < kLongest) {
    pause = std::min<Duration>(pause * 2, kLongest);
    look += pause;
  }
  if (look < now)
    look += (now - look + kLongest - Duration{1}) / kLongest * kLongest;
  return look;
}

class Fleet {
 public:
  explicit Fleet(const Parameters& parameters)
      : is_(parameters),
        events_(parameters.seed),
        server_(events_, server_of(parameters)),
        keys_(keys_of(parameters)),
        on_server_(parameters.kernels, parameters.is_warm),
        building_(parameters.kernels, 0),
        nodes_(parameters.nodes) {}

  Outcome run() {
    for (std::uint32_t n = 0; n < is_.nodes; ++n) start(n);
    events_.run();
    outcome_.requests = server_.requests();
    outcome_.connections = server_.connections();
    return outcome_;
  }

 private:
  struct Node;
  struct Rank {
    Node* node = nullptr;
    std::optional<Breaker> breaker;  // of its process
    TimePoint start{};
    std::uint32_t next = 0;     // kernel
    std::uint32_t running = 0;  // gets
    bool is_connected = false;
    std::optional<TimePoint> first_request_at;
    bool uploads = false;  // one at a time
    remote::UploadQueue<std::uint32_t> queue;
  };
  enum class Kernel : std::uint8_t { kAbsent, kLocked, kThere };
  struct Waiter {
    Rank* rank;
    TimePoint since;
  };
  struct Node {
    std::uint32_t number = 0;
    std::vector<Kernel> kernels;
    std::vector<std::vector<Waiter>> waiters;  // by kernel
    std::uint32_t free_slots = 0;
    std::vector<std::function<void()>> queue;  // for a slot
    std::size_t queue_begin = 0;
    std::optional<Breaker> breaker;  // of the program that fetches packs
    // What its processes tell each other of the server, as remote::NodeFailures does.
    int failures = 0;
    TimePoint last_failure{};
    std::vector<Rank> ranks;
    bool is_connected = false;
    bool has_pack = false;
    std::vector<Rank*> wait_for_pack;
  };
  /// One get of one who holds the lock of a kernel.
  struct Get {
    Rank* rank = nullptr;
    std::uint32_t kernel = 0;
    std::optional<Hedge> hedge;  // empty: the remote is not asked
    std::optional<Breaker::Leave> leave;
    bool is_done = false;
    bool has_slot = false;
  };
  using GetPointer = std::shared_ptr<Get>;

  static ServerParameters server_of(const Parameters& parameters) {
    ServerParameters server = parameters.server;
    if (parameters.way == Way::kSharedFiles)
      server.requests_per_second /= parameters.operations_a_file;
    return server;
  }
  /// Ranks have numbers where there are several.
  [[nodiscard]] bool is_many() const { return is_.nodes * is_.ranks > 1; }
  remote::Random random() {
    return [this] { return events_.chance(); };
  }

  void start(std::uint32_t number) {
    Node& node = nodes_[number];
    node.number = number;
    node.kernels.assign(is_.kernels, Kernel::kAbsent);
    node.waiters.resize(is_.kernels);
    node.free_slots = is_.jobs;
    node.breaker.emplace(random());
    node.ranks.resize(is_.ranks);
    for (Rank& rank : node.ranks) {
      rank.node = &node;
      rank.breaker.emplace(random());
      rank.start = TimePoint{} + remote::scaled(is_.skew, events_.chance());
      events_.at(rank.start, [this, &rank] { begin(rank); });
    }
    if (is_.way == Way::kBroadcast && number == 0)
      broadcast(node);
    if (is_.way == Way::kPack)
      events_.after(remote::start_delay(is_many(), is_.wait, random()),
                    [this, &node] { get_pack(node, 0); });
    if (is_.way == Way::kShardsPack)
      begin_shard(node);
  }

  void begin(Rank& rank) {
    if (is_.way >= Way::kPack) {
      if (!rank.node->has_pack)
        return rank.node->wait_for_pack.push_back(&rank);
      has_one(events_.now() + is_.hit);
      return end(rank, is_.hit * is_.kernels);
    }
    // The pool of a process gets as many at a time as it builds.
    rank.running = is_.jobs;
    for (std::uint32_t i = 0; i < is_.jobs; ++i) next(rank);
  }

  void has_one(TimePoint when) {
    outcome_.first_kernel_s =
        std::max(outcome_.first_kernel_s, in_seconds(when - TimePoint{}));
  }

  void end(Rank& rank, Duration after = {}) {
    const TimePoint when = events_.now() + after;
    outcome_.last_rank_s =
        std::max(outcome_.last_rank_s, in_seconds(when - TimePoint{}));
    outcome_.worst_rank_s =
        std::max(outcome_.worst_rank_s, in_seconds(when - rank.start));
  }

  // A get: disk, lock, remote beside build, publish.

  void next(Rank& rank) {
    if (rank.next == is_.jobs)  // the first of its gets has ended
      has_one(events_.now());
    if (rank.next == is_.kernels) {
      if (--rank.running == 0)
        end(rank);
      return;
    }
    get(rank, rank.next++);
  }

  void get(Rank& rank, std::uint32_t kernel) {
    Node& node = *rank.node;
    switch (node.kernels[kernel]) {
      case Kernel::kThere:
        return events_.after(is_.hit, [this, &rank] { next(rank); });
      case Kernel::kLocked:
        return node.waiters[kernel].push_back({&rank, events_.now()});
      case Kernel::kAbsent:
        node.kernels[kernel] = Kernel::kLocked;
        return hold(rank, kernel);
    }
  }

  void hold(Rank& rank, std::uint32_t kernel) {
    auto get = std::make_shared<Get>();
    get->rank = &rank;
    get->kernel = kernel;
    if (is_.way == Way::kSharedFiles)
      return read_shared(get);
    if (is_.way == Way::kObjects && !rests(*rank.node))
      get->leave = rank.breaker->admit(events_.now());
    if (!get->leave)
      return take_slot(get);
    get->hedge.emplace(events_.now(), is_.wait, Hedge::Build::kAllowed);
    events_.at(get->hedge->deadline(), [this, get] {
      if (!get->is_done)
        step(get, get->hedge->on_time(events_.now()));
    });
    if (!rank.first_request_at)
      rank.first_request_at =
          events_.now() + remote::start_delay(is_many(), is_.wait, random());
    events_.at(*rank.first_request_at, [this, get] { ask(get); });
  }

  void ask(const GetPointer& get) {
    if (get->is_done)
      return;
    Rank& rank = *get->rank;
    const bool connects = !std::exchange(rank.is_connected, true);
    server_.request(
        connects, is_.object_bytes, [this, get] { return on_server_[get->kernel]; },
        [this, get](Reply reply) {
          if (reply == Reply::kFailed)
            get->rank->is_connected = false;
          if (get->is_done)
            return;  // cancelled
          report(*get, reply == Reply::kFailed ? Verdict::kFailed : Verdict::kGood);
          step(get, get->hedge->on_remote(reply == Reply::kYes));
        });
  }

  [[nodiscard]] bool rests(const Node& node) const {
    return node.failures >= remote::NodeFailures::kFailuresToRest &&
           events_.now() - node.last_failure < remote::NodeFailures::kRest;
  }

  void report(const Get& get, Verdict verdict) {
    std::ignore = get.rank->breaker->report(*get.leave, events_.now(), verdict);
    Node& node = *get.rank->node;
    node.failures = verdict == Verdict::kFailed ? node.failures + 1 : 0;
    node.last_failure = events_.now();
  }

  void step(const GetPointer& get, Hedge::Step step) {
    switch (step) {
      case Hedge::Step::kStartBuild:
        return take_slot(get);
      case Hedge::Step::kTakeRemote:
        return done(get);
      case Hedge::Step::kTakeBuild:
        if (get->hedge->is_overtaken())
          report(*get, Verdict::kFailed);
        return done(get);
      case Hedge::Step::kWait:
      case Hedge::Step::kGiveUp:
        return;
    }
  }

  void read_shared(const GetPointer& get) {
    // A file server is no remote: nothing bounds its answer.
    server_.request(
        false, is_.object_bytes, [this, get] { return on_server_[get->kernel]; },
        [this, get](Reply reply) {
          if (reply == Reply::kYes)
            done(get);
          else
            take_slot(get);
        });
  }

  void take_slot(const GetPointer& get) {
    Node& node = *get->rank->node;
    if (node.free_slots == 0)
      return node.queue.push_back([this, get] { take_slot(get); });
    if (get->is_done)
      return give_slot_on(node);
    --node.free_slots;
    get->has_slot = true;
    events_.after(begin_build(get->kernel), [this, get] {
      if (get->is_done)
        return;  // cancelled
      if (get->hedge)
        return step(get, get->hedge->on_build(Hedge::BuildEnd::kEnded));
      done(get);
    });
  }

  void give_slot_on(Node& node) {
    if (node.queue_begin == node.queue.size())
      return;
    auto next_build = std::move(node.queue[node.queue_begin++]);
    next_build();
  }

  void done(const GetPointer& get) {
    get->is_done = true;
    Rank& rank = *get->rank;
    Node& node = *rank.node;
    node.kernels[get->kernel] = Kernel::kThere;
    if (get->has_slot) {
      --building_[get->kernel];
      ++node.free_slots;
      give_slot_on(node);
      if (is_.way == Way::kSharedFiles)
        on_server_[get->kernel] = true;
      if (is_.pushes)
        upload(rank, get->kernel);
    }
    for (const Waiter& waiter : node.waiters[get->kernel]) {
      events_.at(next_look(waiter.since, events_.now()) + is_.hit,
                 [this, other = waiter.rank] { next(*other); });
    }
    node.waiters[get->kernel].clear();
    next(rank);
  }

  void upload(Rank& rank, std::uint32_t kernel) {
    if (!rank.queue.add(keys_[kernel], kernel))
      ++outcome_.dropped_uploads;
    if (!rank.uploads)
      upload_next(rank);
  }

  void upload_next(Rank& rank) {
    const auto next_upload = rank.queue.take();
    rank.uploads = next_upload.has_value();
    if (!next_upload)
      return;
    const std::uint32_t kernel = next_upload->second;
    put(*rank.node, kernel, [this, &rank] { upload_next(rank); });
  }

  /// HEAD first: what is there is not sent again.
  void put(Node& node, std::uint32_t kernel, const std::function<void()>& then) {
    request(
        node, 0, [this, kernel] { return on_server_[kernel]; },
        [this, &node, kernel, then](Reply there) {
          if (there != Reply::kNo)
            return then();
          request(
              node, is_.object_bytes, [] { return true; },
              [this, kernel, then](Reply reply) {
                if (reply == Reply::kYes)
                  on_server_[kernel] = true;
                then();
              });
        });
  }

  // Packs and shards: the requests of a node's `kiln warm` or `kiln pull`.

  /// As Server::request(), by the rules of the breaker: while that is open, kFailed at
  /// once.
  template <typename Answer>
  void request(Node& node, std::uint64_t bytes, Answer answer,
               const std::function<void(Reply)>& done) {
    const auto leave = node.breaker->admit(events_.now());
    if (!leave)
      return done(Reply::kFailed);
    const bool connects = !std::exchange(node.is_connected, true);
    server_.request(connects, bytes, answer, [this, &node, leave, done](Reply reply) {
      node.is_connected = reply != Reply::kFailed;
      std::ignore = node.breaker->report(
          *leave, events_.now(),
          reply == Reply::kFailed ? Verdict::kFailed : Verdict::kGood);
      done(reply);
    });
  }

  [[nodiscard]] std::uint64_t pack_bytes() const {
    return static_cast<std::uint64_t>(static_cast<double>(is_.object_bytes) *
                                      is_.kernels / is_.compression);
  }

  void get_pack(Node& node, int retries) {
    request(
        node, pack_bytes(), [] { return true; },
        [this, &node, retries](Reply reply) {
          if (reply == Reply::kYes)
            return use_pack(node);
          if (retries == remote::kMostRetries || node.breaker->is_open())
            return without_pack(node);
          events_.after(remote::retry_delay(retries + 1, random()),
                        [this, &node, retries] { get_pack(node, retries + 1); });
        });
  }

  /// To the nodes below it, one after the other.
  void broadcast(Node& node) {
    use_pack(node);
    const Duration one =
        seconds(static_cast<double>(pack_bytes()) / is_.server.bytes_per_second);
    for (std::uint32_t i = 1; i <= is_.tree_width; ++i) {
      const std::uint64_t below = std::uint64_t{node.number} * is_.tree_width + i;
      if (below >= is_.nodes)
        return;
      events_.after(one * i + is_.server.round_trip,
                    [this, below] { broadcast(nodes_[below]); });
    }
  }

  void use_pack(Node& node) {
    node.has_pack = true;
    for (Rank* rank : std::exchange(node.wait_for_pack, {})) begin(*rank);
  }

  /// Each node builds for itself.
  void without_pack(Node& node) {
    build_all(node, missing(node), [this, &node] { use_pack(node); });
  }

  [[nodiscard]] std::vector<std::uint32_t> missing(const Node& node) const {
    std::vector<std::uint32_t> list;
    for (std::uint32_t k = 0; k < is_.kernels; ++k) {
      if (node.kernels[k] != Kernel::kThere)
        list.push_back(k);
    }
    return list;
  }

  void begin_shard(Node& node) {
    std::vector<std::uint32_t> own;
    const remote::Shard shard{node.number, is_.nodes};
    for (std::uint32_t k = 0; k < is_.kernels; ++k) {
      if (shard.owns(keys_[k]))
        own.push_back(k);
    }
    // The first node packs: it lives.
    if (node.number != 0 && node.number <= is_.dead_shards * is_.nodes)
      own.clear();
    build_all(node, std::move(own), [this, &node] {
      if (node.number == 0)
        collect(node);
      else
        poll_pack(node, std::make_shared<remote::Poll>(
                            events_.now() + is_.poll + longest_pack(), random()));
    });
  }

  struct Work {
    std::vector<std::uint32_t> list;
    std::function<void()> then;
    std::size_t next = 0;
    std::size_t running = 0;
  };

  /// Builds `list`, `jobs` at a time, and pushes each; then `then`.
  void build_all(Node& node, std::vector<std::uint32_t> list,
                 std::function<void()> then) {
    auto work = std::make_shared<Work>();
    work->list = std::move(list);
    work->then = std::move(then);
    work->running = is_.jobs;
    for (std::uint32_t i = 0; i < is_.jobs; ++i) build_next(node, work);
  }

  void build_next(Node& node, const std::shared_ptr<Work>& work) {
    if (work->next == work->list.size()) {
      if (--work->running == 0)
        work->then();
      return;
    }
    const std::uint32_t kernel = work->list[work->next++];
    events_.after(begin_build(kernel), [this, &node, kernel, work] {
      --building_[kernel];
      node.kernels[kernel] = Kernel::kThere;
      put(node, kernel, [this, &node, work] { build_next(node, work); });
    });
  }

  /// How long it takes.
  Duration begin_build(std::uint32_t kernel) {
    ++outcome_.builds;
    if (on_server_[kernel] || building_[kernel] > 0)
      ++outcome_.wasted;
    ++building_[kernel];
    return remote::scaled(is_.build, 1 + is_.build_spread * (2 * events_.chance() - 1));
  }

  /// How long the first node may build and pack after its wait is over.
  [[nodiscard]] Duration longest_pack() const {
    return is_.poll + is_.build * is_.kernels / is_.jobs;
  }

  /// Gets what the others build until the wait is over, builds the rest, packs.
  void collect(Node& node) {
    const TimePoint deadline = events_.now() + is_.poll;
    auto left = std::make_shared<std::size_t>(0);
    const auto pack = [this, &node] {
      build_all(node, missing(node), [this, &node] {
        request(
            node, pack_bytes(), [] { return true; },
            [this, &node](Reply reply) {
              is_packed_ = reply == Reply::kYes;
              use_pack(node);
            });
      });
    };
    const auto list = missing(node);
    *left = list.size();
    if (list.empty())
      return pack();
    for (const std::uint32_t kernel : list) {
      auto poll = std::make_shared<remote::Poll>(deadline, random());
      poll_kernel(node, kernel, poll, [left, pack] {
        if (--*left == 0)
          pack();
      });
    }
  }

  /// A server that the breaker leaves alone is not waited for.
  void poll_kernel(Node& node, std::uint32_t kernel,
                   const std::shared_ptr<remote::Poll>& poll,
                   const std::function<void()>& then) {
    const auto when = poll->next(events_.now());
    if (!when || node.breaker->is_open())
      return then();
    events_.at(*when, [this, &node, kernel, poll, then] {
      request(
          node, 0, [this, kernel] { return on_server_[kernel]; },
          [this, &node, kernel, poll, then](Reply reply) {
            if (reply != Reply::kYes)
              return poll_kernel(node, kernel, poll, then);
            request(
                node, is_.object_bytes, [] { return true; },
                [&node, kernel, then](Reply got) {
                  if (got == Reply::kYes)
                    node.kernels[kernel] = Kernel::kThere;
                  then();
                });
          });
    });
  }

  void poll_pack(Node& node, const std::shared_ptr<remote::Poll>& poll) {
    const auto when = poll->next(events_.now());
    if (!when || node.breaker->is_open())
      return without_pack(node);
    events_.at(*when, [this, &node, poll] {
      request(
          node, 0, [this] { return is_packed_; },
          [this, &node, poll](Reply reply) {
            if (reply == Reply::kYes)
              get_pack(node, 0);
            else
              poll_pack(node, poll);
          });
    });
  }

  const Parameters is_;
  Events events_;
  Server server_;
  const std::vector<Digest> keys_;
  std::vector<bool> on_server_;
  std::vector<std::uint32_t> building_;  // nodes that build it now, by kernel
  std::vector<Node> nodes_;
  bool is_packed_ = false;
  Outcome outcome_;
};

}  // namespace

Outcome run(const Parameters& parameters) {
  return Fleet(parameters).run();
}

}  // namespace kiln::simulation
