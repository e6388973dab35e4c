#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "c/handles.h"
#include "kiln/file_cache.h"

using kiln::ErrorCode;
using kiln::fail;
using kiln::Result;
using kiln::c::answer;
using kiln::c::given;
using kiln::c::list_of;
using kiln::c::read_struct;

struct kiln_file_cache {
  kiln::FileCache cache;
  kiln::OwnerProcess opener;
};

struct kiln_file_build {
  kiln::FileBuild build;
  kiln::OwnerProcess opener;
  std::string folder{};
};

struct kiln_files {
  kiln::CachedFiles files;
};

namespace kiln::c {
namespace {

/// Longer ones than a year are refused; a sum of this one does not overflow.
std::chrono::milliseconds limit_of(std::uint64_t limit_ms) {
  constexpr std::chrono::milliseconds kTooLong = std::chrono::hours(24 * 366);
  constexpr auto kMost = static_cast<std::uint64_t>(kTooLong.count());
  return std::chrono::milliseconds(std::min(limit_ms, kMost));
}

std::string text_of(const char* text) {
  return text == nullptr ? "" : text;
}

/// Each has a name and, unless it is empty, bytes. Errors: kInvalidArgument.
Result<std::span<const kiln_named_bytes>> named(const kiln_named_bytes* items,
                                                std::size_t count,
                                                std::string_view what) {
  if (count != 0)
    KILN_TRY(given(items, what));
  const std::span<const kiln_named_bytes> all(items, count);
  for (const auto& [name, bytes, size, is_program] : all) {
    KILN_TRY(given(name, fmt::format("a name in {}", what)));
    if (size != 0)
      KILN_TRY(given(bytes, fmt::format("'{}' of {}", name, what)));
  }
  return all;
}

Result<FileRequest> request_of(const kiln_file_request* request) {
  const kiln_file_request from = KILN_TRY(
      read_struct(request, "request", kiln_file_request KILN_FILE_REQUEST_INIT));
  auto sources = KILN_TRY(list_of(from.sources, from.source_count, "request.sources"));
  FileRequest read{.fields = {},
                   .name = text_of(from.name),
                   .target = text_of(from.target),
                   .tool = text_of(from.tool),
                   .sources = std::move(sources)};
  for (const auto& [label, bytes, size, is_program] :
       KILN_TRY(named(from.fields, from.field_count, "request.fields"))) {
    const std::string value(static_cast<const char*>(bytes), size);
    if (!read.fields.emplace(label, value).second)
      return fail(ErrorCode::kInvalidArgument, "the field '{}' is given twice", label);
  }
  return read;
}

Result<std::vector<NamedFile>> files_of(const kiln_named_bytes* stored,
                                        std::size_t count) {
  std::vector<NamedFile> files;
  for (const auto& [name, bytes, size, is_program] :
       KILN_TRY(named(stored, count, "the files")))
    files.push_back({name, {static_cast<const std::byte*>(bytes), size}, is_program});
  return files;
}

Result<std::vector<std::string>> words_of(const char* const* words, const char* what) {
  KILN_TRY(given(words, what));
  std::size_t count = 0;
  while (words[count] != nullptr) ++count;
  return list_of(words, count, what);
}

Result<void> give(Result<CachedFiles> found, kiln_files** files) {
  CachedFiles taken = KILN_TRY(std::move(found));
  *files = new kiln_files{std::move(taken)};
  return {};
}

/// Of what a callback returned, which is freed.
Result<void> taken(kiln_result failed) {
  if (failed == nullptr)
    return {};
  const int code = kiln_error_code(failed);
  const std::string message = kiln_error_message(failed);
  kiln_error_free(failed);
  return fail(code == KILN_FORKED
                  ? ErrorCode::kUnavailable
                  : static_cast<ErrorCode>(code - KILN_INVALID_ARGUMENT),
              message);
}

}  // namespace
}  // namespace kiln::c

kiln_result kiln_file_cache_open(const kiln_options* options, kiln_file_cache** cache) {
  kiln::c::clear(cache);
  return answer([&]() -> Result<void> {
    KILN_TRY(given(cache, "cache"));
    kiln::FileCache opened =
        KILN_TRY(kiln::FileCache::open(KILN_TRY(kiln::c::options_of(options))));
    *cache = new kiln_file_cache{std::move(opened), {}};
    return {};
  });
}

void kiln_file_cache_close(kiln_file_cache* cache) {
  delete cache;
}

kiln_result kiln_file_cache_get(kiln_file_cache* cache,
                                const kiln_file_request* request, kiln_cancel* cancel,
                                kiln_files** files) {
  return answer(cache, files, "files", [&]() -> Result<void> {
    auto found = KILN_TRY(cache->cache.get(
        KILN_TRY(kiln::c::request_of(request)).fields, kiln::c::token_of(cancel)));
    return found ? kiln::c::give(*std::move(found), files) : Result<void>();
  });
}

kiln_result kiln_file_cache_put(kiln_file_cache* cache,
                                const kiln_file_request* request,
                                const kiln_named_bytes* stored, size_t count,
                                kiln_files** files) {
  return answer(cache, files, "files", [&]() -> Result<void> {
    return kiln::c::give(cache->cache.put(KILN_TRY(kiln::c::request_of(request)),
                                          KILN_TRY(kiln::c::files_of(stored, count))),
                         files);
  });
}

bool kiln_file_cache_builds(const kiln_file_cache* cache) {
  return cache != nullptr && cache->cache.builds();
}

kiln_result kiln_file_cache_remove(kiln_file_cache* cache,
                                   const kiln_file_request* request) {
  return answer(cache, [&]() -> Result<void> {
    return cache->cache.remove(KILN_TRY(kiln::c::request_of(request)).fields);
  });
}

