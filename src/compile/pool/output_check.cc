#include "compile/pool/output_check.h"

#include <algorithm>
#include <string_view>

#include "device/cubin.h"
#include "util/elf.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

/// `is_defined` says it of a lowered name.
template <typename Defined>
Result<void> check_names(const CompileOutput& output, const Defined& is_defined) {
  for (const auto& [expression, lowered] : output.lowered_names) {
    if (!is_defined(lowered))
      return fail(ErrorCode::kCorrupt,
                  "'{}', NVRTC's name for '{}', is not in the image", lowered,
                  expression);
  }
  return {};
}

Result<void> check(const CompileJob& job, const CompileOutput& output) {
  KILN_TRY(device::check_image(output.image, job.target, {}));
  if (job.as_nvrtc)  // NVRTC names what another translation unit has, too
    return {};
  if (job.target.kind == device::ImageKind::kPtx)
    return check_names(output, [text = as_text(output.image)](const auto& name) {
      return text.find(name) != std::string_view::npos;
    });
  if (job.target.kind == device::ImageKind::kLtoIr)
    return {};  // the link finds out
  const auto elf = KILN_TRY(ElfFile::parse(output.image));
  const auto symbols = KILN_TRY(elf.symbols());
  return check_names(output, [&](const std::string& name) {
    return std::ranges::any_of(symbols, [&](const ElfSymbol& symbol) {
      return symbol.section != 0 && symbol.name == name;
    });
  });
}

/// Of a compiler that reported success.
Result<void> if_unsound(const Result<void>& sound, std::string_view compiler,
                        const CompileOutput& output) {
  if (sound)
    return {};
  return fail(ErrorCode::kCompileFailed,
              "{} {} reported success, but its image does not fit the request: {}",
              compiler, output.nvrtc.path.native(), sound.error().message);
}

}  // namespace

Result<void> check_output(const CompileJob& job, const CompileOutput& output) {
  if (!job.make_precompiled.empty() && output.image.empty() &&
      output.made.path == job.make_precompiled)
    return {};
  return if_unsound(check(job, output), "NVRTC", output);
}

Result<void> check_output(const LinkJob& job, const CompileOutput& output) {
  return if_unsound(device::check_image(output.image, job.target, {}), "nvJitLink",
                    output);
}

Result<void> check_output(const PlanJob& job, const PlanOutput& output) {
  if (!output.attempts.empty())
    return {};
  return fail(ErrorCode::kCompileFailed, "cuDNN {} gave neither a plan nor a reason",
              job.cudnn.native());
}

}  // namespace kiln::compile
