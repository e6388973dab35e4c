#include "compile/worker/nvjitlink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compile/worker/compile_log.h"
#include "compile/worker/loaded_libraries.h"
#include "device/cuda_version.h"
#include "util/open_library.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

// Of nvJitLink.h, 12.0 to 13.x.
using Handle = struct nvJitLink*;
constexpr int kSuccess = 0;
constexpr int kUnrecognizedOption = 1;
constexpr int kUnrecognizedInput = 8;
constexpr int kInputAny = 10;     // it looks at the bytes
constexpr int kInputLibrary = 6;  // a host archive

/// Never destroyed and never closed, as the table of NVRTC.
struct NvJitLink {
  std::filesystem::path path;
  int (*create)(Handle*, std::uint32_t, const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*add_data)(Handle, int, const void*, std::size_t, const char*) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*cubin_size)(Handle, std::size_t*) = nullptr;
  int (*cubin)(Handle, void*) = nullptr;
  int (*error_log_size)(Handle, std::size_t*) = nullptr;
  int (*error_log)(Handle, char*) = nullptr;
  int (*info_log_size)(Handle, std::size_t*) = nullptr;
  int (*info_log)(Handle, char*) = nullptr;
  int (*version)(unsigned*, unsigned*) = nullptr;  // from 12.3 on
};

Result<std::unique_ptr<NvJitLink>> load_nvjitlink(const std::filesystem::path& path) {
  void* const library =
      KILN_TRY(about("cannot open nvJitLink " + path.native(), open_library(path)));
  auto table = std::make_unique<NvJitLink>();
  table->path = path;
  const auto has = [&](const char* name, auto& entry) {
    return look_up(library, name, entry);
  };
  if (!has("nvJitLinkCreate", table->create) ||
      !has("nvJitLinkDestroy", table->destroy) ||
      !has("nvJitLinkAddData", table->add_data) ||
      !has("nvJitLinkComplete", table->complete) ||
      !has("nvJitLinkGetLinkedCubinSize", table->cubin_size) ||
      !has("nvJitLinkGetLinkedCubin", table->cubin) ||
      !has("nvJitLinkGetErrorLogSize", table->error_log_size) ||
      !has("nvJitLinkGetErrorLog", table->error_log) ||
      !has("nvJitLinkGetInfoLogSize", table->info_log_size) ||
      !has("nvJitLinkGetInfoLog", table->info_log))
    return fail(ErrorCode::kUnavailable, "{} lacks functions of nvJitLink 12.0",
                path.native());
  std::ignore = has("nvJitLinkVersion", table->version);
  return table;
}

/// Owns a link. Thread safety: one thread.
class Link {
 public:
  explicit Link(const NvJitLink& table) : table_(table) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { destroy(); }

  /// A link goes on after a failed call, and may end well without that input: so each
  /// call is checked.
  [[nodiscard]] Result<void> run(const LinkJob& job, bool with_device_runtime) {
    compiled_by_ = device::cuda_version_of_driver(job.cuda_version);
    KILN_TRY(create(job));
    for (const LinkInput& input : job.inputs) {
      Bytes bytes = input.bytes;
      // PTX is a C string to nvJitLink. Nothing else has no NUL.
      if (std::ranges::find(bytes, std::byte{0}) == bytes.end())
        bytes.push_back(std::byte{0});
      KILN_TRY(add(kInputAny, bytes, input.name));
    }
    if (with_device_runtime)
      KILN_TRY(add(kInputLibrary, job.device_runtime, "libcudadevrt.a"));
    return check(table_.complete(handle_), "nvJitLinkComplete");
  }

  [[nodiscard]] Result<Bytes> cubin() const {
    std::size_t size = 0;
    KILN_TRY(check(table_.cubin_size(handle_, &size), "nvJitLinkGetLinkedCubinSize"));
    Bytes image(size);
    if (size > 0)
      KILN_TRY(check(table_.cubin(handle_, image.data()), "nvJitLinkGetLinkedCubin"));
    return image;
  }

  [[nodiscard]] std::string errors() const {
    return text(table_.error_log_size, table_.error_log);
  }
  [[nodiscard]] std::string info() const {
    return text(table_.info_log_size, table_.info_log);
  }

 private:
  [[nodiscard]] Result<void> create(const LinkJob& job) {
    std::vector<const char*> options;
    for (const std::string& option : job.options) options.push_back(option.c_str());
    // As NVRTC's: one that keeps results in the driver's cache does not, and one that
    // refuses this option has no cache.
    options.push_back("--no-cache");
    if (create_with(options) == kSuccess)
      return {};
    destroy();
    options.pop_back();
    return check(create_with(options), "nvJitLinkCreate");
  }

