// kiln-support-matrix: writes src/attention/SUPPORT.md anew.
//   kiln-support-matrix OUTPUT.md

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "tools/support_matrix/support_matrix.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: kiln-support-matrix OUTPUT.md\n");
    return 2;
  }
  std::ofstream out(argv[1], std::ios::binary | std::ios::trunc);
  out << kiln::attention::support_matrix(kiln::attention::built_in_rules());
  out.close();
  if (!out) {
    fmt::print(stderr, "{}: cannot be written\n", argv[1]);
    return 1;
  }
  return 0;
}
