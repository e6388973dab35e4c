#include "key/header_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <optional>
#include <unordered_set>
#include <utility>

#include "key/memo_codec.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::key {
namespace {

constexpr std::uint64_t kHeaderMemoFormat = 3;
constexpr std::size_t kMaxMemoEntries = 20'000;
constexpr std::size_t kMaxKnown = 100'000;

void put(MemoWriter& out, const std::vector<Directive>& directives) {
  out.number(directives.size());
  for (const Directive& directive : directives) {
    out.number(static_cast<std::uint64_t>(directive.lookup));
    out.number(static_cast<std::uint64_t>(directive.line));
    out.text(directive.operand);
  }
}

std::vector<Directive> get(MemoReader& in) {
  std::vector<Directive> directives;
  for (std::uint64_t left = in.number(); left > 0 && in.good(); --left) {
    Directive directive;
    directive.lookup = static_cast<Lookup>(in.number());
    directive.line = static_cast<int>(in.number());
    directive.operand = in.text();
    directives.push_back(std::move(directive));
  }
  return directives;
}

std::vector<KnownHeader> decode_known_headers(ByteView bytes) {
  MemoReader in(bytes);
  if (in.number() != kHeaderMemoFormat)
    return {};
  std::vector<KnownHeader> headers;
  for (std::uint64_t left = in.number(); left > 0 && in.good(); --left) {
    auto content = std::make_shared<HeaderContent>();
    const FileStamp stamp = in.stamp();
    content->digest = in.digest();
    content->directives.list = get(in);
    content->directives.macro_values = get(in);
    if (std::string name(in.text()); !name.empty())
      content->directives.build_time = {std::move(name), 0};
    if (const auto line = static_cast<int>(in.number()); content->directives.build_time)
      content->directives.build_time->line = line;
    content->bytes = stamp.size;
    headers.push_back({stamp, std::move(content)});
  }
  if (!in.at_end())
    return {};
  return headers;
}

Bytes encode(const std::vector<KnownHeader>& headers) {
  MemoWriter out;
  out.number(kHeaderMemoFormat);
  out.number(headers.size());
  for (const KnownHeader& header : headers) {
    out.stamp(header.stamp);
    out.digest(header.content->digest);
    put(out, header.content->directives.list);
    put(out, header.content->directives.macro_values);
    const auto build_time =
        header.content->directives.build_time.value_or(BuildTimeMacro{});
    out.text(build_time.name);
    out.number(static_cast<std::uint64_t>(build_time.line));
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
    return fail(ErrorCode::kNotFound,
                fmt::format("{} went away while it was read", path.native()));
  auto content = std::make_shared<HeaderContent>();
  content->digest = Digest::of(read->bytes);
  content->bytes = read->bytes.size();
  auto directives = find_directives(as_text(read->bytes), stop);
  if (!directives)
    return fail(directives.error().code,
                fmt::format("{}: {}", path.native(), directives.error().message));
  content->directives = *std::move(directives);
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