  [[nodiscard]] int create_with(const std::vector<const char*>& options) {
    return table_.create(&handle_, static_cast<std::uint32_t>(options.size()),
                         options.data());
  }

  void destroy() {
    // Nothing is left to do about a link that cannot be destroyed.
    if (handle_ != nullptr)
      std::ignore = table_.destroy(&handle_);
    handle_ = nullptr;
  }

  [[nodiscard]] Result<void> add(int type, const Bytes& bytes,
                                 const std::string& name) {
    return check(
        table_.add_data(handle_, type, bytes.data(), bytes.size(), name.c_str()),
        fmt::format("nvJitLinkAddData({})", name));
  }

  [[nodiscard]] Result<void> check(int result, std::string_view call) const {
    if (result == kSuccess)
      return {};
    const std::string said = errors();
    const ErrorCode code =
        says_out_of_memory(said) ? ErrorCode::kResourceLimit
        : result == kUnrecognizedOption || result == kUnrecognizedInput
            ? ErrorCode::kInvalidArgument
            : ErrorCode::kCompileFailed;
    return fail(code, "{}: error {}\n{}{}", call, result, shortened(said),
                version_hint());
  }

  /// Which of the two libraries to replace, if this one is the older.
  [[nodiscard]] std::string version_hint() const {
    unsigned major = 0;
    unsigned minor = 0;
    if (table_.version == nullptr || table_.version(&major, &minor) != kSuccess)
      return {};
    const device::CudaVersion own{static_cast<int>(major), static_cast<int>(minor)};
    if (own >= compiled_by_)
      return {};
    return fmt::format(
        "\n"
        "nvJitLink {} ({}) is older than NVRTC {}, whose objects it may not read: "
        "install nvJitLink {} or a newer version of CUDA {}",
        to_string(own), table_.path.native(), to_string(compiled_by_),
        to_string(compiled_by_), compiled_by_.major);
  }

  template <typename Size, typename Text>
  [[nodiscard]] std::string text(Size size_of, Text text_of) const {
    std::size_t size = 0;
    if (handle_ == nullptr || size_of(handle_, &size) != kSuccess || size == 0)
      return {};
    std::string all(size, '\0');
    if (text_of(handle_, all.data()) != kSuccess)
      return {};
    all.resize(all.find_last_not_of(std::string_view("\0\n", 2)) + 1);
    return all;
  }

  const NvJitLink& table_;
  device::CudaVersion compiled_by_{};
  Handle handle_ = nullptr;
};

/// "Undefined reference to '__cudaCDP2LaunchDeviceV2' in 'a.cu'", or with LTO
/// "Unresolved extern function '__cudaCDP2LaunchDeviceV2'": what device code calls to
/// start a kernel, and the device's cudaMalloc() and the like.
bool needs_device_runtime(std::string_view errors) {
  for (const std::string_view name : {"'__cudaCDP", "'cuda"}) {
    if (errors.find(name) != std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

Result<CompileOutput> link_here(const LinkJob& job, const PhaseCallback& on_phase) {
  const NvJitLink* const linker = KILN_TRY(LibraryTables<NvJitLink>::get(
      job.linker, [&] { return load_nvjitlink(job.linker); }));
  on_phase(BuildPhase::kCompiling);
  const auto begin = Clock::now();
  // The device runtime makes any cubin 200 kB larger.
  auto link = std::make_unique<Link>(*linker);
  auto linked = link->run(job, false);
  if (!linked && needs_device_runtime(link->errors())) {
    if (job.device_runtime.empty())
      return fail(ErrorCode::kUnavailable,
                  "device code that starts kernels needs libcudadevrt.a, which is not "
                  "beside this NVRTC: install the CUDA toolkit, or NVIDIA's wheel "
                  "nvidia-cuda-runtime of the same version\n{}",
                  linked.error().message);
    link = std::make_unique<Link>(*linker);
    linked = link->run(job, true);
  }
  KILN_TRY(std::move(linked));
  CompileOutput output;
  output.nvrtc_time =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  on_phase(BuildPhase::kReading);
  output.image = KILN_TRY(link->cubin());
  output.log = shortened(link->info());
  output.nvrtc = loaded_as(linker->path);
  if (output.image.empty())
    return fail(ErrorCode::kCompileFailed,
                "nvJitLink {} reported success and gave no cubin",
                linker->path.native());
  return output;
}

}  // namespace kiln::compile
