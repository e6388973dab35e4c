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

void put(MemoWriter& out, const std::vector<Directive>& directives) {
  out.number(directives.size());
  for (const auto& [lookup, operand, line] : directives) {
    out.number(static_cast<std::uint64_t>(lookup));
    out.number(static_cast<std::uint64_t>(line));
    out.text(operand);
  }
}

std::vector<Directive> get(MemoReader& in) {
  std::vector<Directive> directives;
  for (std::uint64_t left = in.number(); left > 0 && in.good(); --left) {
    auto& [lookup, operand, line] = directives.emplace_back();
    lookup = static_cast<Lookup>(in.number());
    line = static_cast<int>(in.number());
    operand = in.text();
  }
  return directives;
}

std::vector<KnownHeader> decode_known_headers(ByteView bytes) {
  MemoReader in(bytes);
  if (in.number() != kHeaderMemoFormat)
    return {};
  std::vector<KnownHeader> headers;
  for (std::uint64_t left = in.number(); left > 0 && in.good(); --left) {
    auto read = std::make_shared<HeaderContent>();
    auto& [stamp, content] = headers.emplace_back();
    auto& [digest, directives, bytes_read] = *read;
    auto& [list, macro_values, path_macros, build_time, names_file, work] = directives;
    std::ignore = std::tie(names_file, work);  // of no file on disk
    BuildTimeMacro macro;
    auto& [name, line] = macro;
    stamp = in.stamp();
    digest = in.digest();
    list = get(in);
    macro_values = get(in);
    for (std::uint64_t left_here = in.number(); left_here > 0 && in.good();
         --left_here) {
      auto& [path_name, value] = path_macros.emplace_back();
      path_name = in.text();
      value = in.text();
    }
    name = in.text();
    line = static_cast<int>(in.number());
    if (!name.empty())
      build_time = std::move(macro);
    bytes_read = stamp.size;
    content = std::move(read);
  }
  if (!in.at_end())
    return {};
  return headers;
}

Bytes encode(const std::vector<KnownHeader>& headers) {
  MemoWriter out;
  out.number(kHeaderMemoFormat);
  out.number(headers.size());
  for (const auto& [stamp, content] : headers) {
    const auto& [digest, directives, bytes] = *content;  // as many as the stamp says
    const auto& [list, macro_values, path_macros, build_time, names_file, work] =
        directives;
    std::ignore = std::tie(names_file, work);
    const auto [name, line] = build_time.value_or(BuildTimeMacro{});
    out.stamp(stamp);
    out.digest(digest);
    put(out, list);
    put(out, macro_values);
    out.number(path_macros.size());
    for (const auto& [macro, value] : path_macros) {
      out.text(macro);
      out.text(value);
    }
    out.text(name);
    out.number(static_cast<std::uint64_t>(line));
  }
  return Bytes(out.bytes().begin(), out.bytes().end());
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
  return write_memo(memo_folder_, memo, encode(headers));
}

}  // namespace kiln::key
