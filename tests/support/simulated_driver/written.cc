#include "tests/support/simulated_driver/written.h"

#include <algorithm>
#include <iterator>

namespace kiln::simulated {

Written& written() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const all = new Written;
  return *all;
}

void Written::watch(std::uint64_t begin, std::size_t size) {
  const MutexLock lock(mutex_);
  all_[begin] = std::make_shared<Bytes>(size, std::uint8_t{0});
}

void Written::forget(std::uint64_t begin) {
  const MutexLock lock(mutex_);
  all_.erase(begin);
}

void Written::note(std::uint64_t at, std::size_t size) {
  const MutexLock lock(mutex_);
  const auto after = all_.upper_bound(at);
  if (after == all_.begin())
    return;
  const auto& [begin, bytes] = *std::prev(after);
  const std::size_t offset = at - begin;
  if (offset < bytes->size())
    std::fill_n(bytes->begin() + static_cast<std::ptrdiff_t>(offset),
                std::min(size, bytes->size() - offset), std::uint8_t{1});
}

std::shared_ptr<Written::Bytes> Written::find(std::uint64_t begin) {
  const MutexLock lock(mutex_);
  const auto found = all_.find(begin);
  return found == all_.end() ? nullptr : found->second;
}

}  // namespace kiln::simulated
