#include "compile/pool/cgroups.h"

#include <algorithm>
#include <charconv>

#include "util/proc_file.h"

namespace kiln::compile {
namespace {

namespace fs = std::filesystem;

/// Takes the next part of `text`, up to `end`, off it.
std::string_view take_up_to(char end, std::string_view& text) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (take_up_to(',', list) == word)
      return true;
  }
  return false;
}

void look_down(fs::path folder, std::string_view path,
               const std::function<void(const fs::path&)>& look) {
  look(folder);
  while (!path.empty()) {
    const auto name = take_up_to('/', path);
    if (name.empty())
      continue;
    folder /= name;
    look(folder);
  }
}

}  // namespace

void for_each_cgroup(const fs::path& root, std::string_view controller,
                     const std::function<void(const fs::path&)>& look) {
  // Lines of "number:controllers:path"; v2 has the number 0 and no controllers.
  const auto groups = read_proc_file(root / "proc/self/cgroup").value_or("");
  const fs::path mounted = root / "sys/fs/cgroup";
  for (std::string_view rest = groups; !rest.empty();) {
    std::string_view line = take_up_to('\n', rest);
    const auto number = take_up_to(':', line);
    const auto controllers = take_up_to(':', line);
    if (number == "0" && controllers.empty()) {
      look_down(mounted, line, look);
      look_down(mounted / "unified", line, look);  // beside v1
    } else if (has_word(controllers, controller)) {
      look_down(mounted / controller, line, look);
    }
  }
}

std::optional<std::uint64_t> number_in(const fs::path& file, std::string_view name) {
  const auto text = read_proc_file(file);
  if (!text)
    return std::nullopt;
  std::string_view rest = *text;
  std::string_view line = take_up_to('\n', rest);
  while (!line.starts_with(name) && !rest.empty()) line = take_up_to('\n', rest);
  if (!line.starts_with(name))
    return std::nullopt;
  line.remove_prefix(name.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(line.data(), line.data() + line.size(), value);
  const bool is_number = error == std::errc{} && (end == line.end() || *end == ' ');
  return is_number ? std::optional(value) : std::nullopt;
}

}  // namespace kiln::compile
