// Pieces of CUDA C++ as people compile it with NVRTC, each with the headers it needs.
// One by itself, or several together, make a source.

#pragma once

#include <span>
#include <string>
#include <vector>

namespace kiln::test {

struct Piece {
  const char* name;
  /// Names of headers, one blank between them.
  const char* headers;
  /// In the body of a kernel with the parameters `float* f` and `int* n`.
  const char* code;
  /// At namespace scope, before the kernel.
  const char* before = "";
  /// Kiln makes no precompiled header of these headers.
  bool has_none = false;
};

/// Of CUDA's toolkit: CUB, libcu++, Thrust, cooperative groups, number formats, cuRAND.
[[nodiscard]] std::span<const Piece> toolkit_pieces();

/// Of a user's own headers, which write_own_headers() writes.
[[nodiscard]] std::span<const Piece> own_pieces();
void write_own_headers(const std::string& folder);

/// What source_of(pieces) begins with.
[[nodiscard]] std::string includes_of(const std::vector<Piece>& pieces);
[[nodiscard]] std::string source_of(const std::vector<Piece>& pieces);

}  // namespace kiln::test
