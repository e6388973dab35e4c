#include "tests/bench/child.h"

#include "tests/bench/scratch.h"

namespace kiln::bench {

std::vector<std::string> child_command(std::string_view name,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command{this_program(), "--child", std::string(name)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace kiln::bench
