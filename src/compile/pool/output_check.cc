#include "compile/pool/output_check.h"

#include <algorithm>
#include <string_view>

#include "device/cubin.h"
#include "util/elf.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

Result<void> check_names_in_cubin(const CompileOutput& output) {
  const auto elf = KILN_TRY(ElfFile::parse(output.image));
  const auto symbols = KILN_TRY(elf.symbols());
  for (const auto& [expression, lowered] : output.lowered_names) {
    const auto defines = [&name = lowered](const ElfSymbol& symbol) {
      return symbol.section != 0 && symbol.name == name;
    };
    if (std::none_of(symbols.begin(), symbols.end(), defines))
      return fail(ErrorCode::kCorrupt,
                  "'{}', NVRTC's name for '{}', is not in the image", lowered,
                  expression);
  }
  return {};
}

Result<void> check_names_in_ptx(const CompileOutput& output) {
  const auto text = as_text(output.image);
  for (const auto& [expression, lowered] : output.lowered_names) {
    if (text.find(lowered) == std::string_view::npos)
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
  switch (job.target.kind) {
    case device::ImageKind::kCubin:
      return check_names_in_cubin(output);
    case device::ImageKind::kPtx:
      return check_names_in_ptx(output);
    case device::ImageKind::kLtoIr:
      break;  // the link finds out
  }
  return {};
}

}  // namespace

Result<void> check_output(const CompileJob& job, const CompileOutput& output) {
  if (!job.make_precompiled.empty() && output.image.empty() &&
      output.made.path == job.make_precompiled)
    return {};
  const auto sound = check(job, output);
  if (sound)
    return {};
  return fail(ErrorCode::kCompileFailed,
              "NVRTC {} reported success, but its image does not fit the request: {}",
              output.nvrtc.path.native(), sound.error().message);
}

Result<void> check_output(const LinkJob& job, const CompileOutput& output) {
  const auto sound = device::check_image(output.image, job.target, {});
  if (sound)
    return {};
  return fail(
      ErrorCode::kCompileFailed,
      "nvJitLink {} reported success, but its image does not fit the request: {}",
      output.nvrtc.path.native(), sound.error().message);
}

Result<void> check_output(const PlanJob& job, const PlanOutput& output) {
  if (!output.attempts.empty())
    return {};
  return fail(ErrorCode::kCompileFailed, "cuDNN {} gave neither a plan nor a reason",
              job.cudnn.native());
}

}  // namespace kiln::compile
