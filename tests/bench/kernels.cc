#include "tests/bench/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "build/build_options.h"
#include "build/settings.h"
#include "compile/worker/nvrtc_compile.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

constexpr std::array kKernels{"scaled_softmax_fwd",
                              "scaled_softmax_bwd",
                              "scaled_masked_softmax_fwd",
                              "scaled_masked_softmax_bwd",
                              "scaled_upper_triang_masked_softmax_fwd",
                              "scaled_upper_triang_masked_softmax_bwd"};
constexpr std::array kTypes{"f16", "bf16", "f32"};
constexpr std::array kRows{"32",   "64",   "128",  "256", "512",
                           "1024", "2048", "4096", "any"};
constexpr std::array<device::ComputeCapability, 7> kCapabilities{
    {{9, 0}, {8, 0}, {8, 6}, {8, 9}, {7, 5}, {10, 0}, {12, 0}}};

Result<Bytes> compile_cubin(const compile::Nvrtc& nvrtc, const CubinWish& wish,
                            std::size_t padding) {
  compile::CompileJob job;
  job.target = {wish.architecture, device::ImageKind::kCubin};
  job.options = {"--gpu-architecture=" + to_string(job.target)};
  for (const std::string& name : wish.entry_points) {
    job.source += fmt::format(
        "extern \"C\" __global__ void {}(float* x) {{ x[threadIdx.x] *= 3; }}\n", name);
  }
  if (padding > 0)
    job.source += fmt::format(
        "extern \"C\" __device__ unsigned char table[{}] = {{1}};\n", padding);
  return KILN_TRY(compile::compile_here(
                      nvrtc, job,
                      std::chrono::steady_clock::now() + std::chrono::minutes(5), {}))
      .image;
}

}  // namespace

Result<Config> config_for(const std::filesystem::path& root) {
  Config config = KILN_TRY(settings({}, process_environment()));
  config.cache_dir = root;
  return config;
}

Result<std::unique_ptr<BuildService>> open_service(const std::filesystem::path& root) {
  return BuildService::open(KILN_TRY(config_for(root)));
}

Result<ScratchService> scratch_service(const std::filesystem::path& folder) {
  ScratchService made{.scratch = KILN_TRY(ScratchFolder::make(folder))};
  made.service = KILN_TRY(open_service(made.root()));
  return made;
}

std::vector<KernelRequest> softmax_requests(std::size_t count) {
  std::vector<KernelRequest> requests;
  for (const device::ComputeCapability capability : kCapabilities) {
    for (const char* kernel : kKernels) {
      for (const char* type : kTypes) {
        for (const char* row : kRows) {
          if (requests.size() == count)
            return requests;
          requests.push_back({Request(kernel, {{"dtype", type}, {"max_cols", row}}),
                              {capability, device::ArchSuffix::kNone}});
        }
      }
    }
  }
  return requests;
}

Result<KeyedRequest> keyed(BuildService& service, const KernelRequest& request) {
  auto key = KILN_TRY(service.key(KILN_TRY(service.prepare(request.request)),
                                  device::Target{request.architecture}));
  if (const auto* skipped = std::get_if<device::TargetSkipped>(&key))
    return fail(ErrorCode::kUnavailable, skipped->reason);
  return std::get<KeyedRequest>(std::move(key));
}

Result<const compile::Nvrtc*> open_nvrtc(BuildService& service) {
  const auto choice = KILN_TRY(service.toolchains().choose(std::nullopt));
  return compile::open_nvrtc({choice->toolchain.nvrtc, choice->toolchain.builtins});
}

Result<Bytes> make_cubin(const compile::Nvrtc& nvrtc, const CubinWish& wish) {
  Bytes bare = KILN_TRY(compile_cubin(nvrtc, wish, 0));
  constexpr std::size_t kTableOverhead = 512;  // its section, symbol and names
  if (bare.size() + kTableOverhead >= wish.bytes)
    return bare;
  return compile_cubin(nvrtc, wish, wish.bytes - bare.size() - kTableOverhead);
}

Result<cache::StoredObject> make_object(const CubinWish& wish, ByteView cubin,
                                        Fields preimage) {
  const std::string target =
      to_string(device::Target{wish.architecture, device::ImageKind::kCubin});
  cache::NewObject object;
  object.target = target;
  object.payload = cubin;
  object.preimage = std::move(preimage);
  object.metadata = {
      .template_name = "scaled_softmax_fwd",
      .params = {{"dtype", "bf16"}, {"max_cols", "any"}},
      .arch = to_string(wish.architecture),
      .toolchain = "nvrtc-13.0-1a2b3c4d",
      .toolchain_build_ids = {std::string(40, 'a'), std::string(40, 'b')},
      .producer = "0.1.0",
      .created_ns = 1'700'000'000'000'000'000,
      .compile_ms = 234,
      .registers = 40,
      .shared_bytes = 0,
      .spill_bytes = 0,
      .entry_points = {},
      .variables = {},
      .min_driver = "580.65"};
  for (const std::string& name : wish.entry_points)
    object.metadata.entry_points.push_back({name, name});
  return cache::StoredObject::make(object);
}

Result<std::unique_ptr<cache::Cache>> open_cache(const std::filesystem::path& root) {
  auto cache = cache::Cache::open(cache_options(KILN_TRY(config_for(root))));
  if (cache->mode() != cache::Mode::kReadWrite)
    return fail(ErrorCode::kUnavailable, cache->mode_reason());
  return cache;
}

}  // namespace kiln::bench
