#include "tests/integration/ptx/run_as_ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "render/catalog.h"
#include "tests/integration/ptx/compile_to_ptx.h"
#include "tests/support/cpu_kernel/guarded_memory.h"
#include "tests/support/cpu_kernel/variant.h"
#include "tests/support/ptx/variables.h"
#include "util/try.h"

namespace kiln::test {
namespace {

class TestMemory final : public ptx::GlobalMemory {
 public:
  explicit TestMemory(const ptx::Variables& variables) : variables_(variables) {}

  std::optional<ptx::Stretch> find(std::uint64_t address) override {
    for (const auto* memory : kiln_cpu::GuardedMemory::all()) {
      const auto begin = reinterpret_cast<std::uint64_t>(memory->data());
      if (address >= begin && address - begin < memory->size())
        return ptx::Stretch{.begin = begin,
                            .end = begin + memory->size(),
                            .is_read_only = !memory->is_writable()};
    }
    return ptx::find(variables_, address);
  }
  [[nodiscard]] std::string describe(std::uint64_t address) const override {
    return kiln_cpu::GuardedMemory::describe_any(address);
  }

 private:
  const ptx::Variables& variables_;
};

const render::TemplateCatalog& catalog() {
  static const auto* const all =
      new render::TemplateCatalog(kiln_cpu::catalog_with({}));
  return *all;
}

/// Memoised: the PTX of a kernel of the templates.
Result<std::string> ptx_of(const render::KernelSpec& spec, const Parameters& parameters,
                           ComputeCapability capability) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const known = new std::map<std::string, std::string>;
  const auto canonical = KILN_TRY(spec.canonical(parameters));
  const std::string text = KILN_TRY(spec.render(canonical)).text;
  const std::string name =
      fmt::format("{}.{} {}", capability.major, capability.minor, text);
  if (const auto found = known->find(name); found != known->end())
    return found->second;
  return known->emplace(name, KILN_TRY(compile_to_ptx(text, capability))).first->second;
}

Result<void> run_one(const ops::Launch& launch, ComputeCapability capability,
                     const AsPtx& how, ptx::Report& report) {
  const auto spec = KILN_TRY(catalog().find(launch.kernel));
  const std::string entry = launch.entry.empty() ? launch.kernel : launch.entry;
  const auto geometry = KILN_TRY(spec->geometry(
      KILN_TRY(spec->canonical(launch.parameters)), launch.extents, entry));
  std::string text = KILN_TRY(ptx_of(*spec, launch.parameters, capability));
  if (how.edit)
    text = how.edit(std::move(text));
  const auto program = ptx::decode(std::move(text));
  if (!program)
    return fail(ErrorCode::kUnavailable, program.error());
  const ptx::Function* const function = ptx::find_entry(**program, entry);
  std::vector<std::byte> parameters(function->parameter_bytes);
  const auto addresses = launch.arguments.addresses();
  const auto& sizes = launch.arguments.sizes_bytes();
  for (std::size_t i = 0; i < addresses.size(); ++i)
    std::memcpy(parameters.data() + function->parameter_offsets[i], addresses[i],
                sizes[i]);
  ptx::Launch made{.entry = entry,
                   .dynamic_shared_bytes = geometry.shared_bytes,
                   .parameters = parameters};
  std::copy_n(geometry.grid.begin(), 3, made.grid.begin());
  std::copy_n(geometry.block.begin(), 3, made.block.begin());
  const ptx::Variables variables = ptx::make_variables(**program, {});
  TestMemory memory(variables);
  const auto done = ptx::launch(**program, made, variables.symbols, memory,
                                how.schedule, how.checks, report);
  if (!done)
    return fail(ErrorCode::kDevice,
                fmt::format("error {}: {}", done.error().result, done.error().why));
  return {};
}

}  // namespace

bool is_whole() {
  // The tests have one thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  return std::getenv("KILN_TEST_WHOLE") != nullptr;
}

Result<void> run_as_ptx(const ops::Launches& plan, ComputeCapability capability,
                        const AsPtx& how, ptx::Report& report) {
  for (const ops::Launch& launch : plan)
    KILN_TRY(run_one(launch, capability, how, report));
  return {};
}

}  // namespace kiln::test
