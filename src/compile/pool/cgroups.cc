#include "compile/pool/cgroups.h"

#include <algorithm>

#include "util/proc_file.h"
#include "util/text.h"

namespace kiln::compile {
namespace {

namespace fs = std::filesystem;

void look_down(fs::path folder, std::string_view path,
               const std::function<void(const fs::path&)>& look) {
  look(folder);
  for (const std::string_view name : parts_of(path, "/")) {
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
  for (std::string_view line : parts_of(groups, "\n")) {
    const auto number = next_part(line, ":");
    const auto controllers = next_part(line, ":");
    if (number == "0" && controllers.empty()) {
      look_down(mounted, line, look);
      look_down(mounted / "unified", line, look);  // beside v1
    } else if (const auto all = parts_of(controllers, ",");
               std::ranges::find(all, controller) != all.end()) {
      look_down(mounted / controller, line, look);
    }
  }
}

std::optional<std::uint64_t> number_in(const fs::path& file, std::string_view name) {
  const auto text = read_proc_file(file);
  if (!text)
    return std::nullopt;
  for (std::string_view line : parts_of(*text, "\n")) {
    if (!line.starts_with(name))
      continue;
    line = trimmed(line.substr(name.size()), " ");
    return number_of<std::uint64_t>(next_part(line, " "));
  }
  return std::nullopt;
}

}  // namespace kiln::compile
