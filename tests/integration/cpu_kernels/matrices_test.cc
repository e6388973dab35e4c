// Tensor cores and asynchronous copies of the executor: which lane has which element,
// what a product is, and when a copy happens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/cpu_kernel/cpu_kernel.h"
#include "tests/support/cpu_kernel/executor.h"
#include "tests/support/cpu_kernel/guarded_memory.h"

namespace kiln_cpu {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr std::array kLaneOrders{Order::kAscending, Order::kDescending,
                                 Order::kShuffled};

/// "" or what went wrong.
std::string report(unsigned threads, const std::function<void()>& kernel,
                   Order order = Order::kAscending, unsigned blocks = 1) {
  const kiln::Geometry geometry{.grid = {blocks, 1, 1}, .block = {threads, 1, 1}};
  const auto done = launch(geometry, {.order = order}, kernel);
  return done ? "" : done.error().message;
}

template <typename Element>
Element* shared(std::size_t count) {
  static constexpr SharedTag kTag{"tile"};
  return static_cast<Element*>(shared_array(&kTag, count * sizeof(Element)));
}

using Words = std::array<std::array<unsigned, 4>, 32>;  // by lane

/// Of a tile whose element (row, column) is 8 row + column, where lane l gives row
/// 5 l % 32.
Words loaded(Collective how, Order order) {
  Words all{};
  EXPECT_EQ(
      report(
          32,
          [&] {
            auto* const tile = shared<std::uint16_t>(256);
            for (int i = 0; i < 8; ++i) {
              tile[8 * thread() + i] = static_cast<std::uint16_t>(8 * thread() + i);
            }
            collective(Collective::kSync, 0xffffffffU, 0, 0);
            unsigned words[4];
            matrix_load(how, words, tile + 8 * (5 * thread() % 32));
            std::copy_n(words, 4, all[static_cast<std::size_t>(thread())].begin());
          },
          order),
      "");
  return all;
}

TEST(MatrixLoads, GiveEachLaneItsElements) {
  const auto element = [](unsigned matrix, unsigned row, unsigned column) {
    return 8 * (5 * (8 * matrix + row) % 32) + column;
  };
  for (const Order order : kLaneOrders) {
    const Words plain = loaded(Collective::kMatrixLoad, order);
    const Words transposed = loaded(Collective::kMatrixLoadTransposed, order);
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned m = 0; m < 4; ++m) {
        const unsigned across = lane / 4;
        const unsigned pair = 2 * (lane % 4);
        EXPECT_EQ(plain[lane][m],
                  element(m, across, pair) | element(m, across, pair + 1) << 16);
        EXPECT_EQ(transposed[lane][m],
                  element(m, pair, across) | element(m, pair + 1, across) << 16);
      }
    }
  }
}

/// A row is read when its own lane comes: who has not waited for the others' writing
/// gets what was there before.
TEST(MatrixLoads, DoNotWaitForWritesOfOtherLanes) {
  unsigned first = 0;
  EXPECT_EQ(report(32,
                   [&] {
                     auto* const tile = shared<unsigned>(128);
                     for (int i = 0; i < 4; ++i) {
                       tile[4 * (31 - thread()) + i] = 1;
                     }
                     unsigned words[4];
                     matrix_load(Collective::kMatrixLoad, words, tile + 4 * thread());
                     if (thread() == 0) {
                       first = words[0];
                     }
                   }),
            "");
  EXPECT_EQ(first, 0xffffffffU);
}

TEST(MatrixLoads, ReportARowThatIsNoneOfTheBlock) {
  const auto load = [](const std::function<const void*(unsigned*)>& row) {
    return report(64, [&] {
      auto* const tile = shared<unsigned>(256);
      unsigned words[4];
      matrix_load(Collective::kMatrixLoad, words,
                  thread() == 37 ? row(tile) : tile + 4 * thread());
    });
  };
  EXPECT_EQ(load([](const unsigned* tile) { return tile + 2; }),
            "block 0, thread 37: misaligned access of 16 bytes, byte 8 of the shared "
            "array 'tile', which has 1024 bytes");
  EXPECT_EQ(load([](const unsigned* tile) { return tile + 256; }),
            "block 0, thread 37: matrix_load: not 16 bytes of shared memory: byte 1024 "
            "of the shared array 'tile', which has 1024 bytes");
  const GuardedMemory global("in", 64, {.exact = Side::kBegin});
  EXPECT_EQ(load([&](const unsigned*) { return global.data(); }),
            "block 0, thread 37: matrix_load: not 16 bytes of shared memory: byte 0 of "
            "in, which has 64 bytes");
}

