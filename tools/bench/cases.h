// The cases of `kiln bench`: operations at the sizes of LLM training, each with the
// minimum of work that it takes.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kiln/device.h"
#include "kiln/ops/dtype.h"
#include "kiln/result.h"
#include "kiln/service.h"

namespace kiln::tools {

/// A buffer that a case needs.
struct BenchTensor {
  std::uint64_t bytes = 0;
  /// Its content: finite numbers in every type, or zeros.
  enum class Fill : std::uint8_t { kNumbers, kZeros } fill = Fill::kNumbers;
  bool is_workspace = false;
};

/// The work of a memory-bound operation.
struct BytesMoved {
  /// Inputs read once and outputs written once: the minimum for any kernel.
  std::uint64_t least = 0;
  /// The fraction of a copy's bandwidth that the design should reach on an H100;
  /// smaller if the design moves more than `least`.
  double goal = 0;
};

/// The work of a compute-bound operation.
struct Arithmetic {
  double flops = 0;        // floating-point operations, by the usual count
  double goal_tflops = 0;  // in 10^12 operations per second on this device; 0: none
};

/// Why a case is left out: its backend is missing, or does not run it.
struct BenchRefusal {
  std::string subject;  // equal for all reasons of one kind
  std::string reason;
};

using BenchAddresses = std::span<void* const>;

struct BenchCase {
  std::string operation;  // "softmax_forward"
  std::string what;       // "causal, 128 x 2048 x 2048"
  ops::DType dtype = ops::DType::kUnset;
  std::string backend = "kiln";  // whose kernels run: "kiln" or "cudnn"
  std::variant<BytesMoved, Arithmetic> work;
  std::vector<BenchTensor> tensors;
  /// Starts the operation on the device, on the tensors at these addresses. A tensor of
  /// no bytes has a null address.
  std::function<Result<void>(Service&, const Device&, CUstream_st*, BenchAddresses)>
      start{};
  /// If set, called once before everything else: builds and loads what runs on the
  /// device, and adds the tensors and the start that the case lacks. Errors: those of
  /// building and loading.
  std::function<Result<std::optional<BenchRefusal>>(Service&, const Device&,
                                                    BenchCase&)>
      prepare{};
};

/// Forms that differ from others in arithmetic but not in memory traffic run in this
/// type alone: most of a run's time goes into building kernels.
inline constexpr ops::DType kRareFormDType = ops::DType::kBf16;

[[nodiscard]] inline std::uint64_t bytes_of(ops::DType dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * ops::size_bytes(dtype);
}

void add_memory_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                      const Device& device);
void add_attention_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                         const Device& device);

/// Every operation and every kernel, in each dtype, with the workspaces and the goals
/// for `device`. The cuDNN cases need a service that was opened with Options::attention
/// kCudnn.
[[nodiscard]] std::vector<BenchCase> bench_cases(const Device& device);

}  // namespace kiln::tools
