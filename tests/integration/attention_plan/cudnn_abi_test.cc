// The numbers that Kiln hands to cuDNN, against cuDNN's own headers.

#include <cudnn_graph.h>
#include <gtest/gtest.h>

#include "cudnn/table.h"

namespace kiln::attention::cudnn {
namespace {

template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return sizeof(ours) == sizeof(theirs) &&
         static_cast<int>(ours) == static_cast<int>(theirs);
}

static_assert(same(Status::kSuccess, CUDNN_STATUS_SUCCESS));
static_assert(same(Status::kSublibraryVersionMismatch,
                   CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH));
static_assert(same(Status::kSerializationVersionMismatch,
                   CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH));
static_assert(same(Status::kArchMismatch, CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH));
static_assert(same(Status::kExecutionFailed, CUDNN_STATUS_EXECUTION_FAILED));
static_assert(same(DescriptorKind::kExecutionPlan,
                   CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
static_assert(same(DescriptorKind::kVariantPack,
                   CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(same(DescriptorKind::kDeviceProperties,
                   CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
static_assert(same(Attribute::kPlanJson,
                   CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION));
static_assert(same(Attribute::kPlanDeviceProperties,
                   CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
static_assert(same(Attribute::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS));
static_assert(same(Attribute::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(same(Attribute::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
static_assert(same(Attribute::kDevicePropertiesJson,
                   CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION));
static_assert(same(AttributeType::kHandle, CUDNN_TYPE_HANDLE));
static_assert(same(AttributeType::kInt64, CUDNN_TYPE_INT64));
static_assert(same(AttributeType::kPointer, CUDNN_TYPE_VOID_PTR));
static_assert(same(AttributeType::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(same(AttributeType::kChar, CUDNN_TYPE_CHAR));

TEST(CudnnAbi, OfKilnsTableIsThatOfCudnnsHeaders) {
  // Deprecated, as every name of a handle's attribute is, and what a plan is loaded
  // with.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  EXPECT_TRUE(same(Attribute::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
#pragma GCC diagnostic pop
}

}  // namespace
}  // namespace kiln::attention::cudnn
