// What the simulated driver knows, and the one door into it: every function of the ABI
// is enter() and a body.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "tests/support/simulated_driver/abi.h"
#include "tests/support/simulated_driver/computing.h"
#include "tests/support/simulated_driver/device_model.h"
#include "tests/support/simulated_driver/faults.h"
#include "tests/support/simulated_driver/graphs.h"
#include "tests/support/simulated_driver/handles.h"
#include "tests/support/simulated_driver/image.h"
#include "tests/support/simulated_driver/kernel_ptx.h"
#include "tests/support/simulated_driver/settings.h"
#include "tests/support/simulated_driver/simulated_driver.h"
#include "util/mutex.h"

namespace kiln::simulated {

struct Device {
  DeviceModel model;
  int ordinal = 0;
  CUcontext primary = nullptr;  // its handle stays the same once it has been retained
  int retained = 0;
  unsigned flags = 0;
  std::size_t allocated_bytes = 0;
  unsigned long loads = 0;
};

struct Context {
  int device = 0;
  unsigned flags = 0;
  bool is_primary = false;
  bool is_active = true;  // false for a primary context that nobody retains
  CUresult lost = CUDA_SUCCESS;
  unsigned long long id = 0;
};

struct FunctionSettings {
  int max_dynamic_shared_bytes = -1;  // what 48 KB leave
  int carveout = -1;
  int allows_large_clusters = 0;
};

struct Module {
  CUcontext context = nullptr;
  CUlibrary library = nullptr;  // null for one loaded by itself
  std::shared_ptr<const Image> image;
  std::vector<CUfunction> functions;  // as image->entry_points
  std::map<std::string, CUdeviceptr, std::less<>> globals;
  std::shared_ptr<const ModuleCode> code{};  // from its first launch on
};

struct Function {
  CUmodule module = nullptr;
  CUcontext context = nullptr;
  std::shared_ptr<const Image> image;
  const EntryPoint* entry = nullptr;
  FunctionSettings settings;
  bool is_loaded = false;
};

struct Library {
  std::shared_ptr<const Image> image;
  std::vector<CUkernel> kernels;  // as image->entry_points
  std::map<CUcontext, CUmodule> modules;
};

struct Kernel {
  CUlibrary library = nullptr;
  std::size_t index = 0;
  std::map<int, FunctionSettings> settings;  // by device
};

/// What the streams that take part in one capture have in common.
struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id origin;
  std::uint64_t id = 0;
  bool is_invalid = false;
  bool has_ended = false;
  CUgraph graph = nullptr;
  bool is_graph_new = true;  // and goes with a capture that fails
};

/// Where a stream is in a capture: what its next node has to wait for.
struct Front {
  std::shared_ptr<Capture> capture{};
  std::vector<CUgraphNode> nodes{};
};

struct Stream {
  CUcontext context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  bool is_legacy = false;
  std::shared_ptr<Capture> capture{};    // null where it is not captured
  std::vector<CUgraphNode> front{};      // as Front::nodes
  bool is_origin = false;                // of the capture: ends it
  std::vector<CUgraphEdgeData> edges{};  // told with `front`, zeros
};

struct Event {
  CUcontext context = nullptr;
  unsigned flags = 0;
  std::int64_t recorded_ns = -1;
  Front captured{};  // where it was recorded last in a captured stream
};

enum class MemoryKind {
  kUnknown,  // not CUDA's
  kDevice,
  kHost,
  kRegistered,  // the program's own
  kManaged,
};

struct Allocation {
  std::size_t size = 0;
  CUcontext context = nullptr;
  int device = 0;
  MemoryKind kind = MemoryKind::kUnknown;
  unsigned host_flags = 0;  // that pinned memory was asked for with
  CUmemoryPool pool = nullptr;
  std::uint64_t id = 0;
};

/// Nothing is kept for later here, but the figures say what a driver would keep.
struct Pool {
  CUmemLocation location{};
  MemoryKind kind = MemoryKind::kDevice;
  std::size_t most_bytes = 0;  // 0: no limit
  bool is_default = false;
  std::array<int, 3> reuse{1, 1, 1};  // in the order of the attributes
  std::uint64_t release_threshold = 0;
  std::uint64_t used = 0;
  std::uint64_t most_used = 0;
  std::uint64_t reserved = 0;
  std::uint64_t most_reserved = 0;
  std::map<int, CUmemAccess_flags> access{};  // of devices, as it was set
};

/// Of memory in a place one pool is the default one, and one the current one.
struct PoolPlace {
  int location_type = 0;
  int location = 0;
  MemoryKind kind = MemoryKind::kDevice;
  friend auto operator<=>(const PoolPlace&, const PoolPlace&) = default;
};

/// What runs in the place of a kernel: one of the two functions, or neither.
struct HostKernel {
  kiln_simulated_kernel run = nullptr;
  kiln_simulated_any_kernel run_any = nullptr;
  void* user = nullptr;
};

/// What belongs to one thread of the program.
struct ThreadState {
  std::uint64_t epoch = 0;
  std::vector<CUcontext> stack;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const char* last_image = nullptr;
};

enum class Needs {
  kNothing,  // works before cuInit and for ever
  kDriver,   // cuInit
  kContext,  // a current context in good health
};

/// One thread at a time: whoever has a reference holds the lock of enter().
class Simulator {
 public:
  Simulator();
  ~Simulator();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  /// Counts the call; CUDA_SUCCESS if its body may run.
  CUresult admit(std::string_view symbol, Needs needs);

