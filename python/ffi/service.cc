#include "service.h"

#include <pthread.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace kiln::python {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Map;
using tvm::ffi::String;

// What configure() was given; kiln_service_open() reads it.
struct Settings {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::vector<std::string>> lists;
  std::optional<std::vector<std::uint32_t>> trusted_uids;
  std::int64_t on_event = 0;  // see use_events()
  std::int64_t on_event_user = 0;
};

struct State {
  std::mutex mutex;  // of `settings`, and of opening
  Settings settings;
  std::atomic<kiln_service*> service = nullptr;
  std::atomic<bool> was_used = false;  // it was opened, or is about to be
  std::atomic<bool> is_forked = false;
  std::atomic<int> cpu_device = -1;
};

State& state();

// Runs in a forked child, before fork() returns.
void look_after_fork() {
  if (state().was_used)
    state().is_forked = true;
}

// Never destroyed, and the service never closed: threads of a call that was interrupted
// may use it until the process ends.
State& state() {
  static auto* const instance = [] {
    ::pthread_atfork(nullptr, nullptr, look_after_fork);
    return new State;
  }();
  return *instance;
}

const char* text_or_null(const Settings& settings, const char* name) {
  const auto found = settings.texts.find(name);
  return found == settings.texts.end() ? nullptr : found->second.c_str();
}

std::int64_t number_or_unset(const Settings& settings, const char* name) {
  const auto found = settings.numbers.find(name);
  return found == settings.numbers.end() ? KILN_UNSET : found->second;
}

/// With a null behind the last, so that an empty list has an address: it is set, too.
std::vector<const char*> pointers_of(const std::vector<std::string>& list) {
  std::vector<const char*> pointers;
  for (const std::string& item : list) pointers.push_back(item.c_str());
  pointers.push_back(nullptr);
  return pointers;
}

kiln_service* open(const Settings& settings) {
  kiln_options options = KILN_OPTIONS_INIT;
  for (const auto& [field, name] : {std::pair{&options.cache_dir, "cache_dir"},
                                    {&options.nvrtc, "nvrtc"},
                                    {&options.cudnn, "cudnn"},
                                    {&options.driver, "driver"},
                                    {&options.worker, "worker"},
                                    {&options.toolchain, "toolchain"},
                                    {&options.record, "record"},
                                    {&options.remote_keys, "remote_keys"},
                                    {&options.remote, "remote"},
                                    {&options.remote_mode, "remote_mode"},
                                    {&options.remote_sign, "remote_sign"},
                                    {&options.remote_auth, "remote_auth"},
                                    {&options.remote_ca, "remote_ca"},
                                    {&options.remote_certificate, "remote_certificate"},
                                    {&options.log_level, "log_level"}})
    *field = text_or_null(settings, name);
  for (const auto& [field, name] :
       {std::pair{&options.cache_limit_bytes, "cache_limit_bytes"},
        {&options.precompiled_limit_bytes, "precompiled_limit_bytes"},
        {&options.compile_timeout_ms, "compile_timeout_ms"},
        {&options.remote_wait_ms, "remote_wait_ms"},
        {&options.worker_memory_bytes, "worker_memory_bytes"},
        {&options.jobs, "jobs"},
        {&options.no_jit, "no_jit"},
        {&options.attention, "attention"}})
    *field = number_or_unset(settings, name);
  std::map<std::string, std::vector<const char*>> lists;
  for (const auto& [items, count, name] :
       {std::tuple{&options.template_dirs, &options.template_dir_count,
                   "template_dirs"},
        {&options.disable, &options.disable_count, "disable"},
        {&options.seeds, &options.seed_count, "seeds"}}) {
    const auto found = settings.lists.find(name);
    if (found == settings.lists.end())
      continue;
    const auto& pointers = lists[name] = pointers_of(found->second);
    *items = pointers.data();
    *count = pointers.size() - 1;
  }
  if (settings.trusted_uids) {
    static constexpr std::uint32_t kNone = 0;  // the list is set, though it is empty
    options.trusted_uids =
        settings.trusted_uids->empty() ? &kNone : settings.trusted_uids->data();
    options.trusted_uid_count = settings.trusted_uids->size();
  }
  // NOLINTBEGIN(performance-no-int-to-ptr)
  options.on_event = reinterpret_cast<decltype(options.on_event)>(settings.on_event);
  options.on_event_user = reinterpret_cast<void*>(settings.on_event_user);
  // NOLINTEND(performance-no-int-to-ptr)
  kiln_service* opened = nullptr;
  check(kiln_service_open(&options, &opened));
  return opened;
}

