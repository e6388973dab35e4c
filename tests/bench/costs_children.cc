#include "tests/bench/costs_children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "tests/bench/floors.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/unique_fd.h"

namespace kiln::bench {
namespace {

using Arguments = std::vector<std::string>;

std::size_t number(const std::string& text) {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<void> get_hits(const Arguments& arguments) {
  const auto service = KILN_TRY(open_service(arguments.at(0)));
  for (const KernelRequest& request : softmax_requests(number(arguments.at(1)))) {
    const auto fetched = KILN_TRY(service->fetch(KILN_TRY(keyed(*service, request))));
    if (fetched.outcome != FetchOutcome::kHit)
      return fail(ErrorCode::kNotFound, request.request.name() + " was no hit");
  }
  return {};
}

Result<void> key_source(const Arguments& arguments) {
  const auto service = KILN_TRY(open_service(arguments.at(0)));
  const KernelRequest request{Request::from_source({.source = cub_source()}),
                              {{9, 0}, device::ArchSuffix::kNone}};
  // Which NVRTC there is, a process finds out once, whatever it asks for.
  KILN_TRY(service->toolchains().choose(device::Target{request.architecture}));
  const Seconds taken = KILN_TRY(timed([&]() -> Result<void> {
    KILN_TRY(keyed(*service, request));
    return {};
  }));
  fmt::print("{}\n", taken.count());
  return {};
}

Result<void> run_job(const Arguments& arguments) {
  Config config = KILN_TRY(config_for(arguments.at(0)));
  if (arguments.at(2) != "none")
    config.remote.servers = arguments.at(2);
  const auto service = KILN_TRY(BuildService::open(config));
  for (const KernelRequest& request : softmax_requests(number(arguments.at(1))))
    KILN_TRY(service->fetch(KILN_TRY(keyed(*service, request))));
  return {};
}

Result<void> build_cub(const Arguments& arguments) {
  const auto service = KILN_TRY(open_for_cub(arguments.at(0)));
  fmt::print("{}\n", KILN_TRY(cub_build(*service, number(arguments.at(1)))).count());
  return {};
}

Result<void> hash_all(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (const auto bytes = KILN_TRY(read_file(path, key::kMaxHeaderBytes)))
      std::ignore = Digest::of(*bytes);
  }
  return {};
}

/// Does that to each path in a list.
template <typename Look>
Result<void> look_at_files(const Arguments& arguments, const Look& look) {
  const std::string list = KILN_TRY(read_text_file(arguments.at(0), 64U << 20U));
  std::vector<std::string> paths;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = list.find('\n', at);
    paths.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  fmt::print("{}\n", KILN_TRY(timed([&] { return look(paths); })).count());
  return {};
}

/// A number in a file that several processes count up.
Result<std::atomic<std::uint64_t>*> shared_counter(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file)
    return posix_error("open", path, errno);
  void* const at = ::mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                          MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED)
    return posix_error("mmap", path, errno);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  return static_cast<std::atomic<std::uint64_t>*>(at);
}

Result<void> compile_share(const Arguments& arguments) {
  const auto service = KILN_TRY(open_service(arguments.at(0)));
  const auto requests = softmax_requests(number(arguments.at(1)));
  std::atomic<std::uint64_t>& next = *KILN_TRY(shared_counter(arguments.at(2)));
  const compile::Nvrtc& nvrtc = *KILN_TRY(open_nvrtc(*service));
  for (std::size_t i = next++; i < requests.size(); i = next++) {
    const auto job = KILN_TRY(RequestKeys::job(KILN_TRY(keyed(*service, requests[i]))));
    KILN_TRY(compile_bare(nvrtc, job));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BuildService>> open_for_cub(const std::filesystem::path& root) {
  Config config = KILN_TRY(config_for(root));
  config.precompiled_limit_bytes = 2ULL << 30U;
  return BuildService::open(config);
}

Result<Seconds> cub_build(BuildService& service, std::size_t variant) {
  const KernelRequest request{Request::from_source({.source = cub_source(variant)}),
                              {{9, 0}, device::ArchSuffix::kNone}};
  return timed([&]() -> Result<void> {
    const auto fetched = KILN_TRY(service.fetch(KILN_TRY(keyed(service, request))));
    if (fetched.outcome != FetchOutcome::kCompiled)
      return fail(ErrorCode::kInvalidArgument, "this variant was built before");
    return {};
  });
}

Result<void> do_child(std::string_view name, const Arguments& arguments) {
  if (name == kHitsChild)
    return get_hits(arguments);
  if (name == kSourceKeyChild)
    return key_source(arguments);
  if (name == kJobChild)
    return run_job(arguments);
  if (name == kCubChild)
    return build_cub(arguments);
  if (name == kStatChild)
    return look_at_files(arguments, stat_all);
  if (name == kHashChild)
    return look_at_files(arguments, hash_all);
  if (name == kCompileChild)
    return compile_share(arguments);
  return fail(ErrorCode::kInvalidArgument, fmt::format("no child is called {}", name));
}

std::string cub_source(std::size_t variant) {
  return fmt::format(
      "#include <cub/block/block_reduce.cuh>\n"
      "#include <cuda_bf16.h>\n"
      "extern \"C\" __global__ void sum(const float* x, float* out) {{\n"
      "  using Reduce = cub::BlockReduce<float, 256>;\n"
      "  __shared__ typename Reduce::TempStorage storage;\n"
      "  const float total = Reduce(storage).Sum(x[threadIdx.x]);\n"
      "  if (threadIdx.x == 0) *out = total + {};\n"
      "}}\n",
      variant);
}

}  // namespace kiln::bench
