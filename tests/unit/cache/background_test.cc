#include "cache/background.h"

#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <stop_token>

#include "cache/counters.h"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

TEST(Background, WhatItsWorkThrowsEndsNeitherItNorTheHost) {
  Counters counters;
  int tried = 0;
  Background background(nullptr, nullptr, counters,
                        [&](std::uint64_t /*bytes*/, const std::stop_token&) {
                          ++tried;
                          throw std::bad_alloc();
                        });
  Entry entry;
  entry.size_bytes = 1;
  for (int i = 1; i <= 2; ++i) {
    background.published(entry);
    EXPECT_TRUE(background.flush(10s));
    EXPECT_EQ(tried, i);
  }
}

}  // namespace
}  // namespace kiln::cache
