// Jobs for the tests of the compile worker, and the NVRTCs they go to.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "compile/protocol/job.h"
#include "tests/support/kernel_sources.h"
#include "tests/support/paths.h"
#include "toolchain/nvrtc_files.h"
#include "util/bytes.h"
#include "util/elf.h"
#include "util/library_search.h"
#include "util/read_file.h"

namespace kiln::test {

/// The NVRTC of this machine: KILN_NVRTC, else the first that the search finds; empty
/// paths where there is none, and then a test that needs one skips itself.
inline compile::NvrtcPaths real_nvrtc() {
  const char* const given = std::getenv("KILN_NVRTC");
  const auto found = find_libraries({.name = "libnvrtc.so",
                                     .explicit_path = given == nullptr ? "" : given,
                                     .explicit_origin = "KILN_NVRTC"},
                                    LibraryPlaces::of_process());
  if (!found || found->empty())
    return {};
  const auto& path = found->front().path;
  return {.nvrtc = path,
          .builtins = device::builtins_beside(path, std::nullopt).value_or("")};
}

/// Copies real_nvrtc() and its builtins into `folder`, and gives the copy; empty where
/// it has no builtins beside it.
inline std::filesystem::path copy_of_real_nvrtc(const std::filesystem::path& folder) {
  const compile::NvrtcPaths real = real_nvrtc();
  if (real.builtins.empty())
    return {};
  std::filesystem::copy_file(real.builtins, folder / real.builtins.filename());
  std::filesystem::copy_file(real.nvrtc, folder / real.nvrtc.filename());
  return folder / real.nvrtc.filename();
}

/// Puts another file in the library's place, with one bit of its ELF build id changed:
/// another toolchain, that compiles alike. Never in place, since a worker may have it
/// mapped.
inline void change_build_id(const std::filesystem::path& library) {
  const std::string id = read_build_id(library).value();
  std::string bytes =
      read_text_file(library, std::filesystem::file_size(library)).value();
  const std::size_t at = bytes.find(as_text(from_hex(id).value()));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  const std::filesystem::path other = library.string() + ".new";
  std::ofstream(other, std::ios::binary) << bytes;
  std::filesystem::rename(other, library);
  ASSERT_NE(read_build_id(library).value(), id);
}

inline compile::CompileJob job_for(const compile::NvrtcPaths& nvrtc, std::string source,
                                   device::Target target = {
                                       .architecture = {{8, 0}},
                                       .kind = device::ImageKind::kCubin}) {
  compile::CompileJob job;
  job.label = "test";
  job.source = std::move(source);
  job.options = {"--gpu-architecture=" + device::to_string(target)};
  job.nvrtc = nvrtc;
  job.target = target;
  return job;
}

inline compile::NvrtcPaths fake_nvrtc() {
  return {.nvrtc = paths::kFakeNvrtc, .builtins = {}};
}

}  // namespace kiln::test
