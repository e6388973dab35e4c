#include "cache/counters.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

namespace kiln::cache {
namespace {

constexpr std::size_t kFirstCheck = kCounterCount;
constexpr std::size_t kFirstErrno = kCounterCount + kCheckCount;

}  // namespace

std::string errno_name(int err) {
  const char* const name = ::strerrorname_np(err);
  return name != nullptr ? name : fmt::format("E{}", err);
}

void Counters::add(Counter counter, std::uint64_t n) {
  counts_[static_cast<std::size_t>(counter)].fetch_add(n, std::memory_order_relaxed);
}

void Counters::add_if_untrusted(const Error& error) {
  if (error.code == ErrorCode::kUntrusted)
    add(Counter::kUntrusted);
}

void Counters::add_corrupt(Check check) {
  counts_[kFirstCheck + static_cast<std::size_t>(check)].fetch_add(
      1, std::memory_order_relaxed);
}

void Counters::add_publish_refused(int err) {
  const auto number = static_cast<std::size_t>(err);
  counts_[kFirstErrno + (number < kErrnoCount ? number : 0)].fetch_add(
      1, std::memory_order_relaxed);
}

Counters::~Counters() {
  Named* next = nullptr;
  for (const Named* each = named_; each != nullptr; each = next) {
    next = each->next;
    delete each;
  }
}

Counters::Named& Counters::named(const std::string& name) {
  Named* first = named_.load(std::memory_order_acquire);
  std::unique_ptr<Named> made;
  for (;;) {
    for (Named* each = first; each != nullptr; each = each->next) {
      if (each->name == name)
        return *each;
    }
    if (made == nullptr)
      made = std::make_unique<Named>(name);
    made->next = first;
    // If another thread has added a name meanwhile, it may be this one.
    if (named_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel))
      return *made.release();
  }
}

void Counters::add_named(const std::string& name, std::uint64_t n) {
  named(name).count.fetch_add(n, std::memory_order_relaxed);
}

std::uint64_t Counters::get(Counter counter) const {
  return counts_[static_cast<std::size_t>(counter)].load(std::memory_order_relaxed);
}

std::map<std::string, std::uint64_t> Counters::snapshot() const {
  std::map<std::string, std::uint64_t> out;
  for (std::size_t cell = 0; cell < kCellCount; ++cell) {
    if (const auto count = counts_[cell].load(std::memory_order_relaxed); count != 0)
      out.emplace(name_of(cell), count);
  }
  for (const Named* each = named_; each != nullptr; each = each->next) {
    if (const auto count = each->count.load(std::memory_order_relaxed); count != 0)
      out.emplace(each->name, count);
  }
  return out;
}

std::map<std::string, std::uint64_t> Counters::take_unwritten() {
  std::map<std::string, std::uint64_t> out;
  for (std::size_t cell = 0; cell < kCellCount; ++cell) {
    const std::uint64_t count = counts_[cell].load(std::memory_order_relaxed);
    const std::uint64_t before =
        written_[cell].exchange(count, std::memory_order_relaxed);
    if (count > before)
      out.emplace(name_of(cell), count - before);
  }
  for (Named* each = named_; each != nullptr; each = each->next) {
    const std::uint64_t count = each->count.load(std::memory_order_relaxed);
    const std::uint64_t before =
        each->written.exchange(count, std::memory_order_relaxed);
    if (count > before)
      out.emplace(each->name, count - before);
  }
  return out;
}

std::string Counters::name_of(std::size_t cell) {
  if (cell < kFirstCheck)
    return std::string(to_string(static_cast<Counter>(cell)));
  if (cell < kFirstErrno)
    return fmt::format("corrupt.{}", to_string(static_cast<Check>(cell - kFirstCheck)));
  const auto err = static_cast<int>(cell - kFirstErrno);
  return fmt::format("publish_refused.{}", err == 0 ? "other" : errno_name(err));
}

}  // namespace kiln::cache
