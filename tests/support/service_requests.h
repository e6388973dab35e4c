// Requests to a service in the test's own process.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "build/build_service.h"
#include "tests/support/temp_dir.h"
#include "util/try.h"

namespace kiln::test {

/// As a host would configure it; the environment is not asked but for KILN_NVRTC and
/// KILN_CUDNN.
inline Config service_config(const std::filesystem::path& cache_dir) {
  Config config;
  config.cache_dir = cache_dir;
  config.jobs = 2;
  if (const char* nvrtc = std::getenv("KILN_NVRTC"))
    config.nvrtc = nvrtc;
  if (const char* cudnn = std::getenv("KILN_CUDNN"))
    config.cudnn = cudnn;
  return config;
}

inline std::unique_ptr<BuildService> open_service(const Config& config) {
  auto service = BuildService::open(config);
  EXPECT_TRUE(service) << service.error().message;
  return service ? *std::move(service) : nullptr;
}

/// The `number`th of many small kernels, all different.
inline Request small_kernel(int number) {
  SourceOptions source;
  source.source =
      "extern \"C\" __global__ void k(int* x) { *x = " + std::to_string(number) +
      "; }\n";
  return Request::from_source(std::move(source));
}

inline Result<KeyedRequest> keyed(BuildService& service, const Request& request,
                                  device::Architecture architecture = {{8, 0}, {}}) {
  const PreparedRequest prepared = KILN_TRY(service.prepare(request));
  return std::get<KeyedRequest>(
      KILN_TRY(service.key(prepared, device::Target{architecture})));
}

inline Result<Fetched> fetch(BuildService& service, const Request& request,
                             const std::stop_token& stop = {}) {
  return service.fetch(KILN_TRY(keyed(service, request)), stop);
}

inline std::uint64_t counted(BuildService& service, cache::Counter counter) {
  return service.cache().counters().get(counter);
}

}  // namespace kiln::test
