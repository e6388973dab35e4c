#include "tests/bench/child.h"

#include <fmt/format.h>

#include <cstdio>

#include "tests/bench/scratch.h"

namespace kiln::bench {

std::vector<std::string> child_command(std::string_view name,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command{this_program(), "--child", std::string(name)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

int run_child(std::string_view name, const std::vector<std::string>& arguments) {
  const auto done = do_child(name, arguments);
  if (done)
    return 0;
  fmt::print(stderr, "{}: {}\n", name, done.error().message);
  return 1;
}

}  // namespace kiln::bench
