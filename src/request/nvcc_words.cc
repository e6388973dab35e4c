#include "request/nvcc_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "request/nvrtc_options.h"
#include "util/text.h"

namespace kiln::request {
namespace {

enum class Match { kWhole, kBeginning };

struct NvccRow {
  std::string_view words;  // separated by a blank
  Match match;
  std::string_view advice;
};

constexpr std::string_view kNoHost =
    "it is for the host's compiler, and NVRTC compiles device code: leave the option "
    "out";
constexpr std::string_view kOptimized =
    "device code is always optimized, so leave the option out; -Xptxas -O1 optimizes "
    "less";
constexpr std::string_view kSplitCompile = "NVRTC's word is -split-compile=N";

// The first that matches counts.
constexpr std::array kNvccRows{
    NvccRow{"-std", Match::kBeginning, "--std=c++20 names the language"},
    NvccRow{"-gencode --generate-code -arch --gpu-architecture -code --gpu-code",
            Match::kBeginning,
            "--arch 9.0 names the architectures, with commas, and a program builds for "
            "its device"},
    NvccRow{"-O0 -O1 -O2 -O3 -O", Match::kWhole, kOptimized},
    NvccRow{"--optimize", Match::kBeginning, kOptimized},
    NvccRow{
        "--expt-relaxed-constexpr", Match::kWhole,
        "NVRTC's -default-device takes functions without annotation as device code; or "
        "write __host__ __device__"},
    NvccRow{"--expt-extended-lambda --extended-lambda -extended-lambda", Match::kWhole,
            "a lambda in device code needs no option"},
    NvccRow{"-ptx --ptx", Match::kWhole, "--arch compute_90 makes PTX"},
    NvccRow{"-cubin --cubin", Match::kWhole, "a cubin is made without an option"},
    NvccRow{"-isystem", Match::kBeginning, "-I DIR names a folder of headers"},
    NvccRow{"--threads", Match::kBeginning, kSplitCompile},
    NvccRow{"-t", Match::kWhole, kSplitCompile},
    NvccRow{"-Werror", Match::kBeginning,
            "NVRTC's -diag-error=N makes a warning an error"},
    NvccRow{"-keep --keep", Match::kBeginning,
            "`kiln show KEY --ptx` and `--extract` have the results"},
    NvccRow{"-res-usage --resource-usage", Match::kWhole,
            "`kiln show KEY` has registers, shared and spilled bytes"},
    NvccRow{"-Xcompiler --compiler-options -Xlinker -ccbin --compiler-bindir -lcu -L",
            Match::kBeginning, kNoHost},
    NvccRow{"-m64 -fPIC -shared --shared -x", Match::kWhole, kNoHost},
    NvccRow{"-c", Match::kWhole,
            "nvcc makes an object with it and does not link; `kiln compile` needs no "
            "option for a cubin, and -dc makes device code to link"},
    NvccRow{
        "-cudart --cudart", Match::kBeginning,
        "it chooses the runtime's library for a host program: leave the option out"},
    NvccRow{"-fatbin --fatbin", Match::kWhole,
            "--arch 8.0,9.0 makes an image for each, and `kiln pack` makes one file of "
            "them"},
    NvccRow{"-src-in-ptx --source-in-ptx", Match::kWhole,
            "NVRTC does not know the option; -lineinfo has the lines of the source"},
    NvccRow{"-default-stream --default-stream", Match::kWhole,
            "each launch names its stream: leave the option out"},
};

bool matches(const NvccRow& row, std::string_view word) {
  const std::string_view whole = word.substr(0, word.find('='));
  return std::ranges::any_of(parts_of(row.words, " "), [&](std::string_view known) {
    return row.match == Match::kWhole ? whole == known : word.starts_with(known);
  });
}

bool takes(const std::string& option) {
  return read_nvrtc_options(std::span(&option, 1)).has_value();
}

}  // namespace

NvccHint nvcc_hint(std::string_view word, std::string_view next) {
  const std::string option(word);
  for (const NvccRow& row : kNvccRows) {
    if (matches(row, word))
      return {NvccOption::kElsewhere, fmt::format("nvcc's {}: {}", word, row.advice)};
  }
  constexpr std::string_view kTakes = "NVRTC takes it, as --option";
  if (!option.starts_with("-"))
    return {};
  if (takes(option))
    return {NvccOption::kOfNvrtc, fmt::format("{} {}", kTakes, option)};
  // The first of two words: the second is the value, unless it is the file.
  if (takes(option + "=1"))
    return {NvccOption::kOfNvrtc,
            fmt::format("{}={}={}", kTakes, option,
                        next.empty() || next.find('.') != next.npos ? "VALUE" : next)};
  return {};
}

}  // namespace kiln::request
