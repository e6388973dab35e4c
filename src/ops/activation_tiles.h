// How the activation kernels divide a tensor among their blocks. All plans of the
// family use it. templates/activation has the kernels' side.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kiln/device.h"
#include "kiln/ops/dtype.h"
#include "ops/arguments.h"
#include "ops/ceil_div.h"

namespace kiln::ops {

/// How much a backward kernel processes at a time; kernel.toml has the same numbers.
struct TileWork {
  std::int64_t rows_in_flight;  // per thread
  std::int64_t blocks_per_sm;
};

struct Tiles {
  std::int64_t across;  // tiles side by side: 128 vectors of 16 bytes each
  std::int64_t height;  // rows per tile: several if rows are short

  /// `cols` must not be 0; nor must `rows` below.
  static Tiles of(std::int64_t cols, std::size_t element_bytes) {
    constexpr std::int64_t kThreads = 128;
    const std::int64_t groups =
        ceil_div(cols, static_cast<std::int64_t>(16 / element_bytes));
    const std::int64_t across = ceil_div(groups, kThreads);
    const std::int64_t width = ceil_div(ceil_div(groups, across), 8) * 8;
    return {across, kThreads / width};
  }

  /// The number of parts if each part computes by itself: one iteration of the threads,
  /// or two if the threads load a bias.
  [[nodiscard]] std::int64_t parts_alone(std::int64_t rows, std::int64_t rows_in_flight,
                                         bool has_bias) const {
    return ceil_div(rows, height * rows_in_flight * (has_bias ? 2 : 1));
  }

  /// The number of parts if each part writes sums: as many as let all blocks run at
  /// once, so that no block waits for a second wave and there are few sums. But each
  /// part gets at least two iterations of the threads.
  [[nodiscard]] std::int64_t parts_with_sums(std::int64_t rows, const TileWork& work,
                                             const Device& device) const {
    const std::int64_t resident =
        work.blocks_per_sm * std::max(1, device.multiprocessors);
    return std::clamp(resident / across, std::int64_t{1},
                      ceil_div(rows, height * work.rows_in_flight * 2));
  }
};

/// The number of parts that the rows of a backward pass are split into; 0 without
/// elements.
template <typename Args>
std::int64_t parts_of(const Args& args, const TileWork& work, const Device& device) {
  if (args.rows == 0 || args.cols == 0)
    return 0;
  const Tiles tiles = Tiles::of(args.cols, size_bytes(args.dtype));
  return args.has_bias ? tiles.parts_with_sums(args.rows, work, device)
                       : tiles.parts_alone(args.rows, work.rows_in_flight, false);
}

/// The number of blocks that finalize the sums: 8 columns per block.
inline std::int64_t finalize_blocks(std::int64_t columns) {
  return ceil_div(columns, 8);
}

/// The last arguments of all kernels except the finalizing ones.
template <typename Args>
auto sizes_of(const Args& args, std::int64_t parts) {
  return std::array{value("rows", args.rows), value("cols", args.cols),
                    value("parts", parts)};
}

/// The arguments of the kernel that finalizes the gradient of a bias.
template <typename Args>
auto finalize_arguments(const Args& args, std::int64_t columns, std::int64_t parts) {
  return std::array{writes("dbias", args.dbias, {columns, size_bytes(args.dtype)})
                        .used_if(args.has_bias, kNoBias),
                    value("sums", args.workspace), value("parts", parts),
                    value("cols", columns)};
}

}  // namespace kiln::ops
