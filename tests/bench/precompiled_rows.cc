// Precompiled headers: a CUB kernel in a process that has never compiled one, and a
// `kiln warm` of many.

#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/bench/costs_children.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

Row new_process_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
    const std::string root = scratch->path() / "cache";
    const std::shared_ptr<BuildService> service = KILN_TRY(open_for_cub(root));
    const auto next = std::make_shared<std::atomic<std::size_t>>(0);
    // The first source asks for it, the second makes it.
    KILN_TRY(cub_build(*service, (*next)++));
    KILN_TRY(cub_build(*service, (*next)++));
    return Sides{
        .measured =
            [=] {
              return printed_seconds(
                  child_command(kCubChild, {root, std::to_string((*next)++)}));
            },
        .floor = [=, kept = scratch] { return cub_build(*service, (*next)++); }};
  };
  return {.name = "build/cub",
          .what =
              "first build of a source with CUB in a new process, whose headers "
              "another one has precompiled",
          .floor = "the same in a process that has built such sources",
          .limit = {1.25},
          .prepare = prepare};
}

Result<void> write_sources(const std::filesystem::path& path, std::size_t count) {
  std::ofstream lines(path);
  for (std::size_t i = 0; i < count; ++i)
    lines << nlohmann::ordered_json{{"source", cub_source(i)}}.dump() << '\n';
  lines.close();
  return lines ? Result<void>() : fail(ErrorCode::kIo, "cannot write " + path.native());
}

Row many_row(const Settings& settings) {
  const auto warm = [=](const std::string& manifest,
                        const char* setting) -> Result<Seconds> {
    const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
    return wall({"/usr/bin/env", setting, program_beside("kiln"), "warm", "--cache-dir",
                 scratch->path() / "cache", "--manifest", manifest, "--arch", "9.0",
                 "--json"});
  };
  const auto prepare = [=]() -> Result<Sides> {
    const auto scratch = KILN_TRY(ScratchFolder::make(settings.folder));
    const std::string manifest = scratch->path() / "sources.jsonl";
    KILN_TRY(write_sources(manifest, settings.cub_kernels));
    return Sides{
        .measured = [=, kept = scratch] { return warm(manifest, "KILN_PCH_SIZE=2G"); },
        .floor = [=] { return warm(manifest, "KILN_PCH_SIZE=0"); }};
  };
  return {.name = "warm/cub",
          .what = fmt::format("warm of {} sources with CUB, nothing there",
                              settings.cub_kernels),
          .floor = "the same without precompiled headers",
          .limit = {1.0 / 3},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> precompiled_rows(const Settings& settings) {
  std::vector<Row> rows{new_process_row(settings)};
  if (settings.long_rows)
    rows.push_back(many_row(settings));
  return rows;
}

}  // namespace kiln::bench
