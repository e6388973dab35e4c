#include "kernel_memory.h"

#include <atomic>
#include <functional>
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
  if (auto kernel = request::Answers::find<LoadedKernel>(request, {service_, device}))
    return kernel;
  if (!request.is_template())
    return nullptr;
  Pointer kernel;
  {
    const MutexLock lock(mutex_);
    const auto found = by_spelling_.find({request, device});
    if (found == by_spelling_.end())
      return nullptr;
    kernel = found->second;
  }
  request::Answers::keep(request, {service_, device}, kernel,
                         request::Holding::kWeakly);
  return kernel;
}

KernelMemory::Pointer KernelMemory::find(const LoadPlace& place) {
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(place);
  return found == by_key_.end() ? nullptr : found->second;
}

void KernelMemory::keep(const LoadPlace& place, const Pointer& kernel) {
  const MutexLock lock(mutex_);
  by_key_.emplace(place, kernel);
}

void KernelMemory::keep(const Request& request, int device, const Pointer& kernel,
                        Answering answering) {
  request::Answers::keep(request, {service_, device}, kernel,
                         answering == Answering::kThisRequest
                             ? request::Holding::kStrongly
                             : request::Holding::kWeakly);
  if (answering != Answering::kItsSpelling)
    return;
  const MutexLock lock(mutex_);
  by_spelling_.emplace(Spelling{request, device}, kernel);
}

}  // namespace kiln
