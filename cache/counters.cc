#include "cache/counters.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

namespace kiln::cache {
namespace {

constexpr std::size_t kFirstCheck = kCounterCount;
constexpr std::size_t kFirstErrno = kCounterCount + kCheckCount;

/// "ENOSPC"; "E133" for a number without a name here.
std::string errno_name(int err) {
  const char* const name = ::strerrorname_np(err);
  return name != nullptr ? name : fmt::format("E{}", err);
}

}  // namespace

void Counters::add(Counter counter, std::uint64_t n) {
  cells_[static_cast<std::size_t>(counter)].count.fetch_add(n,
                                                            std::memory_order_relaxed);
}

void Counters::add_if_untrusted(const Error& error) {
  if (error.code == ErrorCode::kUntrusted)
    add(Counter::kUntrusted);
}

void Counters::add_corrupt(Check check) {
  cells_[kFirstCheck + static_cast<std::size_t>(check)].count.fetch_add(
      1, std::memory_order_relaxed);
}

void Counters::add_publish_refused(int err) {
  const auto number = static_cast<std::size_t>(err);
  cells_[kFirstErrno + (number < kErrnoCount ? number : 0)].count.fetch_add(
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
  named(name).cell.count.fetch_add(n, std::memory_order_relaxed);
}

std::uint64_t Counters::get(Counter counter) const {
  return cells_[static_cast<std::size_t>(counter)].count.load(
      std::memory_order_relaxed);
}

/// Those whose value is not 0, by name.
template <typename Value>
std::map<std::string, std::uint64_t> Counters::collect(const Value& value) const {
  std::map<std::string, std::uint64_t> out;
  for (std::size_t i = 0; i < kCellCount; ++i) {
    if (const std::uint64_t found = value(cells_[i]); found != 0)
      out.emplace(name_of(i), found);
  }
  for (Named* each = named_; each != nullptr; each = each->next) {
    if (const std::uint64_t found = value(each->cell); found != 0)
      out.emplace(each->name, found);
  }
  return out;
}

std::map<std::string, std::uint64_t> Counters::snapshot() const {
  return collect(
      [](const Cell& cell) { return cell.count.load(std::memory_order_relaxed); });
}

std::map<std::string, std::uint64_t> Counters::take_unwritten() {
  return collect([](Cell& cell) -> std::uint64_t {
    const std::uint64_t count = cell.count.load(std::memory_order_relaxed);
    const std::uint64_t before =
        cell.written.exchange(count, std::memory_order_relaxed);
    return count > before ? count - before : 0;
  });
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
