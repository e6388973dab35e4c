#include "tests/integration/ptx/run_as_ptx.h"

#include <cstdlib>
#include <string>

#include "render/catalog.h"
#include "tests/support/kernels/variant.h"
#include "util/try.h"

namespace kiln::test {
namespace {

const render::TemplateCatalog& catalog() {
  static const auto* const all =
      new render::TemplateCatalog(kiln_cpu::catalog_with({}));
  return *all;
}

Result<void> run_one(const ops::Launch& launch, const kiln_cpu::RunOptions& options,
                     ptx::Report& report) {
  const auto spec = KILN_TRY(catalog().find(launch.kernel));
  const std::string entry = launch.entry.empty() ? launch.kernel : launch.entry;
  const auto addresses = launch.arguments.addresses();
  return kiln_cpu::run_kernel(
      {.spec = *spec,
       .parameters = launch.parameters,
       .entry = entry,
       .geometry = KILN_TRY(spec->geometry(KILN_TRY(spec->canonical(launch.parameters)),
                                           launch.extents, entry)),
       .arguments = addresses,
       .sizes_bytes = launch.arguments.sizes_bytes()},
      options, report);
}

}  // namespace

bool is_whole() {
  // The tests have one thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  return std::getenv("KILN_TEST_WHOLE") != nullptr;
}

Result<void> run_as_ptx(const ops::Launches& plan, const kiln_cpu::RunOptions& options,
                        ptx::Report& report) {
  for (const ops::Launch& launch : plan) KILN_TRY(run_one(launch, options, report));
  return {};
}

}  // namespace kiln::test
