// What `kiln bench` measures: operations at the sizes of LLM training, and the work
// that each is at least.

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

/// Memory that a case wants.
struct BenchTensor {
  std::uint64_t bytes = 0;
  /// What is in it: finite numbers of every type, or zeros.
  enum class Fill : std::uint8_t { kNumbers, kZeros } fill = Fill::kNumbers;
};

/// The work of an operation that memory bounds.
struct BytesMoved {
  /// Inputs read once and outputs written once: what no kernel does with less.
  std::uint64_t least = 0;
  /// Of the bandwidth of a copy, what the design is made to reach on an H100: less
  /// where it moves more than the least.
  double goal = 0;
};

/// The work of an operation that arithmetic bounds.
struct Arithmetic {
  double flops = 0;        // floating-point operations, as its field counts them
  double goal_tflops = 0;  // 10^12 of them a second on the device; 0: none is set there
};

/// Why a case is left out: its backend is not here, or does not run it.
struct BenchRefusal {
  std::string subject;  // what is alike in all such reasons
  std::string reason;
};

struct BenchCase {
  std::string operation;  // "softmax_forward"
  std::string what;       // "causal, 128 x 2048 x 2048"
  ops::DType dtype = ops::DType::kUnset;
  std::string backend = "kiln";  // whose kernels: "cudnn", where another computes it
  std::variant<BytesMoved, Arithmetic> work;
  std::vector<BenchTensor> tensors;
  /// Starts the operation on the device, on tensors at these addresses: null for those
  /// of no bytes.
  std::function<Result<void>(Service&, const Device&, CUstream_st*,
                             std::span<void* const>)>
      start{};
  /// Where it is set, called once before all else: builds and loads what is to run on
  /// the device, and gives the case the tensors and the start that it lacks. Errors:
  /// those of that.
  std::function<Result<std::optional<BenchRefusal>>(Service&, const Device&,
                                                    BenchCase&)>
      prepare{};
};

/// Every operation in each of its dtypes, and every kernel; with the workspaces that
/// are needed and the goals that are set on `device`. Those of cuDNN take a service
/// that was opened with Options::attention kCudnn.
[[nodiscard]] std::vector<BenchCase> bench_cases(const Device& device);

}  // namespace kiln::tools
