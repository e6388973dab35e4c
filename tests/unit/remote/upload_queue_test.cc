// The queue of uploads: bounded, in order, each key once, and nothing dropped unseen.

#include "remote/upload_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln::remote {
namespace {

using Queue = UploadQueue<int>;

Digest upload_key(int number) {
  return Digest::of(as_bytes(std::to_string(number)));
}

TEST(UploadQueue, TakesInTheOrderOfArrival) {
  Queue queue;
  EXPECT_FALSE(queue.take());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(queue.add(upload_key(i), i));
  for (int i = 0; i < 5; ++i) {
    const auto taken = queue.take();
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->first, upload_key(i));
    EXPECT_EQ(taken->second, i);
  }
  EXPECT_FALSE(queue.take());
}

TEST(UploadQueue, TheSixtyFifthIsDroppedAndThereIsRoomAgainAfterATake) {
  Queue queue;
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(queue.add(upload_key(i), i));
  for (int i = 64; i < 100; ++i) EXPECT_FALSE(queue.add(upload_key(i), i));
  EXPECT_EQ(queue.size(), 64U);
  EXPECT_EQ(queue.take()->second, 0) << "the oldest stays";
  EXPECT_TRUE(queue.add(upload_key(100), 100));
  EXPECT_FALSE(queue.add(upload_key(101), 101));
}

TEST(UploadQueue, AKeyThatWaitsIsNotAddedAgainAndNotDropped) {
  Queue queue;
  for (int i = 0; i < 64; ++i) queue.add(upload_key(i), i);
  EXPECT_TRUE(queue.add(upload_key(7), 8));
  EXPECT_EQ(queue.size(), 64U);
  queue.take();
  EXPECT_TRUE(queue.add(upload_key(0), 9)) << "it was taken: it may have to go again";
}

TEST(UploadQueue, NothingWaitsOnceAllIsDropped) {
  Queue queue;
  for (int i = 0; i < 64; ++i) queue.add(upload_key(i), i);
  queue.drop_all();
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.add(upload_key(1), 1));
  EXPECT_EQ(queue.take()->second, 1);
}

}  // namespace
}  // namespace kiln::remote
