// Shell scripts in the place of a worker: what one says, how it ends and what it leaves
// are the test's, in milliseconds and without a compiler.

#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "compile/protocol/protocol.h"
#include "kiln/version.h"
#include "tests/support/temp_dir.h"

namespace kiln::compile {

class ScriptedWorker {
 public:
  /// The path of an executable that runs `text`.
  std::filesystem::path script(std::string_view text) {
    const auto path = folder_.path() / ("worker-" + std::to_string(++files_));
    std::ofstream(path) << "#!/bin/sh\n" << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  /// A line of a script that sends that.
  std::string send(const Reply& reply) { return send(as_text(encode_reply(reply))); }
  std::string send(std::string_view bytes) {
    const auto path = folder_.path() / ("frame-" + std::to_string(++files_));
    std::ofstream(path, std::ios::binary) << bytes;
    return "cat " + path.native() + " >&3\n";
  }
  std::string say_hello() { return send(Hello{std::string(build_id())}); }

  /// A line of a script that leaves a trace, and how many have been left.
  [[nodiscard]] std::string leave_a_trace() const {
    return "echo x >>" + traces().native() + '\n';
  }
  [[nodiscard]] std::ptrdiff_t traces_left() const {
    std::ifstream list(traces());
    return std::count(std::istreambuf_iterator<char>(list), {}, '\n');
  }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

  static constexpr std::string_view kStay = "exec sleep 60\n";

 private:
  [[nodiscard]] std::filesystem::path traces() const { return folder() / "traces"; }

  const test::TempDir folder_;
  int files_ = 0;
};

}  // namespace kiln::compile
