// Writes the texts that this program carries into a folder: the sources, and below
// `headers` their headers.

#include <filesystem>
#include <fstream>

#include "kernels.h"
#include "made.h"

namespace fs = std::filesystem;

namespace {

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  const fs::path folder = argv[1];
  for (const kiln::SourceOptions& each :
       {unpack::kernels::big_cu(), unpack::kernels::empty_cu(),
        unpack::kernels::fwd_odd_name_1_cu(), own::space::made::_3d_cu()}) {
    write(folder / each.file_name, each.source);
    for (const auto& [name, text] : each.headers)
      write(folder / "headers" / name, text);
  }
  return own::space::made::_3d_cu().headers.empty() ? 0 : 1;  // it was given none
}
