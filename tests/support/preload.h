// libkiln-preload.so in front of the program under test; what it can do stands at the
// top of preload.cc. Link kiln_test_preload.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace kiln::test {

/// What the preload library is to do.
struct Preload {
  std::filesystem::path network;  // is on NFS
  std::filesystem::path locks;    // whose lock calls are recorded
  std::string clock;              // seconds; "-86400"

  /// For what `kiln` starts from now on.
  void into(KilnProgram& kiln) const {
    kiln.set("LD_PRELOAD", paths::kPreload);
    kiln.set("ASAN_OPTIONS", "verify_asan_link_order=0");
    kiln.set("KILN_PRELOAD_RECORD", record(kiln));
    if (!network.empty())
      kiln.set("KILN_PRELOAD_NETWORK", network);
    if (!locks.empty())
      kiln.set("KILN_PRELOAD_LOCKS", locks);
    if (!clock.empty())
      kiln.set("KILN_PRELOAD_CLOCK", clock);
  }

  static void out_of(KilnProgram& kiln) {
    for (const char* variable :
         {"LD_PRELOAD", "ASAN_OPTIONS", "KILN_PRELOAD_RECORD", "KILN_PRELOAD_NETWORK",
          "KILN_PRELOAD_LOCKS", "KILN_PRELOAD_CLOCK"})
      kiln.unset(variable);
  }

  /// The lock calls that were made so far, as "fcntl <path>".
  [[nodiscard]] static std::vector<std::string> lock_calls(const KilnProgram& kiln) {
    std::vector<std::string> calls;
    std::ifstream file(record(kiln));
    for (std::string line; std::getline(file, line);) calls.push_back(line);
    return calls;
  }

 private:
  static std::filesystem::path record(const KilnProgram& kiln) {
    return kiln.folder() / "lock-calls";
  }
};

}  // namespace kiln::test
