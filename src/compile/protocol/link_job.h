// A job of nvJitLink: makes one cubin of several objects. Plain values, as in job.h;
// the answer is a CompileOutput, whose `nvrtc` is the nvJitLink that was loaded.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "device/architecture.h"
#include "util/bytes.h"

namespace kiln::compile {

struct LinkInput {
  std::string name;  // in nvJitLink's messages
  Bytes bytes;       // a cubin, PTX, LTO-IR, fat binary, host object or archive
  friend bool operator==(const LinkInput&, const LinkInput&) = default;
};

struct LinkJob {
  /// What messages call this link: the names of its sources.
  std::string label = {};
  std::filesystem::path linker = {};  // libnvJitLink, absolute
  std::vector<std::string> options = {};
  std::vector<LinkInput> inputs = {};  // in the order of the link
  /// libcudadevrt.a, linked only where something needs it; empty: there is none.
  Bytes device_runtime = {};
  device::Target target = {};  // that `options` ask for
  /// Of the NVRTC that compiled the inputs, as driver_value() gives it; 0: not known.
  int cuda_version = 0;
  /// As CompileJob's. Zero: the pool's default.
  std::chrono::milliseconds time_limit{0};
  std::uint64_t memory_limit_bytes = 0;
  friend bool operator==(const LinkJob&, const LinkJob&) = default;
};

}  // namespace kiln::compile
