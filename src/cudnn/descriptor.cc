#include "cudnn/descriptor.h"

#include <mutex>
#include <utility>

#include "util/try.h"

namespace kiln::attention {
using cudnn::Attribute;
using cudnn::AttributeType;

Result<CudnnDescriptor> CudnnDescriptor::make(const CudnnLibrary& library,
                                              cudnn::DescriptorKind kind,
                                              std::initializer_list<Value> values,
                                              std::string_view on) {
  const CudnnTable& table = library.table();
  const auto check = [&](cudnn::Status status, std::string_view call) {
    return cudnn_result(table, status, call, on);
  };
  CudnnDescriptor made(library);
  KILN_TRY(check(table.cudnnBackendCreateDescriptor(kind, &made.raw_),
                 "cudnnBackendCreateDescriptor"));
  for (const auto& [name, type, count, first] : values)
    KILN_TRY(check(table.cudnnBackendSetAttribute(
                       made.raw_, name, type, static_cast<std::int64_t>(count), first),
                   "cudnnBackendSetAttribute"));
  KILN_TRY(check(table.cudnnBackendFinalize(made.raw_), "cudnnBackendFinalize"));
  return made;
}

Result<CudnnDescriptor> CudnnDescriptor::stored_plan(const CudnnHandle& handle,
                                                     std::string_view json,
                                                     std::string_view on) {
  const cudnn::Handle raw = handle.raw();
  CudnnDescriptor made = KILN_TRY(
      make(handle.library(), cudnn::DescriptorKind::kExecutionPlan,
           {{Attribute::kPlanHandle, AttributeType::kHandle, 1, &raw},
            {Attribute::kPlanJson, AttributeType::kChar, json.size(), json.data()}},
           on));
  std::call_once(handle.library().table().first_plan, CudnnLibrary::watch_the_end);
  return made;
}

Result<CudnnDescriptor> CudnnDescriptor::variant_pack(const CudnnLibrary& library,
                                                      std::span<const std::int64_t> ids,
                                                      std::span<void* const> pointers,
                                                      void* workspace,
                                                      std::string_view on) {
  return make(library, cudnn::DescriptorKind::kVariantPack,
              {{Attribute::kPackPointers, AttributeType::kPointer, pointers.size(),
                pointers.data()},
               {Attribute::kPackIds, AttributeType::kInt64, ids.size(), ids.data()},
               {Attribute::kPackWorkspace, AttributeType::kPointer, 1, &workspace}},
              on);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr)
    log_failure(library_.table(), library_.table().cudnnBackendDestroyDescriptor(raw_),
                "cudnnBackendDestroyDescriptor", "");
}

}  // namespace kiln::attention
