// What makes one copy of libkiln-nvrtc.so the stand-in of one real library. The audit
// module writes it into the file; the copy only reads it.

#pragma once

#include <cstddef>

namespace kiln::standin {

/// The name of the variable, which the copies do not export.
inline constexpr const char* kIdentity = "kiln_standin_identity";

/// The soname, and the version of all symbols, before the real library's are written
/// over it; libkiln-nvrtc.map has it, too.
inline constexpr char kSoname[] =
    "kiln_standin_name_and_version_of_the_real_nvrtc_library";

/// In the path by which a stand-in opens the real library: the audit module leaves such
/// a path alone, and no program spells one so, whose name would then be the same for
/// the loader.
inline constexpr char kUncaught[] = "/.//.//";

struct Identity {
  static constexpr std::size_t kCapacity = 4096;
  // NUL-terminated.
  char real_path[kCapacity];    // with kUncaught before the last part
  char engine_path[kCapacity];  // of libkiln.so; "": none
};

}  // namespace kiln::standin