  CUresult start();
  void reset();

  /// The calling thread's.
  [[nodiscard]] ThreadState& thread() const;
  [[nodiscard]] CUcontext current_handle() const;
  /// Null where there is none, or one that is gone.
  [[nodiscard]] Context* current() const { return contexts.find(current_handle()); }
  [[nodiscard]] Device* device(CUdevice ordinal);
  [[nodiscard]] Device& device_of(CUcontext context);
  /// A context that can be made current.
  [[nodiscard]] bool is_active(CUcontext context) const;

  // contexts.cc
  tl::expected<CUcontext, CUresult> open_context(int device, unsigned flags,
                                                 bool is_primary);
  /// All that is in it goes; a primary one stays as a handle.
  void close_context(CUcontext context);

  // loading.cc
  tl::expected<CUmodule, Refusal> load(CUcontext context,
                                       const std::shared_ptr<const Image>& image,
                                       CUlibrary library);
  void unload(CUmodule module);
  /// The library's module in that context, loaded now if it has not been.
  tl::expected<CUmodule, Refusal> module_in(CUlibrary library, CUcontext context);
  void unload_library(CUlibrary library);
  /// A function, or a kernel in that context. Errors: the load's, INVALID_HANDLE.
  tl::expected<CUfunction, CUresult> function_of(CUfunction handle, CUcontext context);

  // streams.cc
  /// Null for a stale or foreign handle. Null, 1 and 2 are streams of the current
  /// context.
  [[nodiscard]] Stream* stream(CUstream handle);
  /// What a call that synchronises or allocates may do on this thread now; ends the
  /// captures that it would have disturbed.
  CUresult check_not_capturing();

  // memory.cc
  /// 0 where the device or the machine has no more.
  CUdeviceptr allocate(CUcontext context, std::size_t size, MemoryKind kind);
  bool free(CUdeviceptr pointer);
  [[nodiscard]] bool is_allocated(CUdeviceptr pointer, std::size_t size) const;
  /// Where the block begins that `pointer` is in, and the block; the end of
  /// `allocations` for memory that was not allocated here.
  [[nodiscard]] std::map<CUdeviceptr, Allocation>::const_iterator allocation_at(
      CUdeviceptr pointer) const;

  /// Kept until the process ends.
  [[nodiscard]] const char* intern(std::string_view text);
  [[nodiscard]] std::uint64_t next_id() { return ++last_id_; }

  Faults faults;
  KernelPtx kernel_ptx;
  Settings settings;  // read after faults was made: its own go there
  std::vector<Device> devices;
  HandleTable<CUcontext, Context, HandleKind::kContext> contexts;
  HandleTable<CUmodule, Module, HandleKind::kModule> modules;
  HandleTable<CUfunction, Function, HandleKind::kFunction> functions;
  HandleTable<CUlibrary, Library, HandleKind::kLibrary> libraries;
  HandleTable<CUkernel, Kernel, HandleKind::kKernel> kernels;
  HandleTable<CUstream, Stream, HandleKind::kStream> streams;
  HandleTable<CUevent, Event, HandleKind::kEvent> events;
  HandleTable<CUgraph, Graph, HandleKind::kGraph> graphs;
  HandleTable<CUgraphNode, GraphNode, HandleKind::kGraphNode> graph_nodes;
  HandleTable<CUgraphExec, GraphExec, HandleKind::kGraphExec> graph_execs;
  HandleTable<CUuserObject, UserObject, HandleKind::kUserObject> user_objects;
  std::vector<HostWork> farewells;  // the program's, to be called without the lock
  std::map<CUcontext, Stream> legacy_streams;
  std::map<std::pair<CUcontext, std::thread::id>, Stream> thread_streams;
  std::map<CUdeviceptr, Allocation> allocations;
  HandleTable<CUmemoryPool, Pool, HandleKind::kPool> pools;
  std::map<PoolPlace, CUmemoryPool> default_pools;
  std::map<PoolPlace, CUmemoryPool> current_pools;  // where it is not the default one
  std::map<std::string, HostKernel, std::less<>> host_kernels;
  HostKernel any_kernel;  // of the entry points without one of their own
  std::vector<kiln_simulated_launch> launches;
  std::map<std::string, std::string, std::less<>> image_names;  // as events tell them
  unsigned long loads = 0;
  bool is_initialized = false;
  bool is_deinitialized = false;

 private:
  std::uint64_t epoch_ = 1;
  std::uint64_t last_id_ = 0;
  std::set<std::string, std::less<>> names_;
};

struct Process {
  Mutex mutex;
  Simulator simulator KILN_GUARDED_BY(mutex);
};

/// Never destroyed: a program may call the driver until its last moment.
[[nodiscard]] Process& process();

/// `body(simulator)` under the lock, after the call was counted and admitted.
template <typename Body>
CUresult enter(const char* symbol, Needs needs, const Body& body) {
  Process& all = process();
  std::vector<HostWork> farewells;
  const CUresult result = [&]() -> CUresult {
    const MutexLock lock(all.mutex);
    if (const CUresult refused = all.simulator.admit(symbol, needs);
        refused != CUDA_SUCCESS)
      return refused;
    const CUresult done = body(all.simulator);
    farewells.swap(all.simulator.farewells);
    return done;
  }();
  for (const HostWork& each : farewells) each.function(each.user);
  return result;
}

}  // namespace kiln::simulated
