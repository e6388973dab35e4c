// libkiln-nvtx-tool.so: a profiler that NVTX opens by NVTX_INJECTION64_PATH. Appends a
// line to the file KILN_NVTX_LOG for each range of a domain: "push <message>", "pop".

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace {

void note(const std::string& line) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment of a test
  if (const char* const path = std::getenv("KILN_NVTX_LOG"))
    std::ofstream(path, std::ios::app) << line << '\n';
}

nvtxDomainHandle_t create(const char* name) {
  note(std::string("domain ") + name);
  static char domain = 0;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
int push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* event) {
  note(std::string("push ") + event->message.ascii);
  return 0;
}
int pop(nvtxDomainHandle_t /*domain*/) {
  note("pop");
  return 0;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): NVTX looks it up by this name
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* const tables =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (tables == nullptr ||
      tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  const auto set = [&](int id, auto* function) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, &create);
  set(NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}
