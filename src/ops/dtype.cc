#include "kiln/ops/dtype.h"

namespace kiln::ops {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kUnset:
      break;
  }
  return "unset";
}

std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBf16:
      return 2;
    case DType::kF32:
      return 4;
    case DType::kUnset:
      break;
  }
  return 0;
}

}  // namespace kiln::ops
