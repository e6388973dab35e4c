// The remote control: tests/support/simulated_driver/simulated_driver.h.

#pragma GCC visibility push(default)
#include "tests/support/simulated_driver/simulated_driver.h"
#pragma GCC visibility pop

#include <algorithm>
#include <utility>

#include "kiln/c.h"
#include "tests/support/simulated_driver/absent.h"
#include "tests/support/simulated_driver/functions.h"
#include "tests/support/simulated_driver/simulator.h"

using kiln::MutexLock;
using kiln::simulated::Process;
using kiln::simulated::Settings;
using kiln::simulated::Simulator;

namespace {

template <typename Body>
auto under_lock(const Body& body) {
  Process& all = kiln::simulated::process();
  const MutexLock lock(all.mutex);
  return body(all.simulator);
}

int done(bool is_done) {
  return is_done ? 0 : -1;
}

int set_version(int Settings::*which, int version) {
  return under_lock([&](Simulator& simulator) {
    const bool is_good = kiln::simulated::is_version(version);
    if (is_good)
      simulator.settings.*which = version;
    return done(is_good);
  });
}

size_t active_contexts(const Simulator& simulator) {
  size_t active = 0;
  simulator.contexts.for_each(
      [&](CUcontext, const auto& each) { active += each.is_active ? 1 : 0; });
  return active;
}

size_t alive(const Simulator& simulator, kiln_simulated_objects what) {
  switch (what) {
    case KILN_SIMULATED_CONTEXTS:
      return active_contexts(simulator);
    case KILN_SIMULATED_MODULES:
      return simulator.modules.size();
    case KILN_SIMULATED_LIBRARIES:
      return simulator.libraries.size();
    case KILN_SIMULATED_STREAMS:
      return simulator.streams.size();
    case KILN_SIMULATED_EVENTS:
      return simulator.events.size();
    case KILN_SIMULATED_GRAPHS:
      return simulator.graphs.size() + simulator.graph_execs.size();
    case KILN_SIMULATED_ALLOCATIONS:
      return simulator.allocations.size();
  }
  return 0;
}

}  // namespace

void kiln_simulated_reset() {
  kiln::simulated::restore_functions();
  under_lock([](Simulator& simulator) { simulator.reset(); });
}

int kiln_simulated_set_devices(const char* capabilities) {
  return under_lock([&](Simulator& simulator) {
    auto devices = kiln::simulated::parse_devices(capabilities);
    const bool is_good = devices && !simulator.is_initialized;
    if (is_good)
      simulator.settings.devices = std::move(devices);
    return done(is_good);
  });
}

int kiln_simulated_set_driver_version(int version) {
  return set_version(&Settings::driver_version, version);
}

int kiln_simulated_set_toolkit_version(int version) {
  return set_version(&Settings::toolkit_version, version);
}

int kiln_simulated_set_loading(const char* mode) {
  return under_lock([&](Simulator& simulator) {
    const auto is_eager = kiln::simulated::parse_loading(mode);
    if (!is_eager || simulator.is_initialized)
      return -1;
    simulator.settings.is_eager = *is_eager;
    return 0;
  });
}

int kiln_simulated_inject(const char* function, unsigned long nth, int result) {
  return under_lock([&](Simulator& simulator) {
    if (!kiln::simulated::is_function(function) || !kiln::simulated::is_result(result))
      return -1;
    simulator.faults.inject(function, nth, static_cast<CUresult>(result));
    return 0;
  });
}

void kiln_simulated_clear_faults() {
  under_lock([](Simulator& simulator) { simulator.faults.clear(); });
}

int kiln_simulated_remove(const char* function) {
  return done(kiln::simulated::remove_function(function));
}

int kiln_simulated_lose_context(CUctx_st* context, int result) {
  return under_lock([&](Simulator& simulator) {
    if (!simulator.is_active(context) || !kiln::simulated::is_result(result))
      return -1;
    simulator.contexts.find(context)->lost = static_cast<CUresult>(result);
    return 0;
  });
}

void kiln_simulated_deinitialize() {
  under_lock([](Simulator& simulator) { simulator.is_deinitialized = true; });
}

unsigned long kiln_simulated_calls(const char* function) {
  return under_lock(
      [&](Simulator& simulator) { return simulator.faults.calls(function); });
}

unsigned long kiln_simulated_loads() {
  return under_lock([](Simulator& simulator) { return simulator.loads; });
}

unsigned long kiln_simulated_loads_on(int device) {
  return under_lock([&](Simulator& simulator) {
    const auto* const found = simulator.device(device);
    return found == nullptr ? 0 : found->loads;
  });
}

const char* kiln_simulated_last_image() {
  return under_lock([](Simulator& simulator) { return simulator.thread().last_image; });
}

size_t kiln_simulated_alive(kiln_simulated_objects what) {
  return under_lock([&](Simulator& simulator) { return alive(simulator, what); });
}

size_t kiln_simulated_launches(kiln_simulated_launch* out, size_t room) {
  return under_lock([&](Simulator& simulator) {
    const auto& launches = simulator.launches;
    std::copy_n(launches.begin(), std::min(room, launches.size()), out);
    return launches.size();
  });
}

void kiln_simulated_register_kernel(const char* entry_point, kiln_simulated_kernel run,
                                    void* user) {
  under_lock([&](Simulator& simulator) {
    if (run == nullptr)
      simulator.host_kernels.erase(entry_point);
    else
      simulator.host_kernels[entry_point] = {.run = run, .user = user};
  });
}

void kiln_simulated_register_any_kernel(kiln_simulated_any_kernel run, void* user) {
  under_lock([&](Simulator& simulator) {
    simulator.any_kernel = {.run_any = run, .user = user};
  });
}

int kiln_simulated_set_computing(const char* name, const char* value) {
  return under_lock([&](Simulator& simulator) {
    return done(
        kiln::simulated::set_computing(simulator.settings.computing, name, value));
  });
}

void kiln_simulated_read_ptx_from(const char* cache_root) {
  under_lock([&](Simulator& simulator) { simulator.kernel_ptx.add_root(cache_root); });
}

const char* kiln_simulated_take_report() {
  thread_local std::string taken;
  taken = kiln::simulated::take_report();
  // Until the next call. NOLINTNEXTLINE(clang-analyzer-cplusplus.InnerPointer)
  return taken.c_str();
}

// A kernel is loaded by the thread that then reports it.
void kiln_simulated_on_event(void* /*ignored*/, const kiln_event* event) {
  if (event->kind != KILN_EVENT_LOADED)
    return;
  under_lock([&](Simulator& simulator) {
    if (const char* const image = simulator.thread().last_image)
      simulator.image_names.try_emplace(image, event->kernel);
  });
}

const char* kiln_simulated_name(const char* image) {
  return under_lock([&](Simulator& simulator) {
    const auto found = simulator.image_names.find(image);
    return found == simulator.image_names.end() ? "" : simulator.intern(found->second);
  });
}

const char* kiln_simulated_take_error() {
  thread_local std::string taken;
  taken = std::exchange(kiln::simulated::last_error(), {});
  // Until the next call. NOLINTNEXTLINE(clang-analyzer-cplusplus.InnerPointer)
  return taken.c_str();
}
