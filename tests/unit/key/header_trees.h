// Two include folders and a toolkit to scan.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files.h"
#include "key/header_scan.h"
#include "tests/support/temp_dir.h"

namespace kiln::key {

class HeaderScanTest : public testing::Test {
 protected:
  HeaderScanTest() {
    input_.include_dirs = {one_, two_};
    std::filesystem::create_directories(one_);
    std::filesystem::create_directories(two_);
    std::filesystem::create_directories(toolkit_ / "cccl");
  }

  HeaderScan scan() { return scan_with(HeaderScanner(memo_)); }
  HeaderScan scan_with(const HeaderScanner& scanner) {
    auto result =
        scanner.scan(input_, toolkit_folders_, standard_headers_, test::later());
    EXPECT_TRUE(result) << result.error().message;
    return result ? *std::move(result) : HeaderScan{};
  }
  Fields fields() { return scan().headers->fields; }
  std::string value(std::string_view label) {
    return std::string(fields().find(label).value_or("none"));
  }

  test::TempDir dir_;
  std::filesystem::path one_ = dir_.path() / "one";
  std::filesystem::path two_ = dir_.path() / "two";
  std::filesystem::path toolkit_ = dir_.path() / "toolkit";
  std::vector<std::filesystem::path> toolkit_folders_ = {toolkit_, toolkit_ / "cccl"};
  std::filesystem::path standard_headers_;  // none, unless a test makes them
  std::filesystem::path memo_ = dir_.path() / "memo";
  SourceKeyInput input_;
};

}  // namespace kiln::key
