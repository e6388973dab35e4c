// The state of a running launch: grid, blocks, warps, fragments of warps. Only the
// thread that launched touches it.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/ptx/interpreter.h"
#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/races.h"

namespace kiln::ptx {

// Generic addresses outside global memory; no process has memory there.
inline constexpr std::uint64_t kWindowMask = 0xff00'0000'0000'0000;
inline constexpr std::uint64_t kSharedWindow = 0x0100'0000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x0200'0000'0000'0000;
inline constexpr std::uint64_t kParamWindow = 0x0300'0000'0000'0000;
inline constexpr std::uint64_t kCodeWindow = 0x0400'0000'0000'0000;

// The results of a device that a kernel can bring about.
inline constexpr int kIllegalAddress = 700;
inline constexpr int kLaunchTimeout = 702;
inline constexpr int kAssertion = 710;
inline constexpr int kIllegalInstruction = 715;
inline constexpr int kMisalignedAddress = 716;
inline constexpr int kInvalidPc = 718;
inline constexpr int kLaunchFailed = 719;
inline constexpr int kNotSupported = 801;

/// A function's registers while it runs, for all lanes of a warp that called it
/// together.
struct Frame {
  const Function* function = nullptr;
  std::unique_ptr<std::byte[]> bytes{};
  std::shared_ptr<Frame> caller{};
  std::size_t return_to = 0;
  const Call* call = nullptr;
  std::uint32_t local_begin = 0;  // in each lane's local memory
  unsigned depth = 0;
};

/// Lanes of a warp at one instruction of one frame.
struct Fragment {
  enum class State : std::uint8_t { kReady, kTogether, kExchange, kBarrier };
  std::size_t at = 0;
  std::uint32_t lanes = 0;
  State state = State::kReady;
  std::shared_ptr<Frame> frame{};
  unsigned barrier = 0;    // that it waits at
  std::uint64_t turn = 0;  // when its last turn was over
};

/// An asynchronous copy under way.
struct PendingCopy {
  unsigned lane = 0;
  unsigned group = 0;
  std::uint32_t to = 0;  // in shared memory
  const std::byte* from = nullptr;
  unsigned bytes = 0;
  unsigned source_bytes = 0;  // the rest becomes zeros
};

/// Copies of a lane that an mbarrier waits for; the lane may leave before.
struct Tracked {
  unsigned warp = 0;
  unsigned lane = 0;
  std::byte* barrier = nullptr;
  std::vector<PendingCopy> copies{};
};

class Block;

class Warp {
 public:
  Warp(Block& block, unsigned index, unsigned threads);

  /// Runs a fragment for a while. False: none can run.
  bool run(std::uint64_t quantum);
  [[nodiscard]] bool is_done() const { return fragments_.empty(); }
  /// Ends the wait at that barrier.
  void release(unsigned barrier);
  /// Where its lanes wait, for people.
  [[nodiscard]] std::string describe_waits() const;

  [[nodiscard]] Block& block() const { return block_; }
  [[nodiscard]] unsigned index() const { return index_; }
  [[nodiscard]] std::uint32_t alive() const { return alive_; }
  /// Of lane 0 among the block's.
  [[nodiscard]] unsigned first_thread() const { return index_ * kLanes; }
  /// A lane's local memory at an address in it; null outside.
  std::byte* local(unsigned lane, std::uint64_t at, std::size_t size);

  /// What the lanes of an exchange left for each other.
  std::array<std::uint64_t, kLanes> exchange{};
  std::uint32_t participants = 0;

  std::vector<PendingCopy> copies{};
  std::array<unsigned, kLanes> groups{};  // committed so far, of each lane

 private:
  [[nodiscard]] std::size_t choose();
  std::size_t merge(std::size_t chosen, bool waiting_alone);
  [[nodiscard]] std::size_t next_join(std::size_t chosen) const;
  void step(std::size_t index, std::uint64_t& left);
  void part_ways(std::size_t index, const Instruction& instruction);
  void wait_for_all(std::size_t index, const Instruction& instruction);
  void meet(std::size_t index, const Instruction& instruction);
  void run_exchange(const Instruction& instruction, std::uint32_t members);
  void wait_at_barrier(std::size_t index, const Instruction& instruction);
  void branch_by_table(std::size_t index, const Instruction& instruction);
  void call(std::size_t index, const Instruction& instruction);
  void leave(std::size_t index);
  void exit(std::size_t index);
  void split(std::size_t index, std::uint32_t lanes, std::size_t at);
  void wake();
  [[nodiscard]] std::shared_ptr<Frame> find_frame(
      const Function& callee, const Call& call,
      const std::shared_ptr<Frame>& caller) const;
  std::shared_ptr<Frame> make_frame(const Function& function,
                                    std::shared_ptr<Frame> caller);
  Lanes lanes(const Fragment& fragment, std::uint32_t mask);