template <std::size_t kRows, std::size_t kColumns>
using Matrix = std::array<std::array<double, kColumns>, kRows>;

struct Product {
  Matrix<16, 16> a{};
  Matrix<16, 8> b{};
  Matrix<16, 8> d{};
};

/// Every element of each is another small integer: exact in both types, as are all
/// sums.
Product integers() {
  Product p;
  for (unsigned i = 0; i < 256; ++i) {
    p.a[i / 16][i % 16] = static_cast<int>(i * 37 % 256) - 128;
  }
  for (unsigned i = 0; i < 128; ++i) {
    p.b[i / 8][i % 8] = static_cast<int>(i * 21 % 128) - 64;
    p.d[i / 8][i % 8] = i * 1000;
  }
  return p;
}

Matrix<16, 8> on_the_host(const Product& p, std::size_t k_size) {
  Matrix<16, 8> d = p.d;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      for (std::size_t k = 0; k < k_size; ++k) {
        d[row][column] += p.a[row][k] * p.b[k][column];
      }
    }
  }
  return d;
}

using Store = unsigned (*)(float);

unsigned to_bf16(float value) {
  return std::bit_cast<unsigned>(value) >> 16;  // exact for what is multiplied here
}

/// How the lanes of a warp make products of fragments.
using Multiply =
    std::function<void(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])>;

Matrix<16, 8> by_a_warp(const Product& p, Store store, const Multiply& multiply,
                        Order order) {
  Matrix<16, 8> out{};
  const auto pair = [store](double low, double high) {
    return store(static_cast<float>(low)) | store(static_cast<float>(high)) << 16;
  };
  EXPECT_EQ(report(
                32,
                [&] {
                  const auto g = static_cast<std::size_t>(thread()) / 4;
                  const auto t = static_cast<std::size_t>(thread()) % 4;
                  const auto a_of = [&](std::size_t row, std::size_t k) {
                    return pair(p.a[row][k], p.a[row][k + 1]);
                  };
                  const auto b_of = [&](std::size_t k) {
                    return pair(p.b[k][g], p.b[k + 1][g]);
                  };
                  const unsigned a[4] = {a_of(g, 2 * t), a_of(g + 8, 2 * t),
                                         a_of(g, 2 * t + 8), a_of(g + 8, 2 * t + 8)};
                  const unsigned b[2] = {b_of(2 * t), b_of(2 * t + 8)};
                  float d[4];
                  for (std::size_t i = 0; i < 4; ++i) {
                    d[i] = static_cast<float>(p.d[g + i / 2 * 8][2 * t + i % 2]);
                  }
                  multiply(d, a, b);
                  for (std::size_t i = 0; i < 4; ++i) {
                    out[g + i / 2 * 8][2 * t + i % 2] = static_cast<double>(d[i]);
                  }
                },
                order),
            "");
  return out;
}

Multiply at_once(Collective how) {
  return [how](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) {
    multiply(how, d, a, b);
  };
}

TEST(Products, AreThoseOfTheMatrices) {
  const Product p = integers();
  for (const Order order : kLaneOrders) {
    EXPECT_EQ(by_a_warp(p, float_to_f16, at_once(Collective::kMultiplyK16F16), order),
              on_the_host(p, 16));
    EXPECT_EQ(by_a_warp(p, to_bf16, at_once(Collective::kMultiplyK16Bf16), order),
              on_the_host(p, 16));
    EXPECT_EQ(by_a_warp(p, float_to_f16, at_once(Collective::kMultiplyK8F16), order),
              on_the_host(p, 8));
    EXPECT_EQ(by_a_warp(p, to_bf16, at_once(Collective::kMultiplyK8Bf16), order),
              on_the_host(p, 8));
  }
}

