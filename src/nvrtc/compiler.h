// What nvrtcCompileProgram gives, by way of the cache: from one call's inputs to the
// artifact, or to the reason why the real library has to make it.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "build/build_service.h"
#include "cache/object.h"
#include "kiln/request.h"
#include "kiln/result.h"
#include "library/request_record.h"

namespace kiln::nvrtc {

/// Why a call is the real library's.
enum class Reason : std::uint8_t {
  kArguments,     // that the real library refuses
  kCallback,      // that may end a compile
  kPrivate,       // the program is of a private function
  kOutput,        // an output that is not kept
  kOption,        // unknown, or its result is no cubin, PTX or LTO-IR
  kArchitecture,  // none is named, and the default is not known
  kPtxas,         // refused by ptxas, which leaves PTX
  kResult,        // a failure that is no result of the source
  kToolchain,     // the library's files cannot be read
  kNoWorker,      // none could start
  kNoService,     // the settings are wrong
  kCacheOff,
  kForked,
  kFailure,
};
inline constexpr std::size_t kReasonCount = 14;

/// "arguments", "cache_off": a word of the statistics.
[[nodiscard]] std::string_view to_string(Reason reason);

struct Passed {
  Reason reason;
  std::string detail{};  // may be empty
};

struct Compiled {
  int code = 0;                                         // an nvrtcResult
  std::string log{};                                    // without the NUL at its end
  std::shared_ptr<const cache::StoredObject> object{};  // null unless `code` is 0
};

/// Thread safety: every method may run concurrently. In a forked child everything is
/// passed.
class Compiler {
 public:
  /// Opened by the first call, and never closed: threads may compile while the process
  /// ends.
  [[nodiscard]] static Compiler& of_process();
  /// Null before that.
  [[nodiscard]] static Compiler* if_opened();

  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;
  ~Compiler() = default;

  /// What `library` would make of the inputs. Blocks, with a deadline.
  [[nodiscard]] tl::expected<Compiled, Passed> compile(
      const std::filesystem::path& library, SourceOptions source);

  /// Counts it, and tells the log.
  void count(const Passed& passed, std::string_view program);

  /// "2 hits, 1 built, 1 passed (option)", once the counts are on disk, or could not be
  /// written in a short time.
  [[nodiscard]] std::string end();

 private:
  struct Counts {
    std::atomic<std::uint64_t> hits = 0;
    std::atomic<std::uint64_t> built = 0;
    std::atomic<std::uint64_t> failed = 0;
    std::array<std::atomic<std::uint64_t>, kReasonCount> passed{};
  };

  explicit Compiler(Result<std::unique_ptr<BuildService>> service);
  [[nodiscard]] bool is_of_this_process() const;
  [[nodiscard]] tl::expected<Compiled, Passed> ended(const Error& error,
                                                     const Digest& key) const;
  [[nodiscard]] tl::expected<Compiled, Passed> compiled(
      const std::filesystem::path& library, SourceOptions source);
  /// Those of this process.
  [[nodiscard]] Counts* counts();

  Result<std::unique_ptr<BuildService>> service_;
  std::unique_ptr<RequestRecord> record_;  // null: nothing is recorded
  const std::uint64_t opened_by_;          // a fork_count()
  Counts counts_;
  Counts counts_of_child_;
};

}  // namespace kiln::nvrtc
