// One program of NVRTC's API: what was given to it, and what became of its compiles.
// The rules, and results by their numbers, are those of NVRTC 12.4 to 13.5.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/object.h"
#include "nvrtc/compiler.h"
#include "standin/engine.h"

namespace kiln::nvrtc {

/// What nvrtcGet…Size and nvrtcGet… are asked for.
enum class Output : std::uint8_t { kPtx, kCubin, kLtoIr, kLog, kOther };

/// What nvrtcCreateProgram was given: copies.
struct Inputs {
  std::string source;
  std::string name;
  std::map<std::string, std::string> headers;
};

/// Thread safety: none, as of NVRTC's.
class Program {
 public:
  explicit Program(Inputs inputs) : inputs_(std::move(inputs)) {}

  /// The program of the real library that does all that is still asked for; null as
  /// long as there is none.
  [[nodiscard]] standin::Program passed_to() const { return real_; }
  /// Makes it, and repeats there all that was asked for before. The result is that of
  /// nvrtcCreateProgram.
  [[nodiscard]] int pass(const standin::RealLibrary& real, const Passed& why);

  [[nodiscard]] int add_name(const char* expression);
  /// nullopt: it is passed, and the call has not been made.
  [[nodiscard]] std::optional<int> compile(const standin::RealLibrary& real,
                                           std::span<const char* const> options);
  [[nodiscard]] int lowered_name(const char* expression, const char** lowered) const;
  /// Where the object has no log, the real library compiles once more for that alone.
  void find_log(const standin::RealLibrary& real);
  /// With its NUL where it has one; empty: there is none. Valid until the next compile.
  [[nodiscard]] std::span<const std::byte> output(Output output);

 private:
  using Object = std::shared_ptr<const cache::StoredObject>;
  using Options = std::vector<std::string>;

  /// Without its folder, which is often a temporary one.
  [[nodiscard]] std::string shown_name() const;
  void take(const Object& object);
  /// A program of the real library in which all that was asked for is repeated.
  [[nodiscard]] int repeat(const standin::RealLibrary& real,
                           standin::Program& made) const;

  const Inputs inputs_;
  std::vector<std::string> names_;
  std::vector<Options> compiles_;  // to be repeated
  bool has_compiled_ = false;      // so that names come too late
  bool has_succeeded_ = false;
  std::string log_;
  Object ptx_;  // PTX, or a cubin with its PTX
  std::optional<std::string> ptx_text_;
  Object cubin_;
  Object lto_ir_;
  // Of each compile, the last one's at the end: callers have pointers into all of them.
  std::deque<std::map<std::string, std::string, std::less<>>> lowered_;
  standin::Program real_ = nullptr;
};

/// Calls a function of the real library.
template <typename... Arguments>
int call_real(const standin::RealLibrary& real, const char* function,
              Arguments... arguments) {
  const auto call = reinterpret_cast<int (*)(Arguments...)>(real.find(function));
  return call(arguments...);
}

}  // namespace kiln::nvrtc