// As 7.5 makes one of k 16.
TEST(Products, OfTwoHalvesAreTheSameBits) {
  Product p = integers();
  for (auto& row : p.d) {
    for (double& element : row) {
      element =
          static_cast<double>(static_cast<float>(element / 3));  // sums are rounded
    }
  }
  const auto halves = [](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) {
    multiply(Collective::kMultiplyK8F16, d, a, b);
    multiply(Collective::kMultiplyK8F16, d, a + 2, b + 1);
  };
  const auto whole = by_a_warp(p, float_to_f16, at_once(Collective::kMultiplyK16F16),
                               Order::kAscending);
  EXPECT_NE(whole, on_the_host(p, 16)) << "nothing was rounded";
  EXPECT_EQ(by_a_warp(p, float_to_f16, halves, Order::kAscending), whole);
}

TEST(Products, KeepInfinitiesAndTheSmallestNumbers) {
  Product p{};
  p.a[0][0] = 0x1p-24;  // no normal f16
  p.b[0][0] = 0x1p-24;
  p.a[1][3] = std::numeric_limits<double>::infinity();
  p.b[3][0] = 2;
  const auto d = by_a_warp(p, float_to_f16, at_once(Collective::kMultiplyK16F16),
                           Order::kAscending);
  EXPECT_EQ(d[0][0], 0x1p-48);
  EXPECT_EQ(d[1][0], std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(d[1][1])) << "infinity times 0";
}

TEST(Products, AreOfOneShapeAndTypeForTheWholeWarp) {
  EXPECT_THAT(report(32,
                     [] {
                       float d[4] = {};
                       const unsigned words[4] = {};
                       multiply(thread() < 9 ? Collective::kMultiplyK16F16
                                             : Collective::kMultiplyK16Bf16,
                                d, words, words);
                     }),
              "block 0, thread 9: multiply_k16 of bf16 with mask 0xffffffff: lane 8 "
              "waits at multiply_k16 of f16 with mask 0xffffffff");
  EXPECT_THAT(report(16,
                     [] {
                       float d[4] = {};
                       const unsigned words[4] = {};
                       multiply(Collective::kMultiplyK16F16, d, words, words);
                     }),
              HasSubstr("for thread 16 is not in the block"));
  EXPECT_THAT(
      report(32, [] { collective(Collective::kMatrixLoad, 1U << thread(), 0, 0); }),
      HasSubstr("the whole warp takes part"));
}

class Copies : public testing::TestWithParam<Order> {
 protected:
  Copies() {
    for (int i = 0; i < 16; ++i) {
      reinterpret_cast<int*>(in_.data())[i] = 100 + i;
    }
  }
  /// The `piece`-th 16 bytes begin with 100 + 4 * piece.
  [[nodiscard]] const void* piece(int number) const { return in_.data() + 16 * number; }

  /// One thread runs it, with room for four pieces of shared memory.
  void run(const std::function<void(int*)>& kernel) {
    EXPECT_EQ(report(
                  1, [&] { kernel(shared<int>(16)); }, GetParam()),
              "");
  }

  GuardedMemory in_{"in", 64, {.exact = Side::kBegin}};
};

TEST_P(Copies, HappenInTheWaitThatCoversTheirGroup) {
  std::vector<std::vector<int>> seen;
  run([&](int* to) {
    const auto look = [&] { seen.push_back({to[0], to[4], to[8]}); };
    const int poison = to[0];
    std::fill_n(to, 16, 7);
    copy_async(to, piece(0), true);
    copy_commit();
    copy_async(to + 4, piece(1), true);
    copy_commit();
    copy_async(to + 8, piece(2), true);
    look();
    copy_wait(2);
    look();
    copy_wait(1);
    look();
    copy_wait(0);
    look();
    copy_commit();
    copy_wait(0);
    look();
    EXPECT_EQ(seen, (std::vector<std::vector<int>>{{poison, poison, poison},
                                                   {poison, poison, poison},
                                                   {100, poison, poison},
                                                   {100, 104, poison},
                                                   {100, 104, 108}}));
    EXPECT_EQ(to[11], 111);
    EXPECT_EQ(to[12], 7);
  });
}

TEST_P(Copies, ReadTheirSourceInTheWait) {
  run([&](int* to) {
    auto* const from = reinterpret_cast<int*>(in_.data());
    copy_async(to, from, true);
    copy_commit();
    from[1] = 55;
    copy_wait(0);
    EXPECT_EQ(to[1], 55);
  });
}

TEST_P(Copies, OfEmptyGroupsCountAsGroups) {
  run([&](int* to) {
    const int poison = to[0];
    copy_async(to, piece(1), true);
    copy_commit();
    copy_commit();
    copy_wait(2);
    EXPECT_EQ(to[0], poison);
    copy_wait(1);
    EXPECT_EQ(to[0], 104);
  });
}

