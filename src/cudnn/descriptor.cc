#include "cudnn/descriptor.h"

#include <mutex>
#include <utility>

#include "cudnn/table.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::Status;

/// A descriptor under construction, destroyed unless finalize() succeeds.
class Draft {
 public:
  Draft(const CudnnTable& table, std::string_view on) : table_(table), on_(on) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (raw_ != nullptr)
      log_failure(table_, table_.cudnnBackendDestroyDescriptor(raw_),
                  "cudnnBackendDestroyDescriptor", on_);
  }

  Result<void> create(cudnn::DescriptorKind kind) {
    return check(table_.cudnnBackendCreateDescriptor(kind, &raw_),
                 "cudnnBackendCreateDescriptor");
  }

  Result<void> set(Attribute name, AttributeType type, std::size_t count,
                   const void* values) {
    return check(table_.cudnnBackendSetAttribute(
                     raw_, name, type, static_cast<std::int64_t>(count), values),
                 "cudnnBackendSetAttribute");
  }

  Result<void*> finalize() {
    KILN_TRY(check(table_.cudnnBackendFinalize(raw_), "cudnnBackendFinalize"));
    return std::exchange(raw_, nullptr);
  }

 private:
  [[nodiscard]] Result<void> check(Status status, std::string_view call) const {
    return cudnn_result(table_, status, call, on_);
  }

  const CudnnTable& table_;
  const std::string_view on_;
  cudnn::Descriptor raw_ = nullptr;
};

}  // namespace

Result<CudnnDescriptor> CudnnDescriptor::stored_plan(const CudnnHandle& handle,
                                                     std::string_view json,
                                                     std::string_view on) {
  Draft draft(handle.library().table(), on);
  KILN_TRY(draft.create(cudnn::DescriptorKind::kExecutionPlan));
  const cudnn::Handle raw = handle.raw();
  KILN_TRY(draft.set(Attribute::kPlanHandle, AttributeType::kHandle, 1, &raw));
  KILN_TRY(
      draft.set(Attribute::kPlanJson, AttributeType::kChar, json.size(), json.data()));
  CudnnDescriptor made(handle.library(), KILN_TRY(draft.finalize()));
  std::call_once(handle.library().table().first_plan, CudnnLibrary::watch_the_end);
  return made;
}

Result<CudnnDescriptor> CudnnDescriptor::variant_pack(const CudnnLibrary& library,
                                                      std::span<const std::int64_t> ids,
                                                      std::span<void* const> pointers,
                                                      void* workspace,
                                                      std::string_view on) {
  Draft draft(library.table(), on);
  KILN_TRY(draft.create(cudnn::DescriptorKind::kVariantPack));
  KILN_TRY(draft.set(Attribute::kPackPointers, AttributeType::kPointer, pointers.size(),
                     pointers.data()));
  KILN_TRY(
      draft.set(Attribute::kPackIds, AttributeType::kInt64, ids.size(), ids.data()));
  KILN_TRY(
      draft.set(Attribute::kPackWorkspace, AttributeType::kPointer, 1, &workspace));
  return CudnnDescriptor(library, KILN_TRY(draft.finalize()));
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr)
    log_failure(library_.table(), library_.table().cudnnBackendDestroyDescriptor(raw_),
                "cudnnBackendDestroyDescriptor", "");
}

}  // namespace kiln::attention
