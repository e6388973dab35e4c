// Files in the cache, and builds of files, as objects of Python.

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "service.h"

namespace kiln::python {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Object;
using tvm::ffi::ObjectRef;
using tvm::ffi::String;

// A run whose caller was interrupted may still use it when it has ended.
using SharedBuild = std::shared_ptr<kiln_file_build>;

class FileBuildObject : public Object {
 public:
  explicit FileBuildObject(kiln_file_build* owned)
      : build(SharedBuild(owned, kiln_file_build_free)) {}

  mutable std::atomic<SharedBuild> build;  // null: it has ended
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("kiln.FileBuild", FileBuildObject, Object);
};

// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): the macro's
class FileBuild : public ObjectRef {
 public:
  explicit FileBuild(kiln_file_build* owned)
      : ObjectRef(tvm::ffi::make_object<FileBuildObject>(owned)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(FileBuild, ObjectRef, FileBuildObject);
};

SharedBuild open_build(const FileBuild& build) {
  SharedBuild handle = build.get()->build;
  if (handle == nullptr)
    refuse("this build of files has ended");
  return handle;
}

// Of a call, which runs on after its caller was interrupted.
struct Asked {
  Asked() = default;
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  ~Asked() {
    kiln_files_free(files.load());
    kiln_file_build_free(build.load());
    kiln_text_free(output.load());
    kiln_cancel_free(cancel);
  }

  const char* keep(const std::string& text) {
    return texts_.emplace_back(text).c_str();
  }
  /// Names and contents in turn; before a name is "*" for a program, or "."
  const std::vector<kiln_named_bytes>& keep_named(const Array<Bytes>& items) {
    auto& list = named_.emplace_back();
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto at = static_cast<std::int64_t>(i);
      const std::string& name = texts_.emplace_back(std::string(items[at]));
      bytes_.push_back(items[at + 1]);
      if (name.empty())
        refuse("a name has no mark");
      list.push_back({name.c_str() + 1, bytes_.back().data(), bytes_.back().size(),
                      name.starts_with('*')});
    }
    return list;
  }
  const char* const* keep_words(const Array<Bytes>& words) {
    auto& list = lists_.emplace_back();
    for (const Bytes& word : words) list.push_back(keep(std::string(word)));
    list.push_back(nullptr);
    return list.data();
  }
  /// name, target, tool, and names of sources.
  void keep_request(const Array<Bytes>& fields, const Array<Bytes>& labels) {
    const auto& named = keep_named(fields);
    request.fields = named.data();
    request.field_count = named.size();
    constexpr std::size_t kOwn = 3;
    if (labels.size() < kOwn)
      return;
    const char* const* words = keep_words(labels);
    request.name = words[0];
    request.target = words[1];
    request.tool = words[2];
    request.sources = words + kOwn;
    request.source_count = labels.size() - kOwn;
  }

  kiln_file_request request = KILN_FILE_REQUEST_INIT;
  kiln_cancel* const cancel = kiln_cancel_new();
  std::atomic<kiln_files*> files = nullptr;
  std::atomic<kiln_file_build*> build = nullptr;
  std::atomic<char*> output = nullptr;
  int status = 0;
  int signal = 0;

