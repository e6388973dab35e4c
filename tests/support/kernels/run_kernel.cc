#include "tests/support/kernels/run_kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "request/selection.h"
#include "tests/support/kernels/compile_to_ptx.h"
#include "tests/support/kernels/guarded_memory.h"
#include "tests/support/ptx/variables.h"
#include "util/try.h"

namespace kiln_cpu {
namespace {

namespace ptx = kiln::ptx;
using kiln::ErrorCode;
using kiln::Result;
using ProgramPointer = std::shared_ptr<const ptx::Program>;

std::vector<ptx::Stretch>& lent() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const all = new std::vector<ptx::Stretch>;
  return *all;
}

class TestMemory final : public ptx::GlobalMemory {
 public:
  explicit TestMemory(const ptx::Variables& variables) : variables_(variables) {}

  std::optional<ptx::Stretch> find(std::uint64_t address) override {
    for (const auto* memory : GuardedMemory::all()) {
      const auto begin = reinterpret_cast<std::uint64_t>(memory->data());
      if (address >= begin && address - begin < memory->size())
        return ptx::Stretch{.begin = begin,
                            .end = begin + memory->size(),
                            .is_read_only = !memory->is_writable()};
    }
    for (const ptx::Stretch& each : lent()) {
      if (address >= each.begin && address < each.end)
        return each;
    }
    return ptx::find(variables_, address);
  }
  [[nodiscard]] std::string describe(std::uint64_t address) const override {
    return GuardedMemory::describe_any(address);
  }

 private:
  const ptx::Variables& variables_;
};

Result<ProgramPointer> decoded(std::string text) {
  auto program = ptx::decode(std::move(text));
  if (!program)
    return kiln::fail(ErrorCode::kUnavailable, program.error());
  return *std::move(program);
}

/// Memoised, but for edited ones.
Result<ProgramPointer> program_of(const KernelLaunch& launch,
                                  const RunOptions& options) {
  struct Known {
    std::string text;
    ProgramPointer program{};
  };
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const all = new std::map<std::string, Known>;
  const auto canonical = KILN_TRY(launch.spec.canonical(launch.parameters));
  const auto& [major, minor] = options.capability;
  const std::string name = fmt::format(
      "{}.{} {}", major, minor,
      kiln::request::format_template(launch.spec.name(), canonical.values()));
  auto found = all->find(name);
  if (found == all->end()) {
    const std::string source = KILN_TRY(launch.spec.render(canonical)).text;
    found = all->emplace(name, Known{KILN_TRY(kiln::test::compile_to_ptx(
                                   source, options.capability))})
                .first;
  }
  Known& known = found->second;
  if (options.edit)
    return decoded(options.edit(known.text));
  if (known.program == nullptr)
    known.program = KILN_TRY(decoded(known.text));
  return known.program;
}

Result<std::vector<std::byte>> packed(const KernelLaunch& launch,
                                      const ptx::Function& function) {
  std::vector<std::size_t> sizes;
  for (const auto& parameter : function.syntax->parameters)
    sizes.push_back(parameter.size);
  if (launch.arguments.size() != sizes.size() ||
      !std::ranges::equal(launch.sizes_bytes, sizes))
    return kiln::fail(ErrorCode::kInvalidArgument,
                      fmt::format("{} takes arguments of {} bytes, and {} were given",
                                  launch.entry, sizes, launch.sizes_bytes));
  std::vector<std::byte> bytes(function.parameter_bytes);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    std::memcpy(bytes.data() + function.parameter_offsets[i], launch.arguments[i],
                sizes[i]);
  return bytes;
}

}  // namespace

LentMemory::LentMemory(const void* begin, std::size_t bytes, bool is_read_only) {
  const auto at = reinterpret_cast<std::uint64_t>(begin);
  lent().push_back({.begin = at, .end = at + bytes, .is_read_only = is_read_only});
}

LentMemory::~LentMemory() {
  lent().pop_back();
}

Result<void> run_kernel(const KernelLaunch& launch, const RunOptions& options,
                        ptx::Report& report) {
  const ProgramPointer program = KILN_TRY(program_of(launch, options));
  const ptx::Function* const function = ptx::find_entry(*program, launch.entry);
  if (function == nullptr)
    return kiln::fail(ErrorCode::kNotFound,
                      fmt::format("{} is no entry point", launch.entry));
  const auto parameters = KILN_TRY(packed(launch, *function));
  ptx::Launch made{.entry = launch.entry,
                   .dynamic_shared_bytes = launch.geometry.shared_bytes,
                   .parameters = parameters,
                   .first_block = options.first_block,
                   .most_blocks = options.most_blocks};
  std::copy_n(launch.geometry.grid.begin(), 3, made.grid.begin());
  std::copy_n(launch.geometry.block.begin(), 3, made.block.begin());
  const ptx::Variables variables = ptx::make_variables(*program, {});
  TestMemory memory(variables);
  const auto done = ptx::launch(*program, made, variables.symbols, memory,
                                options.schedule, options.checks, report);
  if (!done)
    return kiln::fail(
        ErrorCode::kDevice,
        fmt::format("error {}: {}", done.error().result, done.error().why));
  return {};
}

}  // namespace kiln_cpu
