// What a library with NVRTC's API answers, as text that can be compared: each call with
// its code, sizes and bytes. Knows no library in particular: the real one and one that
// stands in for it are called alike, and a function that a library lacks is "absent".

#pragma once

#include <nvrtc.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::test {

/// A header in memory.
struct NvrtcHeader {
  const char* name;
  const char* text;
};

/// The arguments of nvrtcCreateProgram. Any pointer may be null, and the arrays are
/// null if `no_names` or `no_texts` says so.
struct NvrtcInput {
  const char* source;
  const char* name = "k.cu";
  std::vector<NvrtcHeader> headers{};
  int header_count = kAll;  // what is passed as numHeaders
  bool no_names = false;
  bool no_texts = false;

  static constexpr int kAll = 1000;  // as many as there are
};

/// Calls a library and writes down what it answers. A program of its own is current:
/// the one that was created last. What differs between two runs of one library by
/// design (process id, time of day, milliseconds) is replaced by a word.
/// Thread safety: none.
class NvrtcRecorder {
 public:
  /// `library` is opened, and never closed: its threads may still run.
  explicit NvrtcRecorder(const std::filesystem::path& library);

  /// Version, architectures, and the text for each code and some that are none.
  void describe();
  void create(const NvrtcInput& input);
  void add(const char* expression);
  void compile(const std::vector<const char*>& options, int count = NvrtcInput::kAll);
  /// Asks twice: the answer's text must stay where it is until the next compile.
  void lowered(const char* expression);
  /// Each kind of output: its size, its bytes, and that no byte behind it was written.
  void outputs();
  void cancel();  ///< from now on a callback ends the program's compiles at once
  void destroy();
  /// Functions with each of their pointers null in turn, and with all of them; and the
  /// status of the program's precompiled header.
  void null_arguments();

  /// The codes of create to destroy, without those of outputs(), in order: "0 0 6 9".
  [[nodiscard]] const std::string& codes() const { return codes_; }
  /// All calls, a line each.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  template <typename Function>
  [[nodiscard]] Function find(const std::string& name) const;  // null: there is none
  /// Calls `name` as a Function, and writes its code down; -1 where it is absent.
  template <typename Function, typename... Arguments>
  int call(const std::string& name, Arguments... arguments);
  void output(const std::string& kind);
  void step(int code);
  void line(std::string_view text);
  [[nodiscard]] static std::string without_chance(std::string text);

  void* library_;
  nvrtcProgram program_ = nullptr;
  std::string codes_;
  std::string text_;
};

}  // namespace kiln::test
