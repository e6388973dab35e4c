// The headers that a source can reach, as they were when its key was fixed.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codec/digest.h"
#include "codec/fields.h"
#include "key/include_tree.h"
#include "util/file_stamp.h"

namespace kiln::key {

/// The largest header that a key can hold.
inline constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{64} << 20U;

/// A header outside the toolkit's include tree.
struct HeaderFile {
  std::string name;            // as the first #include that reached it spells it
  std::filesystem::path path;  // as the compiler will spell it; not part of the key
  FileStamp stamp;             // of the descriptor that read it
  bool settled = false;        // is_settled(stamp) when it was read
  Digest content;
  /// Why it may be different in each build although nobody changed it; "" for most.
  std::string varies;
};

/// An #include or __has_include whose operand is a macro.
struct ComputedInclude {
  std::string file;  // its name, or the source's
  int line = 0;
  std::string directive;  // "#include CONFIG_HEADER"
};

/// A text without a file that may be different in each build: the source, a header in
/// memory, the value of a macro.
struct VaryingText {
  std::string name;
  std::string reason;  // as HeaderFile::varies
};

/// One tree of the toolkit's headers, or that of the standard headers.
struct ToolkitTree {
  std::string name;                            // "toolkit", "toolkit2", kStandardTree
  std::shared_ptr<const IncludeTree> headers;  // never null
  /// The path in the tree of each folder in it that is searched: "" and "cccl/", say.
  std::vector<std::string> folders;
};

/// Where the scan looked: a file that appears or disappears there changes the key.
struct HeaderLookups {
  /// By the path as the compiler spells it; nullopt: no readable file was there.
  std::unordered_map<std::string, std::optional<FileStamp>> files;
  /// The request's own folders, with a '/' at the end. If the toolkit is in the key,
  /// the scan looked in them for everything that the toolkit's headers may include.
  std::vector<std::string> folders;
};

/// Taken once, when a request is first resolved; kept with it and compared with what
/// the compiler opened. Thread safety: immutable once returned by the scan.
struct HeaderSnapshot {
  /// The fields of the key, in the order of discovery: "header/<name>" with the
  /// content's digest or "not found", "memory_header/<name>", "include_graph" (which
  /// #include found which of them), "toolkit_headers", for a second tree
  /// "toolkit2_headers", "standard_headers". No install path occurs in them.
  Fields fields;
  std::vector<HeaderFile> files;
  std::vector<ComputedInclude> computed;    // of #include
  std::vector<ComputedInclude> conditions;  // of __has_include
  std::optional<VaryingText> varying;
  /// The source, a header in memory, a macro's value or a name expression names the
  /// file that it is in (Directives::names_file).
  bool names_program = false;
  /// Empty if the source cannot reach them; otherwise their digests are in `fields`.
  std::vector<ToolkitTree> toolkit;
  /// The folder of the standard headers if the source can reach one; then their tree is
  /// the last of `toolkit`. "": the compiler must not get that folder.
  std::filesystem::path standard_headers;
  HeaderLookups lookups;
};

}  // namespace kiln::key
