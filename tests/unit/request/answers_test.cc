// What a request was answered with: for each service and device its own.

#include "request/answers.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace kiln::request {
namespace {

TEST(Answers, AreFoundByEveryCopyForTheirServiceAndDeviceAlone) {
  const Request request("a", {});
  const Request copy = request;
  const int one = 1;
  Answers::add_unowned(request, {7, 0}, &one);
  EXPECT_EQ(Answers::find<int>(copy, {7, 0}), &one);
  EXPECT_EQ(Answers::find<int>(copy, {7, 1}), nullptr);
  EXPECT_EQ(Answers::find<int>(copy, {8, 0}), nullptr);
  EXPECT_EQ(Answers::find<int>(Request("a", {}), {7, 0}), nullptr);
}

TEST(Answers, OfTheRequestsOwnLiveAsLongAsItsLastCopy) {
  std::weak_ptr<const int> seen;
  {
    std::optional<Request> request = Request("a", {});
    const Request copy = *request;
    auto answer = std::make_shared<const int>(1);
    seen = answer;
    Answers::add_owned(*request, {7, 0}, std::move(answer));
    request.reset();
    EXPECT_EQ(Answers::find<int>(copy, {7, 0}), seen.lock().get());
    EXPECT_FALSE(seen.expired());
  }
  EXPECT_TRUE(seen.expired());
}

TEST(Answers, CanBeReadWhileOthersAreAdded) {
  constexpr int kDevices = 64;
  const Request request("a", {});
  std::vector<int> answers(kDevices);
  std::iota(answers.begin(), answers.end(), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kDevices; i += 4)
        Answers::add_unowned(request, {7, i}, &answers[static_cast<std::size_t>(i)]);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < kDevices; ++i) {
        const int* const found = Answers::find<int>(request, {7, i});
        EXPECT_TRUE(found == nullptr || *found == i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kDevices; ++i) EXPECT_EQ(*Answers::find<int>(request, {7, i}), i);
}

}  // namespace
}  // namespace kiln::request
