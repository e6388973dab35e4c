#include "key/header_store.h"

#include <fcntl.h>

#include <tuple>
#include <unordered_set>
#include <utility>

#include "key/memo_codec.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::key {
namespace {

constexpr std::uint64_t kHeaderMemoFormat = 4;
constexpr std::size_t kMaxMemoEntries = 20'000;
constexpr std::size_t kMaxKnown = 100'000;

constexpr auto kDirective = [](auto& codec, auto& directive) {
  auto& [lookup, operand, line] = directive;
  codec.number(lookup);
  codec.number(line);
  codec.text(operand);
};

constexpr auto kPathMacro = [](auto& codec, auto& macro) {
  auto& [name, value] = macro;
  codec.text(name);
  codec.text(value);
};

constexpr auto kHeader = [](auto& codec, auto& stamp, auto& content) {
  auto& [digest, directives, bytes] = content;
  auto& [list, macro_values, path_macros, build_time, names_file, work] = directives;
  std::ignore = std::tie(names_file, work);  // of no file on disk
  kMemoStamp(codec, stamp);
  codec.digest(digest);
  codec.each(list, kDirective);
  codec.each(macro_values, kDirective);
  codec.each(path_macros, kPathMacro);
  auto macro = build_time.value_or(BuildTimeMacro{});
  auto& [name, line] = macro;
  codec.text(name);
  codec.number(line);
  codec.implied(build_time, name.empty() ? std::nullopt : std::optional(macro));
  codec.implied(bytes, stamp.size);
};

void code(MemoWriter& to, const KnownHeader& header) {
  kHeader(to, header.stamp, *header.content);
}

void code(MemoReader& from, KnownHeader& header) {
  auto content = std::make_shared<HeaderContent>();
  kHeader(from, header.stamp, *content);
  header.content = std::move(content);
}

constexpr auto kKnownHeaders = [](auto& codec, auto& headers) {
  codec.each(headers, [](auto& each, auto& header) { code(each, header); });
};

std::vector<KnownHeader> decode_known_headers(ByteView bytes) {
  return decode_memo<std::vector<KnownHeader>>(kHeaderMemoFormat, bytes, kKnownHeaders)
      .value_or(std::vector<KnownHeader>{});
}

}  // namespace

void HeaderStore::load(const std::string& memo) {
  {
    const MutexLock lock(mutex_);
    if (!loaded_.insert(memo).second)
      return;
  }
  if (const auto bytes = read_memo(memo_folder_, memo)) {
    for (KnownHeader& header : decode_known_headers(*bytes))
      keep(header.stamp, std::move(header.content));
  }
}

SharedContent HeaderStore::find(const FileStamp& stamp) const {
  const MutexLock lock(mutex_);
  const auto found = known_.find(stamp);
  return found == known_.end() ? nullptr : found->second;
}

void HeaderStore::keep(const FileStamp& stamp, SharedContent content) {
  const MutexLock lock(mutex_);
  if (known_.size() >= kMaxKnown)
    known_.clear();  // this only loses work
  known_.insert_or_assign(stamp, std::move(content));
}

Result<ReadHeader> HeaderStore::read(const std::filesystem::path& path,
                                     std::chrono::system_clock::time_point now,
                                     std::uint64_t max_bytes,
                                     const std::stop_token& stop) {
  const auto read = KILN_TRY(read_stamped(AT_FDCWD, path, max_bytes));
  if (!read)
    return fail(ErrorCode::kNotFound, "{} went away while it was read", path.native());
  auto content = std::make_shared<HeaderContent>();
  content->digest = Digest::of(read->bytes);
  content->bytes = read->bytes.size();
  if (scans_ == Scans::kDirectives)
    content->directives =
        KILN_TRY(about(path.native(), find_directives(as_text(read->bytes), stop)));
  // A size of 0 says nothing: files of procfs have it, too.
  const bool settled = read->is_steady && is_settled(read->stamp, now) &&
                       content->bytes == read->stamp.size && content->bytes > 0;
  if (settled)
    keep(read->stamp, content);
  return ReadHeader{read->stamp, std::move(content), settled, read->is_steady};
}

MemoWrite HeaderStore::save(const std::string& memo,
                            const std::vector<KnownHeader>& used) const {
  std::vector<KnownHeader> headers = used;
  std::unordered_set<FileStamp, StampHash> present;
  for (const KnownHeader& header : used) present.insert(header.stamp);
  // Reads the memo again: another process may have written it since load().
  if (const auto bytes = read_memo(memo_folder_, memo)) {
    for (KnownHeader& header : decode_known_headers(*bytes)) {
      if (headers.size() < kMaxMemoEntries && present.insert(header.stamp).second)
        headers.push_back(std::move(header));
    }
  }
  return write_memo(memo_folder_, memo,
                    encode_memo(kHeaderMemoFormat, headers, kKnownHeaders));
}

}  // namespace kiln::key
