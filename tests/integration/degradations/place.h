// A cache root, the program on it, and what can happen to both.

#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "cache/owned_range.h"
#include "tests/support/damaged_object.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/service_requests.h"
#include "util/read_file.h"
#include "util/unique_fd.h"

namespace kiln::test {

/// Thread safety: none.
class Place {
 public:
  Place() { kiln_.use_fake_nvrtc(); }

  KilnProgram& kiln() { return kiln_; }
  [[nodiscard]] std::filesystem::path root() const { return kiln_.cache_dir(); }
  [[nodiscard]] cache::Layout layout() const { return cache::Layout(root()); }
  [[nodiscard]] std::filesystem::path object(const std::string& key) const {
    return layout().object(Digest::from_hex(key).value());
  }

  std::string build(const char* arch = "9.0") {
    return kiln_.compiled(kTinySource, arch);
  }
  /// As build(), where it is not expected to go well.
  void try_to_build(const KilnProgram::Arguments& more = {}) {
    KilnProgram::Arguments arguments{"compile", kiln_.write("source.cu", kTinySource),
                                     "--arch", "9.0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_NE(kiln_.run(arguments).status, 0);
  }

  /// Writes over an object's file.
  void replace(const std::string& key, ByteView bytes) const {
    const std::filesystem::path path = object(key);
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << as_text(bytes);
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  }
  [[nodiscard]] Bytes bytes_of(const std::string& key) const {
    return read_file(object(key), 1U << 20U).value().value();
  }
  /// Builds, changes a field so that the checksum fits, and asks for it again.
  void build_damaged(const std::function<void(Bytes&)>& damage) {
    const std::string key = damaged(damage);
    EXPECT_EQ(build(), key);
  }
  /// As build_damaged(), for what only `verify` looks at.
  void verify_damaged(const std::function<void(Bytes&)>& damage) {
    damaged(damage);
    EXPECT_EQ(kiln_.run({"verify", "--quarantine"}).status, 1);
  }
  void age(const std::filesystem::path& path) const {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }

  /// Holds a place that this test's process took and says nothing about, as a process
  /// that was stopped an hour ago would.
  [[nodiscard]] UniqueFd hold_silently(const std::filesystem::path& file,
                                       std::uint64_t record, const Digest& key) const {
    cache::FileSystem& files = cache::real_file_system();
    EXPECT_EQ(cache::make_folders(files, file.parent_path()), 0);
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    cache::OwnerRecord owner;
    owner.pid = ::getpid();
    owner.key = key;
    owner.phase = cache::Phase::kCompiling;
    owner.started = owner.phase_started = owner.heartbeat =
        cache::boot_time_now() - std::chrono::hours(1);
    owner.build_limit = std::chrono::hours(24);
    const std::uint64_t offset = record * cache::kOwnerRecordBytes;
    EXPECT_GT(files.pwrite(fd.get(), owner.encode(), offset), 0);
    EXPECT_EQ(files.set_lock(fd.get(), cache::RangeLock::kExclusive, offset,
                             cache::kOwnerRecordBytes),
              0);
    return fd;
  }

  /// A service in this process, with the fake compiler in this mode.
  [[nodiscard]] Config config(const char* mode) const {
    ::setenv("KILN_FAKE_NVRTC", mode, 1);  // NOLINT(concurrency-mt-unsafe)
    Config made = service_config(root());
    made.nvrtc = test::paths::kFakeNvrtc;
    return made;
  }

 private:
  std::string damaged(const std::function<void(Bytes&)>& damage) {
    const std::string key = build();
    Bytes file = bytes_of(key);
    damage(file);
    repair_checksum(file);
    replace(key, file);
    return key;
  }

  KilnProgram kiln_;
};

}  // namespace kiln::test
