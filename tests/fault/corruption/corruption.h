// What the tests of damaged caches share: a root with real objects in it, a cache
// opened as the service opens it, and the count of what was injected.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "tests/fault/corruption/real_objects.h"
#include "tests/support/fault_length.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/unique_fd.h"

namespace kiln::test {

/// Prints `<name of the test>: injected=N wrong=M` at its end. A wrong answer is one
/// that a caller would have used: other bytes than were built, or a hit where the file
/// was damaged.
class Corruption : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] static const RealObjects& objects();
  [[nodiscard]] const cache::Layout& layout() const { return layout_; }
  /// A new cache on the same root; the one before is closed.
  void reopen();

  /// A fault is in place: whoever asks for `object` must miss. `what` and `where` are
  /// for the message.
  void expect_miss(const RealObject& object, const char* what, std::size_t where = 0);
  /// Must miss or get the right bytes.
  Answer expect_not_wrong(const RealObject& object, const char* what,
                          std::size_t where = 0);
  /// Must get the right bytes of every object: a fault elsewhere costs no hit.
  void expect_all_right(const char* what, std::size_t where = 0);
  void count(std::size_t injected, std::size_t wrong);

  const TempDir temp_;
  const std::filesystem::path root_ = temp_.path() / "root";
  const cache::Layout layout_{root_};
  std::unique_ptr<cache::Cache> cache_;

 private:
  void note(bool wrong, const char* what, std::size_t where);

  std::size_t injected_ = 0;
  std::size_t wrong_ = 0;
};

/// The file of an object, open for damage. A cache that finds the damage sets the file
/// aside; take_back() undoes that, so that one file serves for any number of faults.
/// Thread safety: none.
class DamagedFile {
 public:
  DamagedFile(const cache::Layout& layout, const RealObject& object);

  void write(std::size_t offset, ByteView bytes);
  void resize(std::size_t size);
  /// All bytes, and no more of them.
  void rewrite(ByteView file);
  /// The name of the check that the file failed; nullopt if it was not set aside.
  std::optional<std::string> take_back();

 private:
  const cache::Layout& layout_;
  const std::string path_;
  const UniqueFd fd_;
};

/// The checks that the files in quarantine failed.
[[nodiscard]] std::vector<std::string> quarantined(const cache::Layout& layout);

}  // namespace kiln::test
