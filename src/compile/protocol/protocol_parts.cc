#include "compile/protocol/protocol_parts.h"

#include <fmt/format.h>

#include <utility>

namespace kiln::compile {

using Reader = FieldDecoder;

void add_paths(Fields& fields, const NvrtcPaths& paths) {
  fields.add("nvrtc", paths.nvrtc.native());
  fields.add("builtins", paths.builtins.native());
}

NvrtcPaths read_paths(Reader& reader) {
  return {.nvrtc = reader.text("nvrtc"), .builtins = reader.text("builtins")};
}

void add_library(Fields& fields, std::string_view label, const LoadedLibrary& library) {
  Fields inner;
  inner.add("path", library.path.native());
  inner.add("build id", library.build_id);
  add_nested(fields, label, inner);
}

LoadedLibrary read_library(Reader& reader, std::string_view label) {
  auto list = reader.nested(label, [](Reader& inner) {
    return LoadedLibrary{.path = inner.text("path"),
                         .build_id = inner.text("build id")};
  });
  if (list.size() != 1) {
    reader.note(fmt::format("field '{}' must be there once", label));
    return {};
  }
  return std::move(list.front());
}

}  // namespace kiln::compile
