// What a library answers about its kernels and a module about its functions, in the
// same words; and what both share besides. `owner` is null where the program's handle
// was stale.

#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/support/simulated_driver/simulator.h"

namespace kiln::simulated {

/// A Library's kernels, a Module's functions: in the order of its image's entry points.
template <typename Owner, typename Handle>
using EntryHandles = std::vector<Handle> Owner::*;

template <typename Owner, typename Handle>
CUresult get_entry(const Owner* owner, EntryHandles<Owner, Handle> handles,
                   const char* name, Handle* entry) {
  if (entry == nullptr || name == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (owner == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  const auto& entries = owner->image->entry_points;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == name && !entries[i].is_local) {
      *entry = (owner->*handles)[i];
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}

template <typename Owner, typename Handle>
CUresult count_entries(const Owner* owner, EntryHandles<Owner, Handle> handles,
                       unsigned* count) {
  if (count == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (owner == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>((owner->*handles).size());
  return CUDA_SUCCESS;
}

/// As many as there is room for.
template <typename Owner, typename Handle>
CUresult list_entries(const Owner* owner, EntryHandles<Owner, Handle> handles,
                      Handle* list, unsigned room) {
  if (list == nullptr && room != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (owner == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  const auto& all = owner->*handles;
  std::copy_n(all.begin(), std::min<std::size_t>(room, all.size()), list);
  return CUDA_SUCCESS;
}

inline CUresult get_global(const Module* module, CUdeviceptr* pointer,
                           std::size_t* bytes, const char* name) {
  if (name == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  for (const Global& global : module->image->globals) {
    if (global.name != name)
      continue;
    if (pointer != nullptr)
      *pointer = module->globals.find(global.name)->second;
    if (bytes != nullptr)
      *bytes = global.size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

inline CUresult get_parameter(const EntryPoint& entry, std::size_t index,
                              std::size_t* offset, std::size_t* size) {
  if (offset == nullptr || index >= entry.parameters.size())
    return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.parameters[index].offset;
  if (size != nullptr)
    *size = entry.parameters[index].size;
  return CUDA_SUCCESS;
}

/// An image in a file, ended by a NUL as PTX has to be.
inline tl::expected<std::string, CUresult> read_file(const char* path) {
  if (path == nullptr)
    return tl::unexpected(CUDA_ERROR_INVALID_VALUE);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return tl::unexpected(CUDA_ERROR_FILE_NOT_FOUND);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace kiln::simulated
