// Builds: through a running worker, through a fresh one, and `kiln warm` on all cores.

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "build/artifact.h"
#include "compile/pool/cores.h"
#include "tests/bench/costs_children.h"
#include "tests/bench/floors.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

/// A service, and NVRTC in this process, warm, with one kernel for both to build.
struct Builder : ScratchService {
  const compile::Nvrtc* nvrtc = nullptr;
};

/// From a key to the object that would be published.
Result<void> build(BuildService& service, const KeyedRequest& request) {
  const compile::CompileJob job = KILN_TRY(RequestKeys::job(request));
  const auto output = KILN_TRY(service.workers().compile(job, {}));
  KILN_TRY(check_output(request, output));
  KILN_TRY(make_object(request, service.preimage(request), job.source, output));
  return {};
}

Result<std::shared_ptr<Builder>> make_builder(const Settings& settings) {
  auto builder = std::make_shared<Builder>();
  static_cast<ScratchService&>(*builder) = KILN_TRY(scratch_service(settings.folder));
  builder->nvrtc = KILN_TRY(open_nvrtc(*builder->service));
  return builder;
}

/// `service_of(builder)` builds a kernel; the floor is NVRTC in this process.
template <typename ServiceOf>
auto build_sides(const Settings& settings, const ServiceOf& service_of) {
  return [=]() -> Result<Sides> {
    const auto builder = KILN_TRY(make_builder(settings));
    const KernelRequest request{
        Request("scaled_softmax_fwd", {{"dtype", "bf16"}, {"max_cols", "1024"}}),
        {{9, 0}, device::ArchSuffix::kNone}};
    return Sides{.measured = [=]() -> Result<Seconds> {
                   const auto service = KILN_TRY(service_of(*builder));
                   const auto key = KILN_TRY(keyed(*service, request));
                   return timed([&] { return build(*service, key); });
                 },
                 .floor = [=]() -> Result<Seconds> {
                   const auto job = KILN_TRY(
                       RequestKeys::job(KILN_TRY(keyed(*builder->service, request))));
                   return timed([&] { return compile_bare(*builder->nvrtc, job); });
                 }};
  };
}

Row running_row(const Settings& settings) {
  const auto running = [](const Builder& builder) -> Result<BuildService*> {
    return builder.service.get();
  };
  return {.name = "build/running",
          .what = "build through a running worker, not published",
          .floor = "NVRTC in-process, same options, warm",
          .limit = {1.10},
          .prepare = build_sides(settings, running)};
}

Row fresh_row(const Settings& settings) {
  const auto fresh = [](const Builder& builder) {
    return open_service(builder.root());
  };
  return {.name = "build/fresh",
          .what = "first build in a fresh worker, not published",
          .floor = "NVRTC in-process, same options, warm",
          .limit = {1, Seconds(60e-3)},
          .prepare = build_sides(settings, fresh)};
}

Result<void> write_manifest(const std::filesystem::path& path, std::size_t count) {
  std::ofstream lines(path);
  for (const KernelRequest& request : softmax_requests(count)) {
    const nlohmann::ordered_json line = {{"template", request.request.name()},
                                         {"params", request.request.parameters()},
                                         {"arch", to_string(request.architecture)}};
    lines << line.dump() << '\n';
  }
  lines.close();
  return lines ? Result<void>() : fail(ErrorCode::kIo, "cannot write " + path.native());
}

Result<Seconds> warm(const Settings& settings, const std::string& manifest) {
  // Each time anew, so that nothing is a hit.
  const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  return wall({program_beside("kiln"), "warm", "--cache-dir", scratch->path() / "cache",
               "--manifest", manifest, "--json"});
}

Result<Seconds> compile_on_all_cores(const Settings& settings) {
  const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
  const std::string counter = scratch->path() / "counter";
  std::ofstream(counter) << std::string(sizeof(std::uint64_t), '\0');
  const std::vector<std::string> loop = child_command(
      kCompileChild,
      {scratch->path() / "cache", std::to_string(settings.warm_kernels), counter});
  return run_processes(
      std::vector<std::vector<std::string>>(compile::usable_cores(), loop));
}

Row warm_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
    const std::string manifest = scratch->path() / "kernels.jsonl";
    KILN_TRY(write_manifest(manifest, settings.warm_kernels));
    return Sides{.measured = [=, kept = scratch] { return warm(settings, manifest); },
                 .floor = [=] { return compile_on_all_cores(settings); }};
  };
  return {.name = "warm",
          .what = fmt::format("warm of {} kernels on {} cores", settings.warm_kernels,
                              compile::usable_cores()),
          .floor = "as many independent NVRTC loops, nothing kept",
          .limit = {1 / 0.95},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> build_rows(const Settings& settings) {
  std::vector<Row> rows{running_row(settings), fresh_row(settings)};
  if (settings.long_rows)
    rows.push_back(warm_row(settings));
  return rows;
}

}  // namespace kiln::bench
