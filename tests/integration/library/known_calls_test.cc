// A call that differs from earlier ones in its addresses alone is launched without a
// plan: with the same arguments, and with every check that depends on addresses. Such a
// call asks for the current context once, and any other once more for each launch.

#include "ops/known_calls.h"

#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "library_service.h"
#include "tests/support/operations/sample_call.h"

namespace kiln {
namespace {

using test::LibraryTest;
using test::SimulatedDriver;

void* address(std::uint64_t at) {
  return reinterpret_cast<void*>(at);
}

/// The name, the geometry and the arguments of each launch.
using Launches = std::vector<std::string>;

class KnownCallsTest : public LibraryTest {
 protected:
  KnownCallsTest() {
    driver_.register_any_kernel(&record, this);
    service_ = open(driver_);
  }

  [[nodiscard]] const Device& device() const { return service_->devices().at(0); }

  /// The launches of one call, and whether it was known.
  struct Done {
    Result<void> result;
    Launches launches;
    bool was_known = false;
  };
  template <typename Call>
  Done done(const Call& call) {
    const auto asked = [&] { return driver_.calls("cuCtxGetCurrent"); };
    const auto before = asked();
    take();
    Done all{.result = call()};
    all.launches = take();
    all.was_known = asked() == before + 1;
    return all;
  }

  template <typename Args, typename Operation>
  void expect_known_at_the_third_call(const Operation& operation, test::Sample sample) {
    const auto call = [&](std::uint64_t at) {
      const Args args = test::sample_call<Args>(sample, at);
      return done([&] { return operation(*service_, device(), nullptr, args); });
    };
    EXPECT_FALSE(call(1U << 30U).was_known);
    EXPECT_FALSE(call(2U << 30U).was_known);
    constexpr std::uint64_t kElsewhere = 5U << 29U;
    const Done known = call(kElsewhere);
    ASSERT_TRUE(known.result) << known.result.error().message;
    EXPECT_TRUE(known.was_known);
    Done planned;
    std::thread([&] { planned = call(kElsewhere); }).join();
    EXPECT_FALSE(planned.was_known) << "a thread has its own";
    EXPECT_THAT(known.launches, testing::Not(testing::IsEmpty()));
    EXPECT_EQ(known.launches, planned.launches);
  }

  SimulatedDriver driver_{"9.0,9.0"};
  std::optional<Service> service_;

 private:
  static int record(const kiln_simulated_launch* launch, void** values,
                    const std::size_t* sizes, std::size_t count, void* user) {
    std::string all = launch->function;
    for (const auto* of : {&launch->grid, &launch->block, &launch->cluster})
      for (const unsigned each : *of) all += ' ' + std::to_string(each);
    all += ' ' + std::to_string(launch->dynamic_shared_bytes);
    for (std::size_t i = 0; i < count; ++i) {
      all += ' ';
      for (std::size_t byte = 0; byte < sizes[i]; ++byte)
        all += std::to_string(static_cast<const unsigned char*>(values[i])[byte]) + ',';
    }
    auto* const test = static_cast<KnownCallsTest*>(user);
    const std::lock_guard lock(test->mutex_);
    test->launches_.push_back(all);
    return 0;
  }
  Launches take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(launches_, {});
  }

