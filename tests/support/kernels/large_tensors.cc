#include "tests/support/kernels/large_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ops/plans.h"
#include "tests/support/kernels/guarded_memory.h"
#include "tests/support/kernels/run_plan.h"

namespace kiln_cpu {
namespace {

using kiln::Device;
using kiln::ops::Access;
using kiln::ops::Argument;

constexpr std::int64_t kLastBlocks = 8;
constexpr int kUnwritten = 0xFF;  // each byte: a NaN

/// So many multiprocessors that each block has one turn.
Device large_device() {
  return planned_device({9, 0}, 1 << 30);
}

template <typename Args>
std::int64_t& rows_of(Args& args) {
  if constexpr (requires { args.rows; })
    return args.rows;
  else
    return args.batch;
}

/// The tensors of `args`, with `more` rows.
template <typename Args>
std::vector<Argument> tensors_of(Args args, std::int64_t more) {
  rows_of(args) += more;
  if constexpr (requires { args.workspace; }) {
    args.workspace = nullptr;
    args.workspace_bytes = 0;
  }
  std::vector<Argument> all;
  EXPECT_TRUE(
      kiln::ops::plan(args, large_device(), kiln::ops::Pointers::listed_in(all)));
  std::erase_if(all, [](const Argument& argument) {
    return argument.begin == nullptr ||
           (argument.access != Access::kReads && argument.access != Access::kWrites);
  });
  return all;
}

/// A tensor of the small call as the last rows of a large one.
class LargeTensor {
 public:
  LargeTensor(const Argument& small, std::uint64_t large_bytes, std::uint64_t row_bytes)
      : small_(small),
        row_bytes_(row_bytes),
        memory_(std::string(small.label), large_bytes, {}),
        tail_(memory_.data() + large_bytes - small.size_bytes) {
    if (is_written()) {
      std::memset(memory_.data(), kUnwritten, row_bytes_);
      std::memset(tail_, kUnwritten, small.size_bytes);
    } else {
      std::memcpy(tail_, small.begin, small.size_bytes);
    }
  }

  [[nodiscard]] const void* of_small() const { return small_.begin; }
  [[nodiscard]] void* data() { return memory_.data(); }
  [[nodiscard]] bool is_written() const { return small_.access == Access::kWrites; }

  void expect_as_small() {
    SCOPED_TRACE(small_.label);
    const std::size_t element = small_.element_bytes;
    const std::vector<unsigned char> unwritten(element, kUnwritten);
    const auto* const want = static_cast<const std::byte*>(small_.begin);
    const auto is_written_at = [&](std::size_t at) {
      return std::memcmp(tail_ + at, unwritten.data(), element) != 0;
    };
    EXPECT_TRUE(is_written_at(small_.size_bytes - element));
    std::uint64_t written = 0;
    for (std::size_t at = 0; at < small_.size_bytes; at += element) {
      written += is_written_at(at) ? element : 0;
      ASSERT_TRUE(!is_written_at(at) ||
                  std::memcmp(tail_ + at, want + at, element) == 0)
          << "element " << at / element << " of the last "
          << small_.size_bytes / element;
    }
    EXPECT_GE(written, std::min(small_.size_bytes, row_bytes_) / 2);  // it has gaps
    EXPECT_TRUE(
        std::all_of(memory_.data(), memory_.data() + row_bytes_,
                    [](std::byte each) { return each == std::byte{kUnwritten}; }))
        << "written where it begins";
  }

 private:
  const Argument small_;
  const std::uint64_t row_bytes_;
  GuardedMemory memory_;
  std::byte* tail_;
};

template <typename Args>
void expect_same(const Args& small) {
  const std::vector<Argument> once = tensors_of(small, 0);
  const std::vector<Argument> one_more = tensors_of(small, 1);
  std::uint64_t cols = 1U << 30U;  // the fewest of a matrix
  for (std::size_t i = 0; i < once.size(); ++i) {
    const std::uint64_t each =
        (one_more[i].size_bytes - once[i].size_bytes) / once[i].element_bytes;
    if (each > 2)  // else it has a number or two a row
      cols = std::min(cols, each);
  }
  // Alignment stays: a multiple of 16 elements.
  const auto more = static_cast<std::int64_t>(((1ULL << 31U) / cols + 16) / 16 * 16);
  const std::vector<Argument> grown = tensors_of(small, more);
  Args large = small;
  rows_of(large) += more;
  std::vector<std::unique_ptr<LargeTensor>> tensors;
  for (std::size_t i = 0; i < once.size(); ++i) {
    if (grown[i].size_bytes > once[i].size_bytes)
      tensors.push_back(std::make_unique<LargeTensor>(
          once[i], grown[i].size_bytes, one_more[i].size_bytes - once[i].size_bytes));
  }
  for_each_pointer(large, [&](auto*& pointer) {
    for (const auto& tensor : tensors)
      if (pointer == tensor->of_small())
        pointer =
            static_cast<std::remove_reference_t<decltype(pointer)>>(tensor->data());
  });
  if constexpr (requires { large.workspace; }) {
    large.workspace = nullptr;
    large.workspace_bytes = 0;
  }
  std::uint64_t scratch_bytes = 0;
  if constexpr (requires { large.workspace; })
    scratch_bytes = workspace_bytes(large_device(), large).value();
  GuardedMemory scratch("workspace", scratch_bytes, {});
  if constexpr (requires { large.workspace; }) {
    large.workspace = scratch.data();
    large.workspace_bytes = scratch_bytes;
  }
  auto plan = kiln::ops::plan(large, large_device());
  ASSERT_TRUE(plan) << plan.error().message;
  const auto done = run_last_blocks(*std::move(plan), kLastBlocks);
  ASSERT_TRUE(done) << done.error().message;
  for (const auto& tensor : tensors)
    if (tensor->is_written())
      tensor->expect_as_small();
}

}  // namespace

void expect_same_in_large_tensors(const kiln::test::Operation& small) {
  std::visit([](const auto& args) { expect_same(args); }, small);
}

}  // namespace kiln_cpu