  Block& block_;
  unsigned index_ = 0;
  std::uint32_t alive_ = 0;
  std::vector<Fragment> fragments_;
  std::vector<std::vector<std::byte>> local_;  // by lane
  std::uint64_t turns_ = 0;                    // that were over
  bool is_turn_over_ = false;
};

/// What a launch has for all of its blocks.
struct Grid {
  const Program& program;
  const Launch& launch;
  const Symbols& symbols;
  GlobalMemory& memory;
  const Schedule& schedule;
  const Checks& checks;
  Report& report;
  const Function* entry = nullptr;
  std::size_t shared_bytes = 0;
  /// The constants of each function, with addresses.
  std::map<const Function*, std::vector<std::byte>> constants{};
  Noise random;
  std::array<Stretch, 8> known{};  // stretches found lately
  unsigned next_known = 0;
  std::vector<std::unique_ptr<std::byte[]>> heap{};  // of malloc()
  std::map<std::uint64_t, std::size_t> heap_sizes{};

  /// Null where the address is of no memory.
  const Stretch* find(std::uint64_t address);
};

class Block {
 public:
  Block(Grid& grid, Extent index);

  /// Runs each of its warps for a while. False: none could.
  bool run(std::uint64_t quantum);
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] std::string describe_waits() const;

  /// So many threads arrive at a barrier, to wait or not. `expected`: threads, 0 for
  /// all of the block. Once it is complete all who waited go on.
  void arrive(unsigned barrier, unsigned threads, unsigned expected);
  void complete_if_due(unsigned barrier);
  void thread_left();

  struct Barrier {
    unsigned arrived = 0;
    unsigned expected = 0;  // 0: all
    // bar.red: of the predicates
    unsigned count = 0;
    bool all = true;
    bool any = false;
    unsigned result_count = 0;
    bool result_all = true;
    bool result_any = false;
  };

  [[nodiscard]] Extent index() const { return index_; }
  [[nodiscard]] unsigned threads() const { return threads_; }
  /// Of a barrier for Races, where no mbarrier lies.
  static std::uint64_t race_key(unsigned barrier) { return ~std::uint64_t{barrier}; }
  /// True of a place in its shared memory.
  [[nodiscard]] bool has(const std::byte* at) const {
    const std::less<> is_before;
    return !is_before(at, shared.data()) &&
           is_before(at, shared.data() + shared.size());
  }
  [[nodiscard]] Extent thread(unsigned number) const;
  [[nodiscard]] std::string describe_thread(const Warp& warp, unsigned lane) const;
  void note(const std::string& what);

  Grid& grid;
  std::vector<std::byte> shared{};
  std::vector<std::uint8_t> shared_set{};  // not 0 where it was written; empty: unknown
  std::vector<std::unique_ptr<Warp>> warps{};
  std::array<Barrier, 16> barriers{};
  std::vector<Tracked> tracked{};
  Races races;
  Noise random;

 private:
  Extent index_{};
  unsigned threads_ = 0;
};

/// A lane of a warp.
struct Place {
  const Block& block;
  const Warp& warp;
  unsigned lane;
};

/// `visit(lane)` for each lane of the mask, from any on: what they do one after the
/// other.
template <typename Visit>
void in_some_order(const Lanes& lanes, const Visit& visit) {
  Block& block = *lanes.block;
  const unsigned first = block.grid.schedule.seed == 0
                             ? 0
                             : static_cast<unsigned>(block.random.below(kLanes));
  for (unsigned i = 0; i < kLanes; ++i) {
    const unsigned lane = (first + i) % kLanes;
    if ((lanes.mask >> lane & 1U) != 0)
      visit(lane);
  }
}

/// "ld.global.f32 %f1, [%rd2] (kernel.cu:12)"
[[nodiscard]] std::string describe(const Program& program,
                                   const syntax::Statement& statement);

}  // namespace kiln::ptx