TEST_P(Copies, OfWhatIsNotThereAreZerosAndReadNothing) {
  run([&](int* to) {
    std::fill_n(to, 8, 7);
    copy_async(to, nullptr, false);
    EXPECT_NE(to[0], 7);
    EXPECT_NE(to[0], 0);
    copy_commit();
    copy_wait(0);
    EXPECT_THAT(std::vector<int>(to, to + 8),
                testing::ElementsAre(0, 0, 0, 0, 7, 7, 7, 7));
  });
}

TEST_P(Copies, ThatNobodyWaitedForNeverHappenNotEvenInTheNextBlock) {
  EXPECT_EQ(report(
                1,
                [&] {
                  int* const to = shared<int>(16);
                  const int poison = to[0];
                  if (block() == 0) {
                    copy_async(to, piece(0), true);
                    copy_commit();
                  } else {
                    copy_commit();
                    copy_wait(0);
                  }
                  EXPECT_EQ(to[0], poison);
                },
                GetParam() == Order::kDescending ? Order::kAscending : GetParam(), 2),
            "");
}

TEST_P(Copies, BelongToTheirThread) {
  std::vector<int> seen(64);
  EXPECT_EQ(report(
                64,
                [&] {
                  int* const to = shared<int>(256);
                  const int poison = to[4 * thread()];
                  copy_async(to + 4 * thread(), piece(thread() % 4), true);
                  copy_commit();
                  if (thread() % 2 == 0) {
                    copy_wait(0);
                  }
                  sync_threads("kernel", 1);
                  const int value = to[4 * thread()];
                  seen[static_cast<std::size_t>(thread())] =
                      value == (thread() % 2 == 0 ? 100 + 4 * (thread() % 4) : poison);
                },
                GetParam()),
            "");
  EXPECT_THAT(seen, Each(1));
}

std::string name_of(const testing::TestParamInfo<Order>& order) {
  return order.param == Order::kAscending    ? "Ascending"
         : order.param == Order::kDescending ? "Descending"
                                             : "Shuffled";
}

INSTANTIATE_TEST_SUITE_P(Orders, Copies, testing::ValuesIn(kLaneOrders), name_of);

TEST(CopyReports, NameTheThreadAndTheMemory) {
  const GuardedMemory global("in", 64, {.exact = Side::kEnd});
  const auto copied = [&](std::ptrdiff_t to, std::ptrdiff_t from,
                          bool is_there = true) {
    return report(32, [=, &global] {
      auto* const tile = shared<std::byte>(512);
      const bool is_it = thread() == 3;
      copy_async(tile + (is_it ? to : 16 * thread()),
                 global.data() + (is_it ? from : 0), is_there);
      copy_commit();
      copy_wait(0);
    });
  };
  EXPECT_EQ(copied(0, 48), "");
  EXPECT_EQ(copied(0, 64), "block 0, thread 3 reads byte 64 of in, which has 64 bytes");
  EXPECT_EQ(copied(0, 64, false), "");
  EXPECT_THAT(copied(8, 0),
              AllOf(HasSubstr("block 0, thread 3: misaligned access of 16"),
                    HasSubstr("byte 8 of the shared array 'tile'")));
  EXPECT_THAT(copied(0, 4),
              AllOf(HasSubstr("block 0, thread 3: misaligned access of 16"),
                    HasSubstr("byte 4 of in")));
  EXPECT_EQ(copied(512, 0),
            "block 0, thread 3: copy_async: not 16 bytes of shared memory: byte 512 of "
            "the shared array 'tile', which has 512 bytes");
}

TEST(CopyReports, TellGlobalFromSharedMemory) {
  GuardedMemory global("out", 64, {});
  EXPECT_EQ(report(1, [&] { copy_async(global.data(), global.data(), true); }),
            "block 0, thread 0: copy_async: not 16 bytes of shared memory: byte 0 of "
            "out, which has 64 bytes");
  EXPECT_EQ(report(1,
                   [] {
                     auto* const tile = shared<std::byte>(32);
                     copy_async(tile, tile + 16, true);
                   }),
            "block 0, thread 0: copy_async: from byte 16 of the shared array 'tile', "
            "which has 32 bytes, which is shared memory");
}

}  // namespace
}  // namespace kiln_cpu
