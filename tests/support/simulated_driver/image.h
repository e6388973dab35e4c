// What the simulated driver reads in an image: a cubin or PTX text. Written apart from
// Kiln's own reader, so that the two can be held against each other.
// Source: System V ABI, chapters 4 and 5; LLVM's ELF constants for EM_CUDA; measured on
// cubins of NVRTC 13.0. Every offset is checked.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tests/support/simulated_driver/abi.h"
#include "util/bytes.h"

namespace kiln::simulated {

struct Capability {
  int major = 0;
  int minor = 0;
  friend auto operator<=>(const Capability&, const Capability&) = default;
};

struct Arch {
  Capability base;
  char suffix = 0;  // 0, 'a' or 'f'
};

/// "sm_90a", "compute_103f" or "90a"; nullopt for anything else.
[[nodiscard]] std::optional<Arch> parse_arch(std::string_view text);

struct Parameter {
  std::size_t offset = 0;  // among the parameters
  std::size_t size = 0;
};

struct EntryPoint {
  std::string name;
  unsigned registers = 16;  // a thread
  unsigned static_shared_bytes = 0;
  unsigned max_threads = 1024;  // a block, from __launch_bounds__
  std::vector<Parameter> parameters{};
  bool is_local = false;  // only an enumeration finds it
};

struct Global {
  std::string name;
  std::size_t size = 0;
  Bytes initial;  // zeros follow
};

struct Image {
  std::string sha256{};  // of its bytes, as hex; read_image() sets it
  bool is_ptx = false;
  std::string ptx{};  // its text; of a cubin empty
  Arch arch;
  int toolkit = 0;      // CUDA's encoding, 13000; 0 where a cubin does not tell
  int ptx_version = 0;  // 90 for 9.0
  std::vector<EntryPoint> entry_points;
  std::vector<Global> globals;  // of a cubin
};

struct Refusal {
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  std::string why;
};

/// Errors: CUDA_ERROR_INVALID_IMAGE.
[[nodiscard]] tl::expected<Image, Refusal> read_cubin(ByteView bytes);

/// Errors: CUDA_ERROR_INVALID_PTX.
[[nodiscard]] tl::expected<Image, Refusal> read_ptx(std::string_view text);

/// An image as a program hands it over: no size, so the image says where it ends. It
/// has to be whole; what the headers of a cubin say is believed.
/// Errors: as above, and CUDA_ERROR_INVALID_IMAGE for what is neither.
[[nodiscard]] tl::expected<Image, Refusal> read_image(const void* data);

/// The CUDA version that brought this PTX ISA, in CUDA's encoding; 0 for one older than
/// any driver.
[[nodiscard]] int toolkit_of_ptx(int ptx_version);

}  // namespace kiln::simulated
