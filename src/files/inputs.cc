#include "files/inputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "codec/named_files.h"
#include "files/stored_files.h"
#include "util/elf.h"
#include "util/file_stamp.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::files {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr std::string_view kFile = "file:";
constexpr std::string_view kTool = "tool:";
constexpr std::uint64_t kLargest = std::uint64_t{1} << 30U;
// More than a tick of the clock by which a file system of this machine stamps, and of
// any.
constexpr milliseconds kTickHere{20};
constexpr std::chrono::seconds kTick{2};

/// The program that a shell would start, or nullopt.
std::optional<fs::path> find_tool(const std::string& name) {
  const auto is_program = [](const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos)
    return is_program(name) ? std::optional<fs::path>(name) : std::nullopt;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): as every getenv of this process
  const char* const variable = std::getenv("PATH");
  std::string_view folders = variable == nullptr ? "" : variable;
  while (!folders.empty()) {
    if (fs::path path = fs::path(next_part(folders, ":")) / name; is_program(path))
      return path;
  }
  return std::nullopt;
}

std::string memo_name(const Fields& inputs) {
  constexpr std::size_t kDigits = 16;
  Sha256 labels;
  for (const Field& input : inputs.list()) {
    labels.update(as_bytes(input.label));
    labels.update(as_bytes(std::string_view("\n")));
  }
  return "inputs-" + labels.finish().hex().substr(0, kDigits);
}

}  // namespace

Result<cache::StoredObject> make_list(const FileRequest& request,
                                      const Fields& preimage, const Fields& inputs) {
  const Bytes encoded = inputs.encode();
  FileRequest about{.fields = {},
                    .name = label_of(request) + " (inputs)",
                    .target = request.target,
                    .tool = request.tool};
  return make_object(about, preimage, {{.name = kListName, .bytes = encoded}}, {});
}

Result<void> check_no_list(const std::vector<NamedFile>& files) {
  for (const NamedFile& file : files) {
    if (file.name == kListName)
      return refuse("no file may have the name {}", kListName);
  }
  return {};
}

Result<std::optional<Fields>> list_in(const cache::StoredObject& object) {
  const auto files = KILN_TRY(decode_files(object.payload()));
  if (files.size() != 1 || files.front().name != kListName)
    return std::nullopt;
  auto list = KILN_TRY(Fields::decode(files.front().bytes));
  for (const Field& input : list.list()) {
    if (!input.label.starts_with(kFile) && !input.label.starts_with(kTool))
      return fail(ErrorCode::kCorrupt, "the list of inputs has '{}', which is no input",
                  input.label);
  }
  return list;
}

/// One reading of a list.
class InputReader::Pass {
 public:
  struct Seen {
    std::string identity;
    FileStamp stamp;
    bool is_steady = true;

    [[nodiscard]] bool is_from_before(system_clock::time_point begun) const {
      return is_steady &&
             is_settled(stamp, begun, stamp.reliable ? milliseconds(kTickHere) : kTick);
    }
  };

  Pass(InputReader& reader, const Fields& inputs)
      : reader_(reader), is_owner_(reader.owner_.is_this()), memo_(memo_name(inputs)) {
    if (is_owner_)
      reader_.store_.load(memo_);
  }
  ~Pass() {
    if (has_new_)
      std::ignore = reader_.store_.save(memo_, used_);
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// nullopt: it is not there, or cannot be read.
  std::optional<Seen> look_at(const std::string& label) {
    if (!label.starts_with(kTool))
      return file(label.substr(kFile.size()));
    const auto path = find_tool(label.substr(kTool.size()));
    return path ? file(path->native()) : std::nullopt;
  }

 private:
  std::optional<Seen> file(const std::string& path) {
    const auto stamp = stamps_.of_readable(path.c_str());
    if (!stamp)
      return std::nullopt;
    const auto known = is_owner_ ? reader_.store_.find(*stamp) : nullptr;
    if (known != nullptr) {
      keep({*stamp, known});
      return Seen{known->digest.hex(), *stamp};
    }
    // Compilers have up to 100 MB.
    if (const auto build_id = read_build_id(path))
      return Seen{"build-id " + *build_id, *stamp};
    if (!is_owner_) {
      const auto read = read_stamped(AT_FDCWD, path, kLargest);
      if (!read || !*read)
        return std::nullopt;
      return Seen{Digest::of((*read)->bytes).hex(), (*read)->stamp, (*read)->is_steady};
    }
    const auto read = reader_.store_.read(path, now_, kLargest);
    if (!read)
      return std::nullopt;
    has_new_ |= read->settled && read->stamp.reliable;
    if (read->settled)
      keep({read->stamp, read->content});
    return Seen{read->content->digest.hex(), read->stamp, read->is_steady};
  }

  void keep(key::KnownHeader known) {
    if (known.stamp.reliable)
      used_.push_back(std::move(known));
  }

  InputReader& reader_;
  const bool is_owner_;
  const std::string memo_;
  const system_clock::time_point now_ = system_clock::now();
  FileStamps stamps_;
  std::vector<key::KnownHeader> used_;
  bool has_new_ = false;
};

void InputReader::extend(Fields& preimage, const Fields& list) {
  Pass pass(*this, list);
  std::vector<std::optional<Pass::Seen>> seen;
  bool can_build = true;
  for (const Field& input : list.list()) {
    seen.push_back(pass.look_at(input.label));
    can_build &= seen.back().has_value() || !input.label.starts_with(kTool);
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto& [label, recorded] = list.list()[i];
    // Whichever compilers are there, they could not build it either.
    const bool counts = can_build || !label.starts_with(kTool);
    if (seen[i] && counts)
      preimage.add(label, seen[i]->identity);
    else
      preimage.add(label, can_build ? "" : recorded);
  }
}

BuildInputs InputReader::read(const std::vector<std::string>& files,
                              const std::vector<std::string>& tools,
                              system_clock::time_point begun) {
  std::set<std::string> labels;
  for (const std::string& file : files) labels.insert(std::string(kFile) + file);
  for (const std::string& tool : tools) labels.insert(std::string(kTool) + tool);
  Fields named;
  for (const std::string& label : labels) named.add(label, "");
  Pass pass(*this, named);
  BuildInputs inputs;
  for (const std::string& label : labels) {
    const auto seen = pass.look_at(label);
    if (!inputs.unfit && (!seen || !seen->is_from_before(begun)))
      inputs.unfit =
          Error{ErrorCode::kUnavailable,
                fmt::format("the build read {}, which {}", label.substr(kFile.size()),
                            seen ? "was changed when the build had begun, or "
                                   "just before"
                                 : "cannot be read any more")};
    inputs.all.add(label, seen ? seen->identity : "");
  }
  return inputs;
}

}  // namespace kiln::files
