#include "kiln/ops/dtype.h"

#include "interface/enumeration_words.h"

namespace kiln::ops {

std::string_view to_string(DType dtype) {
  return word_of(dtype);
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
