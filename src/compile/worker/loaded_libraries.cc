#include "compile/worker/loaded_libraries.h"

#include <elf.h>
#include <link.h>

#include <string_view>
#include <system_error>

#include "codec/library_id.h"
#include "util/elf.h"

namespace kiln::compile {
namespace {

/// A library edited after linking can have a note segment that points anywhere.
bool is_mapped(const dl_phdr_info& info, const ElfW(Phdr) & segment) {
  for (std::size_t i = 0; i < info.dlpi_phnum; ++i) {
    const auto& load = info.dlpi_phdr[i];
    if (load.p_type == PT_LOAD && segment.p_vaddr >= load.p_vaddr &&
        segment.p_memsz <= load.p_memsz &&
        segment.p_vaddr - load.p_vaddr <= load.p_memsz - segment.p_memsz)
      return true;
  }
  return false;
}

int add_library(dl_phdr_info* info, std::size_t /*size*/, void* list) {
  if (info->dlpi_name == nullptr || *info->dlpi_name == '\0')
    return 0;  // the program itself
  LoadedLibrary library{.path = info->dlpi_name, .build_id = {}};
  for (std::size_t i = 0; i < info->dlpi_phnum && library.build_id.empty(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE || !is_mapped(*info, segment))
      continue;
    const auto* const start =  // the loader gives addresses as numbers
                               // NOLINTNEXTLINE(performance-no-int-to-ptr)
        reinterpret_cast<const std::byte*>(info->dlpi_addr + segment.p_vaddr);
    library.build_id =
        build_id_in_notes({start, segment.p_memsz}, segment.p_align).value_or("");
  }
  // Some NVRTC wheels have their build id only in a section, in no segment; or none.
  if (library.build_id.empty())
    library.build_id = library_id(library.path).value_or("");
  static_cast<std::vector<LoadedLibrary>*>(list)->push_back(std::move(library));
  return 0;
}

}  // namespace

std::vector<LoadedLibrary> loaded_libraries() {
  std::vector<LoadedLibrary> list;
  ::dl_iterate_phdr(add_library, &list);
  return list;
}

LoadedLibrary loaded_as(const std::filesystem::path& path) {
  const auto libraries = loaded_libraries();
  for (const auto& library : libraries) {
    if (library.path == path)
      return library;
  }
  for (const auto& library : libraries) {
    std::error_code not_there;  // a file that is gone is no match
    if (std::filesystem::equivalent(library.path, path, not_there))
      return library;
  }
  return {};
}

LoadedLibrary loaded_named(std::string_view prefix) {
  for (auto& library : loaded_libraries()) {
    if (library.path.filename().native().starts_with(prefix))
      return std::move(library);
  }
  return {};
}

}  // namespace kiln::compile