kiln_result kiln_file_cache_new_folder(kiln_file_cache* cache, char** folder) {
  return answer(cache, folder, "folder", [&]() -> Result<void> {
    return kiln::c::copy(KILN_TRY(cache->cache.new_folder()).native(), folder);
  });
}

// NOLINTNEXTLINE(readability-function-size): its outputs are parameters, too
kiln_result kiln_file_cache_begin(kiln_file_cache* cache,
                                  const kiln_file_request* request, uint64_t limit_ms,
                                  kiln_cancel* cancel, kiln_files** files,
                                  kiln_file_build** build) {
  kiln::c::clear(build);
  return answer(cache, files, "files", [&]() -> Result<void> {
    KILN_TRY(given(build, "build"));
    auto begun = KILN_TRY(cache->cache.begin(KILN_TRY(kiln::c::request_of(request)),
                                             kiln::c::limit_of(limit_ms),
                                             kiln::c::token_of(cancel)));
    if (auto* const found = std::get_if<kiln::CachedFiles>(&begun))
      return kiln::c::give(std::move(*found), files);
    *build =
        new kiln_file_build{std::get<kiln::FileBuild>(std::move(begun)), cache->opener};
    return {};
  });
}

// NOLINTNEXTLINE(readability-function-size): its outputs are parameters, too
kiln_result kiln_file_cache_build_once(
    kiln_file_cache* cache, const kiln_file_request* request, uint64_t limit_ms,
    kiln_result (*build)(void* user, kiln_file_build* build), void* user,
    kiln_cancel* cancel, kiln_files** files) {
  return answer(cache, files, "files", [&]() -> Result<void> {
    if (build == nullptr)
      return fail(ErrorCode::kInvalidArgument, "build is NULL");
    const auto by_caller = [&](kiln::FileBuild& turn) {
      kiln_file_build own{std::move(turn), cache->opener};
      auto built = kiln::c::taken(build(user, &own));
      turn = std::move(own.build);
      return built;
    };
    return kiln::c::give(cache->cache.build_once(KILN_TRY(kiln::c::request_of(request)),
                                                 kiln::c::limit_of(limit_ms), by_caller,
                                                 kiln::c::token_of(cancel)),
                         files);
  });
}

kiln_result kiln_file_build_folder(kiln_file_build* build, const char** folder) {
  return answer(build, folder, "folder", [&]() -> Result<void> {
    build->folder = KILN_TRY(build->build.folder()).native();
    *folder = build->folder.c_str();
    return {};
  });
}

// NOLINTNEXTLINE(readability-function-size): its outputs are parameters, too
kiln_result kiln_file_build_run(kiln_file_build* build, const char* const* command,
                                const char* const* environment, kiln_cancel* cancel,
                                int* status, int* signal, char** output) {
  kiln::c::clear(output);
  return answer(build, [&]() -> Result<void> {
    const auto ran = KILN_TRY(
        build->build.run(KILN_TRY(kiln::c::words_of(command, "command")),
                         KILN_TRY(kiln::c::words_of(environment, "environment")),
                         kiln::c::token_of(cancel)));
    if (status != nullptr)
      *status = ran.status;
    if (signal != nullptr)
      *signal = ran.signal;
    return output == nullptr ? Result<void>() : kiln::c::copy(ran.output, output);
  });
}

kiln_result kiln_file_build_add_inputs(kiln_file_build* build, const char* const* files,
                                       const char* const* tools) {
  constexpr const char* const kNone = nullptr;
  return answer(build, [&]() -> Result<void> {
    const auto paths =
        KILN_TRY(kiln::c::words_of(files == nullptr ? &kNone : files, "files"));
    return build->build.add_inputs(
        {paths.begin(), paths.end()},
        KILN_TRY(kiln::c::words_of(tools == nullptr ? &kNone : tools, "tools")));
  });
}

kiln_result kiln_file_build_describe(kiln_file_build* build,
                                     const kiln_file_request* request) {
  return answer(build, [&]() -> Result<void> {
    build->build.describe(KILN_TRY(kiln::c::request_of(request)));
    return {};
  });
}

kiln_result kiln_file_build_commit(kiln_file_build* build,
                                   const kiln_named_bytes* stored, size_t count,
                                   kiln_files** files) {
  return answer(build, files, "files", [&]() -> Result<void> {
    return kiln::c::give(
        stored == nullptr
            ? build->build.commit()
            : build->build.commit(KILN_TRY(kiln::c::files_of(stored, count))),
        files);
  });
}

kiln_result kiln_file_build_fail(kiln_file_build* build, int code,
                                 const char* message) {
  return answer(build, [&]() -> Result<void> {
    const auto error = kiln::c::taken(kiln_error_new(code, message));
    build->build.fail(error.error());
    return {};
  });
}

void kiln_file_build_free(kiln_file_build* build) {
  delete build;
}

const char* kiln_files_key(const kiln_files* files) {
  return files == nullptr ? "" : files->files.key.c_str();
}
const char* kiln_files_folder(const kiln_files* files) {
  return files == nullptr ? "" : files->files.folder.c_str();
}
size_t kiln_files_count(const kiln_files* files) {
  return files == nullptr ? 0 : files->files.names.size();
}
const char* kiln_files_name(const kiln_files* files, size_t index) {
  return index < kiln_files_count(files) ? files->files.names[index].c_str() : nullptr;
}
int kiln_files_outcome(const kiln_files* files) {
  return files == nullptr ? KILN_EVENT_FAILED : static_cast<int>(files->files.outcome);
}
const char* kiln_files_not_stored(const kiln_files* files) {
  if (files == nullptr || !files->files.not_stored)
    return "";
  return files->files.not_stored->message.c_str();
}
void kiln_files_free(kiln_files* files) {
  delete files;
}
