// The oracle: writes a crash state to a real folder, opens the cache in it, and
// compares what the cache answers with a table of objects that the cache never sees.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.h"
#include "tests/fault/power_loss/crash_states.h"
#include "tests/fault/power_loss/disk.h"

namespace kiln::test {

/// Objects that their number determines, byte for byte.
class ReferenceTable {
 public:
  explicit ReferenceTable(int count);

  [[nodiscard]] int count() const { return static_cast<int>(objects_.size()); }
  [[nodiscard]] const cache::StoredObject& object(int number) const {
    return objects_[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] std::optional<int> number_of(const Digest& key) const;
  /// Relative to the root of the cache.
  [[nodiscard]] std::string path(int number) const;

 private:
  std::vector<cache::StoredObject> objects_;
};

/// A folder in memory where there is one, so that thousands of states cost little.
class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct CrashReport {
  std::size_t injected = 0;  // states
  std::size_t wrong = 0;     // in which a hit gave other bytes than the table's
  std::size_t failed = 0;    // in which a call failed that must not
  /// In which an object has its name, and is not whole.
  std::size_t torn = 0;
  /// In which an object is gone, name and all, although its publisher was told that it
  /// is stored. Without a sync of its folder no name is promised to last.
  std::size_t lost = 0;
  std::vector<std::string> complaints;  // of the first that are wrong or failed

  CrashReport& operator+=(const CrashReport& other);
};

/// One line, for a log of the whole fault table.
void print(std::string_view fact, const CrashReport& report);

class CrashChecker {
 public:
  /// `damaged`: objects whose file was no object before the log began.
  explicit CrashChecker(const ReferenceTable& table, std::set<int> damaged = {});

  void check(const CrashState& state);
  [[nodiscard]] const CrashReport& report() const { return report_; }

 private:
  /// What the checks of one state found.
  struct Findings {
    bool wrong = false;
    bool failed = false;
    bool torn = false;
    bool lost = false;
  };
  using Cache = cache::Cache;

  void find_all(Cache& cache, const CrashState& state);
  void find_again(Cache& cache, bool must_hit);
  void verify(Cache& cache);
  void publish_again(Cache& cache);
  void list(Cache& cache);
  void count(const std::filesystem::path& root);
  void trim(Cache& cache);
  /// True for a hit.
  bool find(Cache& cache, int number);
  void expect(bool good, std::string_view what);

  const ReferenceTable& table_;
  const std::set<int> damaged_;
  const ScratchFolder scratch_;
  Findings now_;
  std::vector<std::string> said_;  // of the state at hand
  CrashReport report_;
};

}  // namespace kiln::test
