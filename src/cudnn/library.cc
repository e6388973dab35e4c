#include "cudnn/library.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <tuple>

#include "cudnn/table.h"
#include "util/log.h"
#include "util/open_library.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

namespace fs = std::filesystem;

Result<void*> open(const fs::path& path) {
  return about("cannot open cuDNN " + path.native(), open_library(path));
}

Result<std::unique_ptr<CudnnTable>> load_table(const fs::path& path,
                                               const fs::path& graph) {
  if (!graph.empty())
    KILN_TRY(open(graph));
  void* const library = KILN_TRY(open(path));
  auto table = std::make_unique<CudnnTable>();
  table->path = path;
#define KILN_LOOK_UP(name, ...)              \
  if (!look_up(library, #name, table->name)) \
    return fail(ErrorCode::kUnavailable,     \
                fmt::format("{} has no " #name, path.native()));
  KILN_CUDNN_FUNCTIONS(KILN_LOOK_UP)
#undef KILN_LOOK_UP
  table->version = decoded(static_cast<long>(table->cudnnGetVersion()));
  return table;
}

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
std::atomic<bool> is_ending = false;

}  // namespace

Result<std::vector<LibraryCandidate>> find_cudnn(const fs::path& explicit_path,
                                                 const LibraryPlaces& places,
                                                 std::string_view set_by) {
  return find_libraries({.name = "libcudnn.so.9",
                         .explicit_path = explicit_path,
                         .explicit_origin = std::string(set_by)},
                        places);
}

std::vector<std::string> loaded_cudnn_parts() {
  std::vector<std::string> parts;
  for (const fs::path& file : LibraryPlaces::of_process().loaded) {
    if (file.filename().native().starts_with("libcudnn_"))
      parts.push_back(file.native());
  }
  return parts;
}

std::vector<std::string> cudnn_functions() {
#define KILN_NAME(name, ...) #name,
  return {KILN_CUDNN_FUNCTIONS(KILN_NAME)};
#undef KILN_NAME
}

Result<CudnnLibrary> CudnnLibrary::open(const fs::path& path, const fs::path& graph) {
  const auto load = [&]() -> Result<std::unique_ptr<CudnnTable>> {
    auto table = KILN_TRY(load_table(path, graph));
    watch_the_end();
    return table;
  };
  return CudnnLibrary(KILN_TRY(LibraryTables<CudnnTable>::get(path, load)));
}

const fs::path& CudnnLibrary::path() const {
  return table_->path;
}

CudnnVersion CudnnLibrary::version() const {
  return table_->version;
}

void CudnnLibrary::watch_the_end() {
  // Exit handlers run in reverse order of registration: this one before the destructors
  // of all libraries loaded by now. atexit() fails only for lack of memory.
  std::ignore = std::atexit([] { is_ending = true; });
}

bool CudnnLibrary::process_is_ending() {
  return is_ending;
}

tl::unexpected<Error> cudnn_error(const CudnnTable& table, cudnn::Status status,
                                  std::string_view call, std::string_view on) {
  std::array<char, 1024> text{};
  table.cudnnGetLastErrorString(text.data(), text.size() - 1);
  std::string_view said(text.data(), ::strnlen(text.data(), text.size()));
  said.remove_suffix(said.size() - (said.find_last_not_of(" \n") + 1));
  const bool is_anothers = status == cudnn::Status::kSublibraryVersionMismatch ||
                           status == cudnn::Status::kSerializationVersionMismatch ||
                           status == cudnn::Status::kArchMismatch;
  return fail(is_anothers ? ErrorCode::kUnavailable : ErrorCode::kDevice,
              "{}{}{}: {} ({}){}{}", call, on.empty() ? "" : ", ", on,
              table.cudnnGetErrorString(status), static_cast<int>(status),
              said.empty() ? "" : ": ", said);
}

void log_failure(const CudnnTable& table, cudnn::Status status, std::string_view call,
                 std::string_view on) noexcept {
  if (status == cudnn::Status::kSuccess)
    return;
  try {
    log(LogLevel::kDebug, {cudnn_error(table, status, call, on).value().message});
  } catch (const std::bad_alloc&) {
    return;  // no memory is left to report it
  }
}

}  // namespace kiln::attention
