#include "tests/support/simulated_driver/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace kiln::simulated {

bool JitOptions::is_valid() const {
  if (count == 0)
    return true;
  return names != nullptr && values != nullptr &&
         std::all_of(names, names + count, [](CUjit_option each) {
           return each >= 0 && each < CU_JIT_NUM_OPTIONS;
         });
}

void JitOptions::report(std::string_view text) const {
  char* log = nullptr;
  void** size = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (names[i] == CU_JIT_ERROR_LOG_BUFFER)
      log = static_cast<char*>(values[i]);
    if (names[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      size = &values[i];
  }
  if (log == nullptr || size == nullptr)
    return;
  // The option's value is the number itself, in a pointer's clothes.
  const auto room = reinterpret_cast<std::uintptr_t>(*size) & 0xFFFFFFFFU;
  if (room == 0)
    return;
  const std::size_t length = std::min<std::size_t>(text.size(), room - 1);
  std::memcpy(log, text.data(), length);
  log[length] = '\0';
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  *size = reinterpret_cast<void*>(static_cast<std::uintptr_t>(length));
}

}  // namespace kiln::simulated
