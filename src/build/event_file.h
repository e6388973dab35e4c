// KILN_EVENTS and `warm --events`: a file that gets one JSON line for each kernel, plan
// or result of files that a process asked for. docs/guide.md lists the members.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "build/config.h"
#include "cache/cache.h"
#include "codec/digest.h"
#include "kiln/result.h"
#include "util/line_file.h"

namespace kiln {

/// Views must outlive the call that gets it.
struct BuildEvent {
  std::string_view name;     // "scaled_softmax_fwd:dtype=bf16", "scale.cu"
  std::string_view arch;     // "9.0a"
  std::string_view outcome;  // "hit", "compiled", "waited", "failed", "passed", ...
  std::optional<cache::Tier> tier{};  // where it comes from
  std::string_view server{};          // of a remote
  bool stored = false;
  std::chrono::milliseconds took{0};                    // of the whole request
  std::optional<std::chrono::milliseconds> built_in{};  // of the build alone
  const Digest* key = nullptr;
  std::optional<int> device{};  // the ordinal, where it is for a device of this process
  std::string_view nearest{};   // why it was not in the cache
  std::string_view reason{};    // of "passed"
  const Error* error = nullptr;
};

/// The line of a message that its log follows.
[[nodiscard]] std::string_view first_line(std::string_view message);

/// Thread safety: write() may run concurrently, and other processes may write to the
/// same file. Fork safety: a forked child goes on writing, as itself.
class EventFile {
 public:
  /// Appends to Config::events, which is set, or to EVENTS/<host>.<pid>.jsonl where it
  /// is a folder: on a network file system, two nodes cannot append to one file.
  /// Errors: as LineFile::open; kUnavailable for a mount that gives no answer.
  [[nodiscard]] static Result<std::unique_ptr<EventFile>> open(
      const Config& config, LineFile::Takes takes = LineFile::Takes::kRegularFiles);

  /// Writes one line, with the time, this host and process. The first line that cannot
  /// be written is logged; the work goes on.
  void write(const BuildEvent& event);

 private:
  EventFile(std::unique_ptr<LineFile> file, const Config& config);

  // Constant after construction.
  const std::unique_ptr<LineFile> file_;
  const std::string host_;
  const std::optional<std::uint32_t> rank_;
  const std::optional<std::string> traceparent_;
  const bool has_messages_;  // of errors, which may quote the source

  std::atomic<bool> has_failed_ = false;
};

}  // namespace kiln
