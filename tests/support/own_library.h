// A copy of a library of the tests that nobody else has opened, with functions beside
// those that it stands in for: its remote control.

#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace kiln::test {

/// The library stays loaded until the process ends, as the real one does; its file goes
/// with this object. Thread safety: every method may run concurrently.
class OwnLibrary {
 public:
  explicit OwnLibrary(const std::filesystem::path& original)
      : name_(original.filename()) {
    std::filesystem::copy_file(original, path());
    library_ = ::dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): its text is the thread's own in glibc
    EXPECT_NE(library_, nullptr) << ::dlerror();
  }

  /// It leads to this very copy.
  [[nodiscard]] std::filesystem::path path() const { return dir_.path() / name_; }

  /// A function by its symbol; null where there is none.
  template <typename Function>
  [[nodiscard]] Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(::dlsym(library_, symbol));
  }
  /// The same of one that has to be there.
  template <typename Function>
  [[nodiscard]] Function* control(const char* symbol) const {
    auto* const function = find<Function>(symbol);
    EXPECT_NE(function, nullptr) << symbol;
    return function;
  }

 private:
  TempDir dir_;
  std::filesystem::path name_;
  void* library_ = nullptr;
};

}  // namespace kiln::test
