// The headers that a source can reach, as they were when its key was fixed.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cache/digest.h"
#include "cache/fields.h"
#include "key/file_stamp.h"
#include "key/include_tree.h"

namespace kiln::key {

/// A header outside the toolkit's include tree.
struct HeaderFile {
  std::string name;            // as the first #include that reached it spells it
  std::filesystem::path path;  // as the compiler will spell it; not part of the key
  FileStamp stamp;
  bool settled = false;  // is_settled(stamp) when it was read
  cache::Digest content;
};

/// An #include or __has_include whose operand is a macro.
struct ComputedInclude {
  std::string file;  // its name, or kernel.cu
  int line = 0;
  std::string directive;  // "#include CONFIG_HEADER"
};

/// A value: taken once when a request is first resolved, kept with it, and compared
/// with what the compiler opened. Thread safety: immutable once returned by the scan.
struct HeaderSnapshot {
  /// The key's part, in the order of discovery: "header/<name>" with the content's
  /// digest or "not found", "memory_header/<name>", "include_graph" (which #include
  /// found which of them), "toolkit_headers". No path occurs in them.
  cache::Fields fields;
  std::vector<HeaderFile> files;
  std::vector<ComputedInclude> computed;
  /// Set exactly if the source can reach it; its digest is then among the fields.
  std::shared_ptr<const IncludeTree> toolkit;
};

}  // namespace kiln::key
