// How the blocks of the activation kernels share a tensor: the choice of every plan of
// that family. The kernels' text says the rest (templates/activation).

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

/// What a backward kernel with a bias does at a time, as kernel.toml has it.
struct TileWork {
  std::int64_t rows_in_flight;  // of a thread
  std::int64_t blocks_per_sm;
};

struct Tiles {
  std::int64_t across;  // tiles side by side: 128 vectors of 16 bytes each
  std::int64_t height;  // rows of a tile: more than one where they are short

  /// Neither rows nor cols is 0.
  static Tiles of(std::int64_t cols, std::size_t element_bytes) {
    constexpr std::int64_t kThreads = 128;
    const std::int64_t groups =
        ceil_div(cols, static_cast<std::int64_t>(16 / element_bytes));
    const std::int64_t across = ceil_div(groups, kThreads);
    const std::int64_t width = ceil_div(ceil_div(groups, across), 8) * 8;
    return {across, kThreads / width};
  }

  /// Into how many parts the rows go where each computes by itself: one turn of the
  /// threads, or two where a bias is loaded for them.
  [[nodiscard]] std::int64_t parts_alone(std::int64_t rows, std::int64_t rows_in_flight,
                                         bool has_bias) const {
    return ceil_div(rows, height * rows_in_flight * (has_bias ? 2 : 1));
  }

  /// Into how many where each part writes sums: as many as make all blocks run at once,
  /// so that none waits for a second turn and little is summed, but at least two turns
  /// of the threads each.
  [[nodiscard]] std::int64_t parts_with_sums(std::int64_t rows, const TileWork& work,
                                             const Device& device) const {
    const std::int64_t resident =
        work.blocks_per_sm * std::max(1, device.multiprocessors);
    return std::clamp(resident / across, std::int64_t{1},
                      ceil_div(rows, height * work.rows_in_flight * 2));
  }
};

/// Blocks that finalize the sums: 8 columns each.
inline std::int64_t finalize_blocks(std::int64_t columns) {
  return ceil_div(columns, 8);
}

/// What all other kernels take last.
template <typename Args>
auto sizes_of(const Args& args, std::int64_t parts) {
  return std::array{value("rows", args.rows), value("cols", args.cols),
                    value("parts", parts)};
}

/// What the kernel takes that finalizes a bias's gradient.
template <typename Args>
auto finalize_arguments(const Args& args, std::int64_t columns, std::int64_t parts) {
  return std::array{writes("dbias", args.dbias, {columns, size_bytes(args.dtype)})
                        .used_if(args.has_bias, kNoBias),
                    value("sums", args.workspace), value("parts", parts),
                    value("cols", columns)};
}

}  // namespace kiln::ops