// The names are those of kiln_options. Errors: kiln.InvalidArgument if the service is
// open already.
void configure(Map<String, String> texts, Map<String, std::int64_t> numbers,
               Map<String, Array<String>> lists,
               Optional<Array<std::int64_t>> trusted_uids) {
  check_not_forked();
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.service.load() != nullptr)
    refuse("configure() must come before the first use of a kernel");
  for (const auto& [name, value] : texts) all.settings.texts[name] = value;
  for (const auto& [name, value] : numbers) all.settings.numbers[name] = value;
  for (const auto& [name, value] : lists) {
    std::vector<std::string>& items = all.settings.lists[name];
    items.clear();
    for (const String& item : value) items.push_back(item);
  }
  if (trusted_uids) {
    all.settings.trusted_uids.emplace();
    for (const std::int64_t uid : *trusted_uids)
      all.settings.trusted_uids->push_back(static_cast<std::uint32_t>(uid));
  }
}

Array<Map<String, Any>> devices() {
  Array<Map<String, Any>> list;
  int count = 0;
  check(kiln_device_count(service(), &count));
  for (int i = 0; i < count; ++i) {
    kiln_device info = KILN_DEVICE_INIT;
    check(kiln_device_info(service(), i, &info));
    list.push_back({{"ordinal", info.ordinal},
                    {"name", String(info.name)},
                    {"capability",
                     Array<std::int64_t>{info.capability_major, info.capability_minor}},
                    {"uuid", String(info.uuid)},
                    {"pci_id", String(info.pci_id)},
                    {"memory_bytes", static_cast<std::int64_t>(info.memory_bytes)},
                    {"multiprocessors", info.multiprocessors}});
  }
  return list;
}

Map<String, std::int64_t> statistics() {
  kiln_statistics counts = KILN_STATISTICS_INIT;
  check(kiln_statistics_get(service(), &counts));
  const auto number = [](std::uint64_t value) {
    return static_cast<std::int64_t>(value);
  };
  return {{"memory_hits", number(counts.memory_hits)},
          {"disk_hits", number(counts.disk_hits)},
          {"compiled", number(counts.compiled)},
          {"waited", number(counts.waited)},
          {"not_stored", number(counts.not_stored)},
          {"loaded", number(counts.loaded)},
          {"failed", number(counts.failed)},
          {"seed_hits", number(counts.seed_hits)},
          {"remote_hits", number(counts.remote_hits)}};
}

// For kiln.testing: from now on, tensors in the CPU's memory belong to that device.
void use_cpu_device(std::int64_t ordinal) {
  state().cpu_device = static_cast<int>(ordinal);
}

// For kiln.testing: the addresses of kiln_options.on_event and on_event_user.
void use_events(std::int64_t on_event, std::int64_t user) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.settings.on_event = on_event;
  all.settings.on_event_user = user;
}

String version() {
  return kiln_version();
}

}  // namespace

void check_not_forked() {
  if (state().is_forked)
    throw tvm::ffi::Error(
        "kiln.ForkError",
        "this process was forked from one that had used Kiln and CUDA, which do not "
        "survive a fork: start it with the method 'spawn', or use Kiln first after the "
        "fork",
        "");
}

kiln_service* service() {
  check_not_forked();
  State& all = state();
  if (kiln_service* const open_one = all.service.load(std::memory_order_acquire))
    return open_one;
  all.was_used = true;
  const std::lock_guard lock(all.mutex);
  if (all.service.load() == nullptr)
    all.service.store(open(all.settings), std::memory_order_release);
  return all.service.load();
}

DLDevice device_of(const char* name, const TensorView& tensor) {
  const DLDevice device = tensor.device();
  if (device.device_type == kDLCUDA)
    return device;
  const int cpu_device = state().cpu_device.load(std::memory_order_relaxed);
  if (device.device_type == kDLCPU && cpu_device >= 0)
    return {kDLCUDA, cpu_device + device.device_id};
  refuse(std::string(name) + " is not on a CUDA device");
}

void expect_memory_of(int device, const char* name, const void* address) {
  // The CPU's memory is that of a simulated device, whose driver does not know it.
  const int cpu_device = state().cpu_device.load(std::memory_order_relaxed);
  if (cpu_device != device)
    check(kiln_check_memory(service(), device, name, address));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(configure, configure)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(devices, devices)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(statistics, statistics)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(use_cpu_device, use_cpu_device)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(use_events, use_events)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(version, version)

}  // namespace kiln::python
