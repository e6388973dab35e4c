#include "tests/support/simulated_driver/simulator.h"

#include <pthread.h>

#include <cstdlib>
#include <tuple>

#include "tests/support/simulated_driver/absent.h"
#include "tests/support/simulated_driver/functions.h"
#include "util/fork_mutex.h"

namespace kiln::simulated {

std::uintptr_t new_token(HandleKind kind) {
  // Copies of the library are mapped at different pages.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static std::uint64_t last = 0;
  constexpr std::uint64_t kMagic = 0x4b;
  const std::uint64_t instance =
      reinterpret_cast<std::uintptr_t>(&last) >> 12U & 0xFFFFFU;
  return kMagic << 56U | instance << 36U | std::uint64_t(kind) << 32U |
         (++last & 0xFFFFFFFFU);
}

namespace {

Mutex& mutex_of_process() {
  return process().mutex;
}

}  // namespace

Process& process() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  static auto* const instance = [] {
    hold_over_forks<mutex_of_process>();
    return new Process;
  }();
  return *instance;
}

Simulator::Simulator() : settings(read_settings(faults)) {}

Simulator::~Simulator() = default;

// Not thread_local: the leak sanitizer does not survive the dynamic thread storage of
// dozens of opened copies.
ThreadState& Simulator::thread() const {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    const auto destroy = [](void* state) { delete static_cast<ThreadState*>(state); };
    if (::pthread_key_create(&made, destroy) != 0)
      std::abort();  // a thousand copies in one process
    return made;
  }();
  auto* state = static_cast<ThreadState*>(::pthread_getspecific(key));
  if (state == nullptr) {
    state = new ThreadState;
    std::ignore = ::pthread_setspecific(key, state);  // fails without memory only
  }
  if (state->epoch != epoch_)
    *state = {.epoch = epoch_, .stack = {}};
  return *state;
}

CUcontext Simulator::current_handle() const {
  const ThreadState& state = thread();
  return state.stack.empty() ? nullptr : state.stack.back();
}

Device* Simulator::device(CUdevice ordinal) {
  const auto index = static_cast<std::size_t>(ordinal);
  return ordinal >= 0 && index < devices.size() ? &devices[index] : nullptr;
}

Device& Simulator::device_of(CUcontext context) {
  return devices[static_cast<std::size_t>(contexts.find(context)->device)];
}

bool Simulator::is_active(CUcontext context) const {
  const Context* const found = contexts.find(context);
  return found != nullptr && found->is_active;
}

CUresult Simulator::admit(std::string_view symbol, Needs needs) {
  const CUresult injected = faults.count(name_of_symbol(symbol));
  if (injected != CUDA_SUCCESS) {
    if (Context* const context = current();
        context != nullptr && ends_context(injected))
      context->lost = injected;
    return injected;
  }
  if (needs == Needs::kNothing)
    return CUDA_SUCCESS;
  if (is_deinitialized)
    return CUDA_ERROR_DEINITIALIZED;
  if (!is_initialized)
    return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == Needs::kDriver)
    return CUDA_SUCCESS;
  if (current_handle() == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!is_active(current_handle()))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return current()->lost;
}

CUresult Simulator::start() {
  if (is_deinitialized)
    return CUDA_ERROR_DEINITIALIZED;
  if (is_initialized)
    return CUDA_SUCCESS;
  const auto asked = settings.devices ? settings.devices : read_devices();
  if (!asked || settings.is_broken || !absent_list_is_good())
    return CUDA_ERROR_INVALID_VALUE;
  if (asked->empty())
    return CUDA_ERROR_NO_DEVICE;
  for (const Capability capability : *asked)
    devices.push_back(
        {.model = model_of(capability), .ordinal = static_cast<int>(devices.size())});
  is_initialized = true;
  return CUDA_SUCCESS;
}

void Simulator::reset() {
  while (!allocations.empty()) free(allocations.begin()->first);
  pools.clear();
  default_pools.clear();
  current_pools.clear();
  devices.clear();
  contexts.clear();
  modules.clear();
  functions.clear();
  libraries.clear();
  kernels.clear();
  streams.clear();
  events.clear();
  graphs.clear();
  graph_nodes.clear();
  graph_execs.clear();
  user_objects.clear();
  legacy_streams.clear();
  thread_streams.clear();
  host_kernels.clear();
  any_kernel = {};
  launches.clear();
  loads = 0;
  is_initialized = false;
  is_deinitialized = false;
  ++epoch_;
  faults = {};
  settings = read_settings(faults);
}

const char* Simulator::intern(std::string_view text) {
  return names_.emplace(text).first->c_str();
}

}  // namespace kiln::simulated
