#include "device/known_architectures.h"

#include <algorithm>
#include <array>

namespace kiln::device {
namespace {

using Version = CudaVersion;

constexpr Version kNvrtcBegins{7, 0};

// Sources: release notes of CUDA 7.0 to 13.0; the PTX ISA's table of `.target`; CUDA
// Programming Guide, "Compute Capabilities" (families; shared memory per thread block).
constexpr auto kKnown = std::to_array<KnownArchitecture>({
    {{2, 0}, kNvrtcBegins, Version{8, 0}, {}, {}, 0, false, 48},
    {{2, 1}, kNvrtcBegins, Version{8, 0}, {}, {}, 0, false, 48},
    {{3, 0}, kNvrtcBegins, Version{10, 2}, {}, {}, 0, false, 48},
    {{3, 2}, kNvrtcBegins, Version{10, 2}, {}, {}, 0, true, 48},
    {{3, 5}, kNvrtcBegins, Version{11, 8}, {}, {}, 0, false, 48},
    {{3, 7}, kNvrtcBegins, Version{11, 8}, {}, {}, 0, false, 48},
    {{5, 0}, kNvrtcBegins, Version{12, 9}, {}, {}, 0, false, 48},
    {{5, 2}, kNvrtcBegins, Version{12, 9}, {}, {}, 0, false, 48},
    {{5, 3}, kNvrtcBegins, Version{12, 9}, {}, {}, 0, true, 48},
    {{6, 0}, {8, 0}, Version{12, 9}, {}, {}, 0, false, 48},
    {{6, 1}, {8, 0}, Version{12, 9}, {}, {}, 0, false, 48},
    {{6, 2}, {8, 0}, Version{12, 9}, {}, {}, 0, true, 48},
    {{7, 0}, {9, 0}, Version{12, 9}, {}, {}, 0, false, 96},
    {{7, 2}, {9, 2}, Version{12, 9}, {}, {}, 0, true, 96},
    {{7, 5}, {10, 0}, {}, {}, {}, 0, false, 64},
    {{8, 0}, {11, 0}, {}, {}, {}, 0, false, 163},
    {{8, 6}, {11, 1}, {}, {}, {}, 0, false, 99},
    {{8, 7}, {11, 4}, {}, {}, {}, 0, true, 163},
    {{8, 8}, {13, 0}, {}, {}, {}, 0, false, 99},
    {{8, 9}, {11, 8}, {}, {}, {}, 0, false, 99},
    {{9, 0}, {11, 8}, {}, Version{12, 0}, {}, 0, false, 227},
    {{10, 0}, {12, 8}, {}, Version{12, 8}, Version{12, 9}, 100, false, 227},
    // Became 11.0 with CUDA 13.
    {{10, 1}, {12, 8}, Version{12, 9}, Version{12, 8}, Version{12, 9}, 101, true, 227},
    {{10, 3}, {12, 9}, {}, Version{12, 9}, Version{12, 9}, 100, false, 227},
    {{11, 0}, {13, 0}, {}, Version{13, 0}, Version{13, 0}, 110, true, 227},
    {{12, 0}, {12, 8}, {}, Version{12, 8}, Version{12, 9}, 120, false, 99},
    {{12, 1}, {12, 9}, {}, Version{12, 9}, Version{12, 9}, 120, false, 99},
});

}  // namespace

std::span<const KnownArchitecture> known_architectures() {
  return kKnown;
}

const KnownArchitecture* find_known(ComputeCapability capability) {
  const auto* const found =
      std::ranges::find(kKnown, capability, &KnownArchitecture::capability);
  return found == kKnown.end() ? nullptr : &*found;
}

}  // namespace kiln::device
