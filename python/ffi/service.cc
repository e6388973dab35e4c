// The one service of the process.

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "call.h"

namespace kiln::python {
namespace {

using tvm::ffi::Map;

struct State {
  std::mutex mutex;                   // of the next three, and of opening
  std::vector<std::string> settings;  // "NAME=VALUE", of which the last holds
  std::int64_t on_event = 0;          // see use_events()
  std::int64_t on_event_user = 0;
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

kiln_service* open(const State& all) {
  std::vector<const char*> settings;
  for (const std::string& setting : all.settings) settings.push_back(setting.c_str());
  kiln_options options = KILN_OPTIONS_INIT;
  options.settings = settings.data();
  options.setting_count = settings.size();
  // NOLINTBEGIN(performance-no-int-to-ptr)
  options.on_event = reinterpret_cast<decltype(options.on_event)>(all.on_event);
  options.on_event_user = reinterpret_cast<void*>(all.on_event_user);
  // NOLINTEND(performance-no-int-to-ptr)
  kiln_service* opened = nullptr;
  check(kiln_service_open(&options, &opened));
  return opened;
}

// Each is "NAME=VALUE". Errors: kiln.InvalidArgument, also if the service is open
// already; then none is taken.
void configure(Array<String> settings) {
  check_not_forked();
  for (const String& setting : settings) check(kiln_setting_check(setting.c_str()));
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.service.load() != nullptr)
    refuse("configure() must come before the first use of a kernel or of files");
  for (const String& setting : settings) all.settings.emplace_back(setting);
}

// The fields of each kiln_setting.
Array<Array<Any>> settings() {
  Array<Array<Any>> all;
  kiln_setting setting = KILN_SETTING_INIT;
  for (std::size_t i = 0; kiln_setting_get(i, &setting); ++i)
    all.push_back({String(setting.name), String(setting.variable),
                   static_cast<std::int64_t>(setting.kind), String(setting.meaning),
                   String(setting.fallback)});
  return all;
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
  all.on_event = on_event;
  all.on_event_user = user;
}

String version() {
  return kiln_version();
}

}  // namespace

void check_not_forked() {
  if (state().is_forked)
    throw tvm::ffi::Error("kiln.ForkError",
                          "this process was forked from a process that had used Kiln "
                          "and CUDA, which do not survive a fork: start it with the "
                          "method 'spawn', or use Kiln first after the fork",
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
    all.service.store(open(all), std::memory_order_release);
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
TVM_FFI_DLL_EXPORT_TYPED_FUNC(settings, settings)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(devices, devices)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(statistics, statistics)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(use_cpu_device, use_cpu_device)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(use_events, use_events)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(version, version)

}  // namespace kiln::python
