#include "library/kernel_memory.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string_view>

#include "request/answers.h"

namespace kiln {
namespace {

std::uint64_t next_service() {
  static std::atomic<std::uint64_t> count = 0;
  return ++count;
}

std::size_t mixed(std::size_t hash, std::size_t more) {
  // The 64-bit finalizer of MurmurHash3 (Austin Appleby, public domain), as a step.
  constexpr std::size_t kFactor = 0xff51afd7ed558ccdULL;
  hash ^= more;
  hash *= kFactor;
  return hash ^ hash >> 33U;
}

}  // namespace

std::size_t KernelMemory::SpellingHash::operator()(
    const Spelling& spelling) const noexcept {
  const std::hash<std::string_view> text;
  std::size_t hash =
      mixed(text(spelling.request.name()), static_cast<std::size_t>(spelling.device));
  for (const auto& [name, value] : spelling.request.parameters())
    hash = mixed(mixed(hash, text(name)), text(value));
  return hash;
}

bool KernelMemory::SpellingEqual::operator()(const Spelling& a,
                                             const Spelling& b) const noexcept {
  return a.device == b.device && a.request.name() == b.request.name() &&
         a.request.parameters() == b.request.parameters();
}

KernelMemory::KernelMemory() : service_(next_service()) {}

KernelMemory::Pointer KernelMemory::find(const Request& request, int device) {
  const request::AnswerKey asker{service_, device};
  if (const auto* entry = request::Answers::find<Entry>(request, asker))
    return entry->get();
  if (!request.is_template())
    return nullptr;
  const Entry* entry = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto found = by_spelling_.find({request, device});
    if (found == by_spelling_.end())
      return nullptr;
    entry = found->second;
  }
  request::Answers::add_unowned(request, asker, entry);
  return entry->get();
}

KernelMemory::Pointer KernelMemory::find(const LoadPlace& place) {
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(place);
  return found == by_key_.end() ? nullptr : found->second.get();
}

bool KernelMemory::keeps(const LoadedKernel& kernel) {
  const std::optional<Digest> key = Digest::from_hex(kernel.key());
  return key && find(LoadPlace{*key, kernel.device().ordinal}).get() == &kernel;
}

void KernelMemory::keep(const LoadPlace& place, const Pointer& kernel) {
  const MutexLock lock(mutex_);
  by_key_.try_emplace(place, kernel);
}

void KernelMemory::answer(const Request& request, const LoadPlace& place,
                          const Pointer& kernel, FoundBy found_by) {
  const Entry* entry = nullptr;
  {
    const MutexLock lock(mutex_);
    entry = &by_key_.try_emplace(place, kernel).first->second;
    if (found_by == FoundBy::kNameAndParameters)
      by_spelling_.emplace(Spelling{request, place.device}, entry);
  }
  request::Answers::add_unowned(request, {service_, place.device}, entry);
}

void KernelMemory::answer_alone(const Request& request, int device,
                                const Pointer& kernel) {
  request::Answers::add_owned(request, {service_, device},
                              std::make_shared<const Entry>(kernel));
}

}  // namespace kiln
