// The rows of the table, by what they are about, and how large a run of them is.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/result.h"
#include "tests/bench/comparison.h"

namespace kiln::bench {

struct Settings {
  std::filesystem::path folder;  // scratch caches go below it
  unsigned rounds = 11;
  bool long_rows = false;  // those that fill 100,000 entries or compile for minutes

  // What a smoke run makes small.
  std::size_t set_kernels = 1000;
  std::size_t many_entries = 100'000;
  std::size_t warm_kernels = 400;
  std::size_t cub_kernels = 40;
  std::size_t job_kernels = 12;
  std::size_t batch_calls = 2000;  // of what takes microseconds
  std::size_t publishes = 10;      // a sample
  std::size_t transfers = 1000;
};

/// All of this program; each has its own.
[[nodiscard]] std::vector<Row> all_rows(const Settings& settings);

/// What this program does when a row starts it again with child_command(); each has its
/// own children. Errors: kInvalidArgument for a name that it does not know; as the
/// child.
[[nodiscard]] Result<void> do_child(std::string_view name,
                                    const std::vector<std::string>& arguments);

[[nodiscard]] std::vector<Row> key_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> hit_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> build_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> precompiled_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> remote_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> publish_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> transfer_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> list_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> attention_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> interpreter_rows(const Settings& settings);
[[nodiscard]] std::vector<Row> plan_rows(const Settings& settings);

}  // namespace kiln::bench
