// What a request was answered with: for each service and device its own, weakly held.

#include "request/answers.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kiln::request {
namespace {

TEST(Answers, AreFoundByEveryCopyForTheirServiceAndDeviceAlone) {
  const Request request("a", {});
  const Request copy = request;
  const auto one = std::make_shared<const int>(1);
  Answers::keep(request, {7, 0}, one, Holding::kWeakly);
  EXPECT_EQ(Answers::find<int>(copy, {7, 0}), one);
  EXPECT_EQ(Answers::find<int>(copy, {7, 1}), nullptr);
  EXPECT_EQ(Answers::find<int>(copy, {8, 0}), nullptr);
  EXPECT_EQ(Answers::find<int>(Request("a", {}), {7, 0}), nullptr);
}

TEST(Answers, HeldWeaklyGoWithTheirOwnerAndCanBeGivenAgain) {
  const Request request("a", {});
  auto first = std::make_shared<const int>(1);
  Answers::keep(request, {7, 0}, first, Holding::kWeakly);
  first.reset();
  EXPECT_EQ(Answers::find<int>(request, {7, 0}), nullptr);
  const auto second = std::make_shared<const int>(2);
  Answers::keep(request, {7, 0}, second, Holding::kWeakly);
  EXPECT_EQ(Answers::find<int>(request, {7, 0}), second);
}

TEST(Answers, HeldStronglyLiveAsLongAsTheRequest) {
  std::weak_ptr<const int> seen;
  {
    const Request request("a", {});
    auto answer = std::make_shared<const int>(1);
    seen = answer;
    Answers::keep(request, {7, 0}, answer, Holding::kStrongly);
    answer.reset();
    EXPECT_NE(Answers::find<int>(request, {7, 0}), nullptr);
  }
  EXPECT_TRUE(seen.expired());
}

TEST(Answers, CanBeReadWhileOthersAreAdded) {
  constexpr int kDevices = 64;
  const Request request("a", {});
  std::vector<std::shared_ptr<const int>> answers;
  for (int i = 0; i < kDevices; ++i) answers.push_back(std::make_shared<const int>(i));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kDevices; i += 4)
        Answers::keep(request, {7, i}, answers[static_cast<std::size_t>(i)],
                      Holding::kWeakly);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < kDevices; ++i) {
        const auto found = Answers::find<int>(request, {7, i});
        EXPECT_TRUE(found == nullptr || *found == i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kDevices; ++i) EXPECT_EQ(*Answers::find<int>(request, {7, i}), i);
}

}  // namespace
}  // namespace kiln::request
