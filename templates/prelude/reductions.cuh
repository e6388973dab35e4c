// Reductions: every lane gets the same bits, in an order that never changes.

struct kiln_max {
  static constexpr float kNeutral = -kiln_infinity;
  static KILN_FUNCTION float of(float a, float b) { return fmaxf(a, b); }  // drops NaN
};
struct kiln_sum {
  static constexpr float kNeutral = 0.0f;
  static KILN_FUNCTION float of(float a, float b) { return a + b; }
};

/// Over each `kLanes` (a power of two up to 32) neighbouring lanes. The whole warp
/// calls it.
template <typename Op, int kLanes>
KILN_FUNCTION float kiln_reduce_lanes(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value = Op::of(value, kiln_shuffle_xor(value, lanes));
  }
  return value;
}

/// kLanes lanes that work together: a warp or a part of it.
template <int kLanes>
struct kiln_lanes {
  KILN_FUNCTION int size() const { return kLanes; }
  KILN_FUNCTION int rank() const { return kiln_thread() % kLanes; }
  KILN_FUNCTION int number() const { return kiln_thread() / kLanes; }  // in the block
  template <typename Op>
  KILN_FUNCTION float reduce(float value) {
    return kiln_reduce_lanes<Op, kLanes>(value);
  }
  /// Each of the values.
  template <typename Op, int kCount>
  KILN_FUNCTION void reduce_each(float (&values)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = reduce<Op>(values[i]);
    }
  }
};

/// The threads of a block that work together: a multiple of 32, all of them call
/// reduce(). `scratch` is shared, kScratch floats. Two halves taken in turn make one
/// barrier enough: who writes a half again has passed the barrier that follows
/// everybody's reading of it.
struct kiln_block_threads {
  static constexpr int kScratch = 64;
  float* scratch;
  int half = 0;
  KILN_FUNCTION int size() const { return kiln_threads(); }
  KILN_FUNCTION int rank() const { return kiln_thread(); }
  KILN_FUNCTION int number() const { return 0; }
  template <typename Op>
  KILN_FUNCTION float reduce(float value) {
    value = kiln_reduce_lanes<Op, 32>(value);
    if (size() == 32) {
      return value;
    }
    const int lane = rank() % 32;
    if (lane == 0) {
      scratch[half + rank() / 32] = value;
    }
    kiln_sync_threads();
    value = lane < size() / 32 ? scratch[half + lane] : Op::kNeutral;
    half = 32 - half;
    return kiln_reduce_lanes<Op, 32>(value);
  }
  /// Each of the values, with one barrier for all; scratch is kCount * kScratch floats.
  template <typename Op, int kCount>
  KILN_FUNCTION void reduce_each(float (&values)[kCount]) {
    const int lane = rank() % 32;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = kiln_reduce_lanes<Op, 32>(values[i]);
      if (lane == 0 && size() > 32) {
        scratch[i * kScratch + half + rank() / 32] = values[i];
      }
    }
    if (size() == 32) {
      return;
    }
    kiln_sync_threads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool is_there = lane < size() / 32;
      values[i] = is_there ? scratch[i * kScratch + half + lane] : Op::kNeutral;
      values[i] = kiln_reduce_lanes<Op, 32>(values[i]);
    }
    half = 32 - half;
  }
};

/// out[col] = the sum of `parts` rows of cols floats, rounded once; 0 where there are
/// none. Every thread of a block of kThreads calls it; `scratch` is shared, as many
/// floats. kColumns columns a block and turn; the threads of each share its rows.
template <int kThreads, int kColumns, typename T>
KILN_FUNCTION void kiln_sum_columns(T* out, const float* rows, kiln_i64 parts,
                                    kiln_i64 cols, float* scratch) {
  constexpr int kGroups = kThreads / kColumns;
  const int lane = kiln_thread() % kColumns;
  const int group = kiln_thread() / kColumns;
  const kiln_i64 stride = kiln_blocks() * kColumns;
#pragma unroll 1
  for (kiln_i64 base = kiln_block() * kColumns; base < cols; base += stride) {
    const kiln_i64 col = base + lane;
    float sum = 0.0f;
    if (col < cols) {
#pragma unroll 8
      for (kiln_i64 part = group; part < parts; part += kGroups) {
        sum += rows[part * cols + col];
      }
    }
    scratch[kiln_thread()] = sum;
    kiln_sync_threads();
    if (group == 0 && col < cols) {
#pragma unroll
      for (int i = 1; i < kGroups; ++i) {
        sum += scratch[i * kColumns + lane];
      }
      kiln_store(out + col, sum);
    }
    kiln_sync_threads();
  }
}
