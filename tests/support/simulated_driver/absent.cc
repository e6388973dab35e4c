#include "tests/support/simulated_driver/absent.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/simulated_driver/faults.h"
#include "tests/support/simulated_driver/functions.h"
#include "util/mutex.h"

namespace kiln::simulated {
namespace {

struct Removed {
  std::string_view name;
  ElfW(Sym) * symbol;
  ElfW(Addr) value;
};

struct State {
  Mutex mutex;
  std::vector<Removed> removed KILN_GUARDED_BY(mutex);
  bool is_list_good KILN_GUARDED_BY(mutex) = true;
};

State& state() {
  // Never destroyed. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = new State;
  return *instance;
}

// The library is linked with its symbol table in a segment that holds no code.
void set_value(ElfW(Sym) * symbol, ElfW(Addr) value) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(symbol);
  const std::uintptr_t start = at / page * page;
  const std::size_t size = (at + sizeof(*symbol) - 1) / page * page + page - start;
  void* const pages = reinterpret_cast<void*>(start);  // NOLINT(*-no-int-to-ptr)
  if (::mprotect(pages, size, PROT_READ | PROT_WRITE) != 0) {
    fmt::print(stderr, "simulated driver: its symbol table cannot be changed\n");
    std::abort();
  }
  symbol->st_value = value;
  std::ignore = ::mprotect(pages, size, PROT_READ);  // writable does no harm
}

ElfW(Sym) * symbol_of(const DriverFunction& function) {
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  void* out = nullptr;
  if (::dladdr1(function.address, &info, &out, RTLD_DL_SYMENT) == 0 || out == nullptr ||
      function.symbol != info.dli_sname)
    return nullptr;
  symbol = static_cast<const ElfW(Sym)*>(out);
  return const_cast<ElfW(Sym)*>(symbol);  // this library's own
}

void remove_from_environment() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): tests set it before they open the library
  const char* const list = std::getenv("KILN_SIMULATED_ABSENT");
  bool is_good = true;
  for (const std::string_view name : split(list == nullptr ? "" : list)) {
    if (remove_function(name))
      continue;
    fmt::print(stderr, "simulated driver: cannot read KILN_SIMULATED_ABSENT={}\n",
               list);
    is_good = false;
  }
  State& all = state();
  const MutexLock lock(all.mutex);
  all.is_list_good = is_good;
}

// Before anybody can look for a symbol.
[[gnu::constructor]] void when_opened() {
  remove_from_environment();
}

}  // namespace

bool is_removed(std::string_view name) {
  State& all = state();
  const MutexLock lock(all.mutex);
  return std::any_of(all.removed.begin(), all.removed.end(),
                     [&](const Removed& each) { return each.name == name; });
}

bool absent_list_is_good() {
  State& all = state();
  const MutexLock lock(all.mutex);
  return all.is_list_good;
}

bool remove_function(std::string_view name) {
  if (is_removed(name))
    return true;
  State& all = state();
  const MutexLock lock(all.mutex);
  bool is_found = false;
  for (const DriverFunction& each : driver_functions()) {
    if (each.name != name)
      continue;
    ElfW(Sym)* const symbol = symbol_of(each);
    if (symbol == nullptr)
      return false;
    all.removed.push_back({each.name, symbol, symbol->st_value});
    set_value(symbol, 0);
    is_found = true;
  }
  return is_found;
}

void restore_functions() {
  {
    State& all = state();
    const MutexLock lock(all.mutex);
    for (const Removed& each : all.removed) set_value(each.symbol, each.value);
    all.removed.clear();
  }
  remove_from_environment();
}

}  // namespace kiln::simulated