  std::mutex mutex_;
  Launches launches_;
};

TEST(MovedTest, APointerIsFarAwayAndOfAnotherAlignment) {
  const ops::SoftmaxBackward args{
      .dx = address(1 << 20), .dy = address(2 << 20), .y = nullptr};
  const ops::SoftmaxBackward elsewhere = ops::moved(args);
  const auto distance = [](const void* from, const void* to) {
    return reinterpret_cast<std::uintptr_t>(to) -
           reinterpret_cast<std::uintptr_t>(from);
  };
  EXPECT_EQ(distance(args.dx, elsewhere.dx), (1ULL << 48U) + 1);
  EXPECT_EQ(distance(args.dy, elsewhere.dy), (2ULL << 48U) + 1);
  EXPECT_EQ(elsewhere.y, nullptr);
}

TEST_F(KnownCallsTest, OfEachOperationAreLaunchedAsPlanned) {
#define KILN_EXPECT(function, Args)                                   \
  for (const test::Sample sample : test::samples_of<ops::Args>()) {   \
    SCOPED_TRACE(#function);                                          \
    expect_known_at_the_third_call<ops::Args>(ops::function, sample); \
  }
  KILN_EACH_OPERATION(KILN_EXPECT)
#undef KILN_EXPECT
}

/// A softmax that is known, of which a test changes one thing.
class KnownSoftmaxTest : public KnownCallsTest {
 protected:
  KnownSoftmaxTest() {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(run(args_).result);
    EXPECT_TRUE(run(args_).was_known);
  }
  Done run(const ops::SoftmaxForward& args, CUstream_st* stream = nullptr) {
    return done(
        [&] { return ops::softmax_forward(*service_, device(), stream, args); });
  }

  ops::SoftmaxForward args_{.dtype = ops::DType::kF32,
                            .y = address(1 << 20),
                            .x = address(2 << 20),
                            .sq = 4,
                            .skv = 64};
};

TEST_F(KnownSoftmaxTest, OfOtherNumbersIsAnother) {
  ops::SoftmaxForward other = args_;
  other.scale = 2;
  EXPECT_FALSE(run(other).was_known);
  other = args_;
  other.sq = 5;
  const Done of_five = run(other);
  EXPECT_FALSE(of_five.was_known);
  EXPECT_NE(of_five.launches, run(args_).launches);
}

TEST_F(KnownSoftmaxTest, IsRefusedForItsAddressesAsAnyOther) {
  const auto refusal = [&](void* y, const void* x) {
    ops::SoftmaxForward other = args_;
    other.y = y;
    other.x = x;
    const Done done = run(other);
    EXPECT_EQ(done.launches.size(), done.result ? 1U : 0U);
    return done.result ? "accepted" : done.result.error().message;
  };
  EXPECT_THAT(refusal(nullptr, args_.x), HasSubstr("y is null"));
  EXPECT_THAT(refusal(args_.y, nullptr), HasSubstr("x is null"));
  EXPECT_THAT(refusal(args_.y, address((2 << 20) + 2)),
              HasSubstr("no multiple of an element's 4 bytes"));
  EXPECT_THAT(refusal(args_.y, args_.y), HasSubstr("y overlaps x"));
  // 4 x 64 floats: 1024 bytes.
  EXPECT_THAT(refusal(args_.y, address((1 << 20) + 1020)), HasSubstr("y overlaps x"));
  EXPECT_THAT(refusal(args_.y, address((1 << 20) - 1020)), HasSubstr("y overlaps x"));
  EXPECT_EQ(refusal(args_.y, address((1 << 20) + 1024)), "accepted");
}

TEST_F(KnownSoftmaxTest, IsRefusedInAStreamOfAnotherDevice) {
  const auto create = driver_.find<int(CUstream_st**, unsigned)>("cuStreamCreate");
  const auto retain = driver_.find<int(CUctx_st**, int)>("cuDevicePrimaryCtxRetain");
  const auto make_current = driver_.find<int(CUctx_st*)>("cuCtxSetCurrent");
  ASSERT_TRUE(create != nullptr && retain != nullptr && make_current != nullptr);
  CUctx_st* of_one = nullptr;
  CUstream_st* stream = nullptr;
  ASSERT_EQ(retain(&of_one, 1), 0);
  ASSERT_EQ(make_current(of_one), 0);
  ASSERT_EQ(create(&stream, 0), 0);
  const Done refused = run(args_, stream);
  EXPECT_THAT(refused.launches, testing::IsEmpty());
  ASSERT_FALSE(refused.result);
  EXPECT_THAT(refused.result.error().message, HasSubstr("the stream is of device 1"));
  // The null stream is that of the operation's device, whichever is current.
  EXPECT_TRUE(run(args_).result);
  EXPECT_EQ(driver_.launches().back().device, 0);
}

TEST_F(KnownSoftmaxTest, OfAnotherDeviceIsAnother) {
  const Done on_one = done([&] {
    return ops::softmax_forward(*service_, service_->devices().at(1), nullptr, args_);
  });
  EXPECT_TRUE(on_one.result);
  EXPECT_FALSE(on_one.was_known);
  EXPECT_EQ(driver_.launches().back().device, 1);
}

TEST_F(KnownSoftmaxTest, ReportsTheDriversError) {
  ASSERT_EQ(driver_.inject("cuLaunchKernel", 1, 1), 0);
  const Done failed = run(args_);
  ASSERT_FALSE(failed.result);
  EXPECT_EQ(failed.result.error().code, ErrorCode::kDevice);
  EXPECT_THAT(failed.result.error().message, HasSubstr("cuLaunchKernel"));
  EXPECT_TRUE(run(args_).result);
}

TEST_F(KnownSoftmaxTest, CountsAsAHitInMemory) {
  const std::uint64_t before = service_->statistics().memory_hits;
  EXPECT_TRUE(run(args_).was_known);
  EXPECT_EQ(service_->statistics().memory_hits, before + 1);
}

TEST_F(KnownSoftmaxTest, KeepsNothingLoadedWhenItsServiceIsClosed) {
  service_.reset();
  EXPECT_EQ(driver_.alive(KILN_SIMULATED_MODULES), 0U);
  service_ = open(driver_);
  const Done anew = run(args_);
  EXPECT_TRUE(anew.result);
  EXPECT_FALSE(anew.was_known);
}

TEST_F(KnownSoftmaxTest, IsRefusedInAForkedChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto refused = ops::softmax_forward(*service_, device(), nullptr, args_);
    ::_exit(!refused && refused.error().code == ErrorCode::kUnavailable ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kiln
