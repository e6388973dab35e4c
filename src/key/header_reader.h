// Reads the texts of one scan within its limits: what they include, and whether they
// may be different in each build.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "key/header_scan.h"
#include "key/header_store.h"
#include "key/include_search.h"
#include "util/include_directives.h"

namespace kiln::key {

/// A header on disk.
struct ReadFile {
  FileStamp stamp;  // of the descriptor that read it
  SharedContent content;
  bool settled = false;  // as ReadHeader::settled
  bool has_include_next = false;
  std::string varies;  // as HeaderFile::varies
};

/// Thread safety: none.
class HeaderReader {
 public:
  /// `program_name` stands in messages. All must outlive it.
  HeaderReader(const std::string& program_name, HeaderStore& store,
               const HeaderScanLimits& limits,
               std::chrono::system_clock::time_point now, const std::stop_token& stop)
      : program_name_(program_name),
        store_(store),
        limits_(limits),
        now_(now),
        stop_(stop) {}

  /// Of a text that is in no file. Errors: as find_directives, naming the text;
  /// kResourceLimit.
  [[nodiscard]] Result<Directives> directives_of(const std::string& name,
                                                 std::string_view text);
  /// The same of a text whose directives are known. Errors: kResourceLimit.
  Result<void> add(const std::string& name, std::string_view text,
                   const Directives& found);
  /// Reads each file once, unless it changes; the result lives as long as the reader.
  /// Errors: as HeaderStore::read; kResourceLimit.
  [[nodiscard]] Result<const ReadFile*> read(const FoundHeader& found);

  /// Writes the memo if there is something new for it, and fills in what was noticed.
  void finish(const std::string& memo, HeaderSnapshot& headers, HeaderScanStats& stats);

 private:
  Result<void> count_bytes(std::uint64_t bytes, std::string_view name);

  const std::string& program_name_;
  HeaderStore& store_;
  const HeaderScanLimits& limits_;
  const std::chrono::system_clock::time_point now_;
  const std::stop_token& stop_;

  std::uint64_t bytes_ = 0;
  std::map<FileStamp, ReadFile> files_;
  std::optional<VaryingText> varying_;
  bool names_program_ = false;
  std::vector<KnownHeader> used_;  // those that a memo may have
  std::size_t files_read_ = 0;
  bool has_new_headers_ = false;  // one of used_ was read in this scan
};

}  // namespace kiln::key