 private:
  std::deque<std::string> texts_;  // deques, as their elements stay where they are
  std::deque<Bytes> bytes_;
  std::deque<std::vector<kiln_named_bytes>> named_;
  std::deque<std::vector<const char*>> lists_;
};

// Key, folder, names, outcome (KILN_EVENT_...), and why they are not stored; None
// without files.
Any taken(const kiln_files* files) {
  if (files == nullptr)
    return nullptr;
  Array<Bytes> names;
  for (std::size_t i = 0; i < kiln_files_count(files); ++i)
    names.push_back(Bytes(std::string(kiln_files_name(files, i))));
  return Array<Any>{String(kiln_files_key(files)),
                    Bytes(std::string(kiln_files_folder(files))), names,
                    static_cast<std::int64_t>(kiln_files_outcome(files)),
                    String(kiln_files_not_stored(files))};
}

Any files_get(Array<Bytes> fields) {
  const auto asked = std::make_shared<Asked>();
  asked->keep_request(fields, {});
  run_interruptibly(
      [asked, on = file_cache()] {
        kiln_files* files = nullptr;
        const kiln_result failed =
            kiln_file_cache_get(on, &asked->request, asked->cancel, &files);
        asked->files = files;
        return failed;
      },
      asked->cancel);
  return taken(asked->files);
}

Any files_put(Array<Bytes> fields, Array<Bytes> labels, Array<Bytes> files) {
  Asked asked;
  asked.keep_request(fields, labels);
  const auto& stored = asked.keep_named(files);
  kiln_files* result = nullptr;
  check(kiln_file_cache_put(file_cache(), &asked.request, stored.data(), stored.size(),
                            &result));
  asked.files = result;
  return taken(result);
}

// What files_get() returns, or a FileBuild.
Any files_begin(Array<Bytes> fields, Array<Bytes> labels, std::int64_t limit_ms) {
  const auto asked = std::make_shared<Asked>();
  asked->keep_request(fields, labels);
  const auto limit = static_cast<std::uint64_t>(limit_ms < 0 ? 0 : limit_ms);
  run_interruptibly(
      [asked, limit, on = file_cache()] {
        kiln_files* files = nullptr;
        kiln_file_build* build = nullptr;
        const kiln_result failed = kiln_file_cache_begin(on, &asked->request, limit,
                                                         asked->cancel, &files, &build);
        asked->files = files;
        asked->build = build;
        return failed;
      },
      asked->cancel);
  if (kiln_file_build* const turn = asked->build.exchange(nullptr))
    return FileBuild(turn);
  return taken(asked->files);
}

bool files_builds() {
  return kiln_file_cache_builds(file_cache());
}

void files_remove(Array<Bytes> fields) {
  Asked asked;
  asked.keep_request(fields, {});
  check(kiln_file_cache_remove(file_cache(), &asked.request));
}

Bytes files_new_folder() {
  char* made = nullptr;
  check(kiln_file_cache_new_folder(file_cache(), &made));
  const std::unique_ptr<char, void (*)(char*)> folder(made, kiln_text_free);
  return Bytes(std::string(folder.get()));
}

Bytes file_build_folder(FileBuild build) {
  const char* folder = nullptr;
  const SharedBuild handle = open_build(build);
  check(kiln_file_build_folder(handle.get(), &folder));
  return Bytes(std::string(folder));
}

// Its status, its signal and its output.
Array<Any> file_build_run(FileBuild build, Array<Bytes> command,
                          Array<Bytes> environment) {
  const auto asked = std::make_shared<Asked>();
  const char* const* words = asked->keep_words(command);
  const char* const* variables = asked->keep_words(environment);
  run_interruptibly(
      [asked, words, variables, handle = open_build(build)] {
        char* output = nullptr;
        const kiln_result failed =
            kiln_file_build_run(handle.get(), words, variables, asked->cancel,
                                &asked->status, &asked->signal, &output);
        asked->output = output;
        return failed;
      },
      asked->cancel);
  const char* const output = asked->output;
  return {asked->status, asked->signal,
          Bytes(std::string(output == nullptr ? "" : output))};
}

void file_build_add_inputs(FileBuild build, Array<Bytes> files, Array<Bytes> tools) {
  const SharedBuild handle = open_build(build);
  Asked asked;
  check(kiln_file_build_add_inputs(handle.get(), asked.keep_words(files),
                                   asked.keep_words(tools)));
}

// `files` None: all that are in the folder. Ends the build.
Any file_build_commit(FileBuild build, Array<Bytes> labels,
                      tvm::ffi::Optional<Array<Bytes>> files) {
  const SharedBuild handle = open_build(build);
  Asked asked;
  asked.keep_request({}, labels);
  check(kiln_file_build_describe(handle.get(), &asked.request));
  kiln_files* result = nullptr;
  if (files) {
    const auto& stored = asked.keep_named(*files);
    static const kiln_named_bytes none_of_them{};
    check(kiln_file_build_commit(handle.get(),
                                 stored.empty() ? &none_of_them : stored.data(),
                                 stored.size(), &result));
  } else {
    check(kiln_file_build_commit(handle.get(), nullptr, 0, &result));
  }
  asked.files = result;
  build.get()->build = SharedBuild();
  return taken(result);
}

// With the code 0 whoever waits builds.
void file_build_end(FileBuild build, std::int64_t code, String message) {
  const SharedBuild handle = build.get()->build.exchange(nullptr);
  if (handle != nullptr && code != 0)
    kiln_error_free(
        kiln_file_build_fail(handle.get(), static_cast<int>(code), message.c_str()));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(files_get, files_get)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(files_put, files_put)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(files_begin, files_begin)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(files_builds, files_builds)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(files_remove, files_remove)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(files_new_folder, files_new_folder)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(file_build_folder, file_build_folder)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(file_build_run, file_build_run)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(file_build_add_inputs, file_build_add_inputs)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(file_build_commit, file_build_commit)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(file_build_end, file_build_end)

}  // namespace kiln::python
