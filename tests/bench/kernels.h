// Kernels to measure with: requests of the softmax templates, and cubins of a wanted
// size from the real NVRTC.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "build/build_service.h"
#include "cache/object.h"
#include "compile/worker/nvrtc.h"
#include "tests/bench/scratch.h"

namespace kiln::bench {

/// As the environment says, with its cache in `root`.
[[nodiscard]] Result<Config> config_for(const std::filesystem::path& root);

/// A service with that configuration. Errors: as BuildService::open.
[[nodiscard]] Result<std::unique_ptr<BuildService>> open_service(
    const std::filesystem::path& root);

/// One whose cache is in a scratch folder.
struct ScratchService {
  std::shared_ptr<const ScratchFolder> scratch{};
  std::unique_ptr<BuildService> service{};

  [[nodiscard]] std::filesystem::path root() const { return scratch->path() / "cache"; }
};
/// In a folder below `folder`.
[[nodiscard]] Result<ScratchService> scratch_service(
    const std::filesystem::path& folder);

struct KernelRequest {
  Request request;
  device::Architecture architecture;
};

/// The first `count` of kernel x type x row length x architecture; the same ones each
/// time. There are 162 of each architecture.
[[nodiscard]] std::vector<KernelRequest> softmax_requests(std::size_t count);

/// prepare() and key(). Errors: as they; kUnavailable where the target is left out.
[[nodiscard]] Result<KeyedRequest> keyed(BuildService& service,
                                         const KernelRequest& request);

/// The NVRTC that `service` takes, in this process. Errors: as open_nvrtc.
[[nodiscard]] Result<const compile::Nvrtc*> open_nvrtc(BuildService& service);

struct CubinWish {
  device::Architecture architecture;
  std::vector<std::string> entry_points;
  std::size_t bytes;  // it has about as many: code, then a table of constants
};
/// Errors: as compile_here.
[[nodiscard]] Result<Bytes> make_cubin(const compile::Nvrtc& nvrtc,
                                       const CubinWish& wish);

/// As it is stored after a build. Errors: as StoredObject::make.
[[nodiscard]] Result<cache::StoredObject> make_object(const CubinWish& wish,
                                                      ByteView cubin, Fields preimage);

/// A cache in `root` that checks images as a service's does.
[[nodiscard]] Result<std::unique_ptr<cache::Cache>> open_cache(
    const std::filesystem::path& root);

}  // namespace kiln::bench
