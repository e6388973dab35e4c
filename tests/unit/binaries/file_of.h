// Bytes as a file that a reader takes, and what it reads.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "binaries/device_code.h"
#include "tests/support/value_of.h"
#include "util/file_range.h"

namespace kiln::test {

inline FileRange file_of(ByteView bytes, const std::string& name = "file") {
  UniqueFd file(::memfd_create(name.c_str(), MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  return value_of(FileRange::of(std::move(file), name));
}

inline Result<binaries::DeviceCode> read_code(ByteView bytes) {
  return binaries::read_device_code(file_of(bytes));
}

/// "sm_90a zstd 13.0", of each kind of image, with "rel" where it is to be linked.
inline std::vector<std::string> names_of(const binaries::DeviceCode& code) {
  std::vector<std::string> names;
  for (const auto& [image, totals] : code.images)
    names.push_back(to_string(image.target) + " " +
                    std::string(word_of(image.compression)) + " " +
                    (image.toolkit ? to_string(*image.toolkit) : "?") +
                    (image.is_relocatable ? " rel" : "") +
                    (totals.count > 1 ? " x" + std::to_string(totals.count) : ""));
  return names;
}

}  // namespace kiln::test
