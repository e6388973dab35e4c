// The kiln program as its users meet it: arguments, environment and input go in; exit
// status, output and messages come out. Nothing of the host's caches is touched.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_dir.h"

namespace kiln::test {

/// What a program left behind.
struct Finished {
  int status = -1;  // the exit status; 128 + N where signal N killed it
  std::string out;
  std::string err;

  /// The document on stdout. A test failure and null unless it is exactly one.
  [[nodiscard]] nlohmann::json json() const;
  /// All of it, for a failure's message.
  [[nodiscard]] std::string text() const;
};

/// A program that was started. Killed and waited for when it goes out of scope.
class Running {
 public:
  Running(pid_t pid, std::filesystem::path out, std::filesystem::path err);
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  Running(Running&& other) noexcept;
  Running& operator=(Running&&) = delete;
  ~Running();

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string err_so_far() const;
  void signal(int number) const;
  /// Waits for its end. One that takes longer than `limit` is killed: a test failure.
  Finished finish(std::chrono::seconds limit = std::chrono::seconds(240));

 private:
  pid_t pid_;  // -1 once it was waited for
  std::filesystem::path out_;
  std::filesystem::path err_;
};

/// Runs kiln with a home, a cache and an environment of its own.
/// Thread safety: none, but start() any number and let them run side by side.
class KilnProgram {
 public:
  KilnProgram();

  using Arguments = std::vector<std::string>;
  Finished run(const Arguments& arguments, std::string_view input = "");
  [[nodiscard]] Running start(const Arguments& arguments, std::string_view input = "");
  /// As run(), of a command line for sh, in which `kiln` is the program.
  Finished run_in_shell(const std::string& command);
  /// As run(), on a terminal of so many columns: `out` has both streams. The user
  /// types `typed` as soon as `after` has been printed.
  Finished run_on_terminal(const Arguments& arguments, std::string_view typed = "",
                           unsigned short columns = 100, std::string_view after = "");

  void set(const std::string& variable, const std::string& value);
  void unset(const std::string& variable);
  /// From now on the compiler is the fake one, in this mode; "" is honest.
  void use_fake_nvrtc(const std::string& mode = "");

  [[nodiscard]] const std::filesystem::path& folder() const { return temp_.path(); }
  [[nodiscard]] std::filesystem::path cache_dir() const;
  /// Writes a file below folder() and returns its path.
  std::string write(const std::string& name, std::string_view text);
  /// Of every object in the cache.
  [[nodiscard]] std::vector<std::filesystem::path> object_files() const;

  /// The document of `arguments` and --json; a test failure unless it exits with
  /// `status`.
  nlohmann::json json_of(Arguments arguments, int status = 0);
  /// Compiles `source` for `arch` and returns the key.
  std::string compiled(std::string_view source, const std::string& arch = "9.0",
                       const Arguments& more = {});

 private:
  [[nodiscard]] std::vector<std::string> environment() const;
  [[nodiscard]] Running start_words(std::vector<std::string> words,
                                    std::string_view input);

  TempDir temp_;
  std::map<std::string, std::string> environment_;
  int runs_ = 0;
};

/// One command line, then the other. Users outside of this namespace name it in a
/// using-declaration: both operands are the standard library's.
[[nodiscard]] KilnProgram::Arguments operator+(KilnProgram::Arguments arguments,
                                               const KilnProgram::Arguments& more);

/// Those of a command line, which has no quotes.
[[nodiscard]] KilnProgram::Arguments words(const std::string& line);

/// A folder of templates that compile in no time: `tiny_fwd` and `tiny_bwd`, each with
/// `dtype` (f16, bf16, f32; required) and `wide` (a boolean); `tiny_bwd` from 8.0 on.
/// The default set has 12 variants, the quick one 2. Returns the folder's path.
std::string write_tiny_templates(KilnProgram& kiln);

inline constexpr const char* kTinySource =
    "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] *= 2; }\n";

}  // namespace kiln::test

namespace kiln {

using Arguments = test::KilnProgram::Arguments;
using nlohmann::json;
using test::operator+;

}  // namespace kiln
