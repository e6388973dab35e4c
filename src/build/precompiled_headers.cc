#include "build/precompiled_headers.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "build/artifact.h"
#include "codec/fields.h"
#include "key/opened_files.h"
#include "kiln/version.h"
#include "util/include_prefix.h"
#include "util/log.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln {
namespace {

/// Fewer headers take less time than reading a precompiled one: CUB opens 700,
/// cuda_bf16.h ten.
constexpr std::size_t kLeastHeaders = 100;

/// All that a precompiled header depends on. The address of libnvrtc is in its record.
Digest precompiled_key(std::string_view prefix, const KeyedRequest& request,
                       const compile::CompileJob& job) {
  // The prefix is of the source, and `headers` has those in memory, too. The options
  // name the target. The others change no text that NVRTC reads.
  const auto& [label, source, program_name, working_directory, options, as_nvrtc,
               name_expressions, headers, nvrtc, target, precompiled, make_precompiled,
               time_limit, memory_limit] = job;
  Fields fields;
  fields.add("schema", "1");
  fields.add("kiln", build_id());
  fields.add("nvrtc", request.toolchain->toolchain.id.nvrtc);
  fields.add("builtins", request.toolchain->toolchain.id.builtins);
  for (const std::string& option : options) fields.add("option", option);
  fields.add("prefix", prefix);
  fields.add("headers", request.headers->fields.digest().hex());
  return fields.digest();
}

/// -G: the name of a lambda's type in debug information, "lambda [] type at line 5807",
/// counts the lines of all headers, and with a precompiled one NVRTC counts others.
bool has_debug_information(const compile::CompileJob& job) {
  return std::ranges::any_of(job.options, [](std::string_view option) {
    option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
    const std::string_view name = option.substr(0, option.find_first_of("= "));
    return name == "G" || name == "device-debug";
  });
}

/// A source whose options ask for it gets one at once, however few headers it has.
bool is_asked_for(const KeyedRequest& request) {
  const auto* const source = request.request.as_source();
  return source != nullptr && source->precompile;
}

/// A macro with the name of the source, which would be that of the first in all others.
/// NVRTC has no other of this kind: no __COUNTER__, and __FILE__ names the header.
constexpr std::string_view kBaseFile = "__BASE_FILE__";

bool names_base_file(const compile::CompileJob& job,
                     const std::vector<OpenedFile>& headers) {
  const auto names_it = [](std::string_view text) {
    return text.find(kBaseFile) != std::string_view::npos;
  };
  return names_it(job.source) || std::ranges::any_of(job.options, names_it) ||
         std::ranges::any_of(
             job.headers,
             [&](const compile::MemoryHeader& each) { return names_it(each.text); }) ||
         std::ranges::any_of(headers, [&](const OpenedFile& each) {
           const auto read = read_stamped(AT_FDCWD, each.path, key::kMaxHeaderBytes);
           return !read || !*read || (*read)->stamp != each.stamp ||
                  names_it(as_text((*read)->bytes));
         });
}

template <typename List>
void append(List& all, const List& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

class PrecompiledHeaders::Compiling {
 public:
  Compiling(const PrecompiledHeaders& all, const Digest& key) : all_(all), key_(key) {
    const MutexLock lock(all_.mutex_);
    is_second_ = all_.compiling_.contains(key);
    all_.compiling_.insert(key);
  }
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;
  ~Compiling() {
    const MutexLock lock(all_.mutex_);
    all_.compiling_.erase(all_.compiling_.find(key_));
  }
  [[nodiscard]] const Digest& key() const { return key_; }
  [[nodiscard]] bool is_second() const { return is_second_; }

 private:
  const PrecompiledHeaders& all_;
  const Digest& key_;
  bool is_second_ = false;
};

PrecompiledHeaders::PrecompiledHeaders(cache::Cache& cache, OwnFolder folder,
                                       std::uint64_t limit_bytes)
    : cache_(cache), is_on_(!folder.empty()), store_(std::move(folder), limit_bytes) {}

Result<compile::CompileOutput> PrecompiledHeaders::compile(
    const KeyedRequest& request, compile::CompileJob job,
    const Compile& compile) const {
  const bool has_headers = !request.headers->files.empty() ||
                           !request.headers->toolkit.empty() || !job.headers.empty();
  if (!is_on_ || !has_headers || has_debug_information(job) || job.as_nvrtc)
    return compile(job);
  const std::string_view prefix = include_prefix(job.source);
  if (prefix.empty())
    return compile(job);

  const Digest key = precompiled_key(prefix, request, job);
  const Compiling now(*this, key);
  const auto found = find_or_make(now, prefix, request, job, compile);
  if (!found) {
    auto output = compile(job);
    if (output && output->files.opened.size() + job.headers.size() >= kLeastHeaders)
      store_.want(key);
    return output;
  }
  job.precompiled = found->file;
  auto output = compile(job);
  if (!output &&
      (output.error().code != ErrorCode::kWorkerCrashed || output.error().from_outside))
    return output;  // the source's own error: the worker has tried it without
  const auto use = output ? output->precompiled : compile::PrecompiledUse::kRefused;
  if (use == compile::PrecompiledUse::kUsed) {
    cache_.counters().add(cache::Counter::kPrecompiledUsed);
    append(output->files.opened, found->files.opened);
    append(output->files.missed, found->files.missed);
    return output;
  }
  cache_.counters().add(cache::Counter::kPrecompiledRefused);
  if (use == compile::PrecompiledUse::kDamaged)
    store_.remove(key);
  else if (use == compile::PrecompiledUse::kRefused)
    store_.refuse(key);
  if (output)
    return output;
  log(LogLevel::kDebug, {"a precompiled header is not used: ", output.error().message});
  job.precompiled = {};
  return compile(job);
}

std::optional<PrecompiledStore::Stored> PrecompiledHeaders::find_or_make(
    const Compiling& now, std::string_view prefix, const KeyedRequest& request,
    const compile::CompileJob& job, const Compile& compile) const {
  const Digest& key = now.key();
  if (auto found = store_.find(key))
    return found;
  if (is_asked_for(request) || now.is_second())
    store_.want(key);
  if (!store_.take_wanted(key))
    return std::nullopt;
  const auto made = make(key, prefix, request, job, compile);
  if (made == Made::kTooFew)
    return std::nullopt;
  cache_.counters().add(made ? cache::Counter::kPrecompiledMade
                             : cache::Counter::kPrecompiledRefused);
  if (!made)
    log(LogLevel::kDebug, {"no precompiled header: ", made.error().message});
  return store_.find(key);
}

/// From the prefix alone, so that it is the same whichever source comes first.
Result<PrecompiledHeaders::Made> PrecompiledHeaders::make(
    const Digest& key, std::string_view prefix, const KeyedRequest& request,
    compile::CompileJob job, const Compile& compile) const {
  const auto began = std::chrono::system_clock::now();
  job.make_precompiled = KILN_TRY(store_.new_file());
  job.label += " (precompiled header)";
  job.source = prefix;
  job.name_expressions.clear();
  auto stored = [&]() -> Result<Made> {
    auto output = KILN_TRY(compile(job));
    if (auto other = other_toolchain(request, output))
      return tl::unexpected(*std::move(other));
    const compile::FileReport& files = output.files;
    if (const auto unkeyed = key::find_unkeyed(
            *request.headers, {files.opened, began, files.missed, files.is_whole}))
      return refuse(to_string(*unkeyed));
    if (names_base_file(job, files.opened))
      return refuse("{} has another text in each source", kBaseFile);
    if (files.opened.size() + job.headers.size() < kLeastHeaders &&
        !is_asked_for(request))
      return Made::kTooFew;
    KILN_TRY(store_.publish(key, {std::move(output.made), std::move(output.files)}));
    return Made::kPublished;
  }();
  if (stored == Made::kPublished)
    return stored;
  store_.discard(job.make_precompiled);
  if (stored) {
    store_.refuse(key);
    return stored;
  }
  const ErrorCode code = stored.error().code;
  // A stop, a signal from outside, and what is missing in this process or on this disk,
  // is no fault of the headers: the next may try, or in ten minutes.
  if (code == ErrorCode::kCancelled || stored.error().from_outside)
    store_.release(key);
  else if (code != ErrorCode::kUnavailable && code != ErrorCode::kIo)
    store_.refuse(key);
  return stored;
}

}  // namespace kiln
