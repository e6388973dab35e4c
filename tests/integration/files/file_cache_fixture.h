// A service with a cache of its own, and files as a test makes and reads them.

#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "codec/named_files.h"
#include "kiln/file_cache.h"
#include "tests/support/service_requests.h"
#include "tests/support/temp_dir.h"
#include "tests/support/value_of.h"

namespace kiln::test {

/// "name" -> bytes.
using Texts = std::map<std::string, std::string>;

inline Texts texts_of(const CachedFiles& given) {
  Texts texts;
  for (const std::string& name : given.names) {
    std::ifstream file(given.folder / name, std::ios::binary);
    texts[name].assign(std::istreambuf_iterator<char>(file), {});
  }
  return texts;
}

inline std::vector<NamedFile> files_of(const Texts& texts) {
  std::vector<NamedFile> files;
  for (const auto& [name, text] : texts) files.push_back({name, as_bytes(text), false});
  return files;
}

class FileCacheTest : public testing::Test {
 protected:
  /// As another process sees the same cache.
  struct Opened {
    explicit Opened(const Config& config)
        : service(open_service(config)),
          files(value_of(FileCache::open(
              {.cache_dir = config.cache_dir, .no_jit = config.no_jit}))) {}
    std::unique_ptr<BuildService> service;  // to look at the cache
    FileCache files;
  };

  FileCacheTest() { ::setenv("TMPDIR", private_.path().c_str(), 1); }
  ~FileCacheTest() override { ::unsetenv("TMPDIR"); }

  [[nodiscard]] Config config() const { return service_config(temp_.path() / "cache"); }
  [[nodiscard]] std::filesystem::path object(const std::string& key) {
    return here_.service->cache().layout().object(digest(key));
  }
  static Digest digest(const std::string& key) {
    return Digest::from_hex(key).value_or(Digest());
  }
  /// A file outside of all files.
  [[nodiscard]] std::string log() const { return (temp_.path() / "log").native(); }
  static FileRequest request(const std::string& field = "1") {
    return {.fields = {{"of", field}, {"kind", "test"}},
            .name = "test_kernel",
            .target = "sm_90",
            .tool = "cc-12"};
  }

  const TempDir temp_;
  const TempDir private_;  // where private folders are
  Opened here_{config()};
};

}  // namespace kiln::test
