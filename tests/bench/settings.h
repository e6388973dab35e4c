// How large a run is.

#pragma once

#include <cstddef>
#include <filesystem>

namespace kiln::bench {

struct Settings {
  std::filesystem::path folder;  // scratch caches go below it
  unsigned rounds = 11;
  bool long_rows = false;  // those that fill 100,000 entries or compile for minutes

  // What a smoke run makes small.
  std::size_t set_kernels = 1000;
  std::size_t many_entries = 100'000;
  std::size_t warm_kernels = 400;
  std::size_t batch_calls = 2000;  // of what takes microseconds
  std::size_t publishes = 10;      // a sample
};

}  // namespace kiln::bench
