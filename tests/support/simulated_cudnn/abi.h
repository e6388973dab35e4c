// The functions of cuDNN that this library has, exported by their own names.

#pragma once

#include <type_traits>

#include "cudnn/table.h"

namespace kiln::simulated {

namespace cudnn = attention::cudnn;
using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::Descriptor;
using cudnn::DescriptorKind;
using cudnn::Handle;
using cudnn::Status;

#pragma GCC visibility push(default)
extern "C" {
// A name declared by its function's type.
#define KILN_DECLARE(name, ...) std::type_identity_t<__VA_ARGS__> name;
KILN_CUDNN_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
}
#pragma GCC visibility pop

}  // namespace kiln::simulated
