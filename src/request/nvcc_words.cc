#include "request/nvcc_words.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "request/nvrtc_options.h"

namespace kiln::request {
namespace {

enum class Match { kWhole, kBeginning };

struct NvccRow {
  std::string_view word;
  Match match;
  std::string_view advice;
};

constexpr std::string_view kNoHost =
    "it is for the host's compiler, and NVRTC compiles device code: leave the option "
    "out";
constexpr std::string_view kArch =
    "--arch 9.0 names the architectures, with commas, and a program builds for its "
    "device";
constexpr std::string_view kOptimized =
    "device code is always optimized, so leave the option out; -Xptxas -O1 optimizes "
    "less";
constexpr std::string_view kLambda = "a lambda in device code needs no option";

// The first that matches counts.
constexpr std::array kNvccRows{
    NvccRow{"-std", Match::kBeginning, "--std c++20 names the language"},
    NvccRow{"-gencode", Match::kBeginning, kArch},
    NvccRow{"--generate-code", Match::kBeginning, kArch},
    NvccRow{"-arch", Match::kBeginning, kArch},
    NvccRow{"--gpu-architecture", Match::kBeginning, kArch},
    NvccRow{"-code", Match::kBeginning, kArch},
    NvccRow{"--gpu-code", Match::kBeginning, kArch},
    NvccRow{"-O0", Match::kWhole, kOptimized},
    NvccRow{"-O1", Match::kWhole, kOptimized},
    NvccRow{"-O2", Match::kWhole, kOptimized},
    NvccRow{"-O3", Match::kWhole, kOptimized},
    NvccRow{"-O", Match::kWhole, kOptimized},
    NvccRow{"--optimize", Match::kBeginning, kOptimized},
    NvccRow{
        "--expt-relaxed-constexpr", Match::kWhole,
        "NVRTC's -default-device takes functions without annotation as device code; or "
        "write __host__ __device__"},
    NvccRow{"--expt-extended-lambda", Match::kWhole, kLambda},
    NvccRow{"--extended-lambda", Match::kWhole, kLambda},
    NvccRow{"-extended-lambda", Match::kWhole, kLambda},
    NvccRow{"-ptx", Match::kWhole, "--arch compute_90 makes PTX"},
    NvccRow{"--ptx", Match::kWhole, "--arch compute_90 makes PTX"},
    NvccRow{"-cubin", Match::kWhole, "a cubin is made without an option"},
    NvccRow{"--cubin", Match::kWhole, "a cubin is made without an option"},
    NvccRow{"-isystem", Match::kBeginning, "-I DIR names a folder of headers"},
    NvccRow{"--threads", Match::kBeginning, "NVRTC's word is -split-compile=N"},
    NvccRow{"-t", Match::kWhole, "NVRTC's word is -split-compile=N"},
    NvccRow{"-Werror", Match::kBeginning,
            "NVRTC's -diag-error=N makes a warning an error"},
    NvccRow{"-keep", Match::kBeginning,
            "`kiln show KEY --ptx` and `--extract` have the results"},
    NvccRow{"--keep", Match::kBeginning,
            "`kiln show KEY --ptx` and `--extract` have the results"},
    NvccRow{"-res-usage", Match::kWhole,
            "`kiln show KEY` has registers, shared and spilled bytes"},
    NvccRow{"--resource-usage", Match::kWhole,
            "`kiln show KEY` has registers, shared and spilled bytes"},
    NvccRow{"-Xcompiler", Match::kBeginning, kNoHost},
    NvccRow{"--compiler-options", Match::kBeginning, kNoHost},
    NvccRow{"-Xlinker", Match::kBeginning, kNoHost},
    NvccRow{"-ccbin", Match::kBeginning, kNoHost},
    NvccRow{"--compiler-bindir", Match::kBeginning, kNoHost},
    NvccRow{"-m64", Match::kWhole, kNoHost},
    NvccRow{"-fPIC", Match::kWhole, kNoHost},
    NvccRow{"-shared", Match::kWhole, kNoHost},
    NvccRow{"--shared", Match::kWhole, kNoHost},
    NvccRow{"-lcu", Match::kBeginning, kNoHost},
    NvccRow{"-L", Match::kBeginning, kNoHost},
    NvccRow{"-x", Match::kWhole, kNoHost},
    NvccRow{"-c", Match::kWhole, kNoHost},
};

bool is_of_nvrtc(const std::string& option) {
  // Also as the first of two words, whose second is the value.
  const std::array words{option, option + "=1"};
  return option.starts_with("-") &&
         (read_nvrtc_options(std::span(words).first(1)).has_value() ||
          read_nvrtc_options(std::span(words).last(1)).has_value());
}

}  // namespace

NvccHint nvcc_hint(std::string_view word) {
  const std::string option(word);
  for (const NvccRow& row : kNvccRows) {
    const bool matches = row.match == Match::kWhole
                             ? word.substr(0, word.find('=')) == row.word
                             : word.starts_with(row.word);
    if (matches)
      return {NvccOption::kElsewhere, fmt::format("nvcc's {}: {}", word, row.advice)};
  }
  return is_of_nvrtc(option) ? NvccHint{NvccOption::kOfNvrtc, {}} : NvccHint{};
}

}  // namespace kiln::request
