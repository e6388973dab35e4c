#include "library/profiler_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/auxv.h>

namespace kiln {
namespace {

/// nullptr without a profiler. NVTX opens the library that NVTX_INJECTION64_PATH names,
/// so a set-uid program does not ask it.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made =
      ::getauxval(AT_SECURE) != 0 ? nullptr : ::nvtxDomainCreateA("kiln");
  return made;
}

}  // namespace

ProfilerRange::ProfilerRange(std::string_view what, std::string_view kernel)
    : is_open_(domain() != nullptr) {
  if (!is_open_)
    return;
  const std::string message = fmt::format("{} {}", what, kernel);
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = message.c_str();
  ::nvtxDomainRangePushEx(domain(), &attributes);
}

ProfilerRange::~ProfilerRange() {
  if (is_open_)
    ::nvtxDomainRangePop(domain());
}

}  // namespace kiln
#else
namespace kiln {

ProfilerRange::ProfilerRange(std::string_view /*what*/, std::string_view /*kernel*/) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace kiln
#endif
