#include "files/stored_files.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cache/unix_time.h"
#include "codec/named_files.h"
#include "files/private_folder.h"
#include "kiln/version.h"
#include "util/try.h"

namespace kiln::files {
namespace {

constexpr const char* kSchema = "1";
constexpr std::string_view kAnyTarget = "any";

}  // namespace

std::string label_of(const FileRequest& request) {
  return request.name.empty() ? "files" : request.name;
}

/// The fields whose digest is the key.
Result<Fields> preimage_of(const FileFields& fields) {
  if (fields.empty())
    return refuse("a key of files has no fields");
  Fields all;
  all.add("schema", kSchema);
  all.add("kind", to_string(cache::Kind::kFiles));
  for (const auto& [label, value] : fields) all.add("field:" + label, value);
  return all;
}

Result<cache::StoredObject> make_object(const FileRequest& request,
                                        const Fields& preimage,
                                        const std::vector<NamedFile>& files,
                                        std::chrono::milliseconds took) {
  const auto& [fields, name, target, tool, source_names] = request;
  const auto is_source = [&names = source_names](const NamedFile& file) {
    return std::ranges::find(names, file.name) != names.end();
  };
  std::vector<NamedFile> others;
  std::vector<NamedFile> sources;
  std::ranges::copy_if(files, std::back_inserter(sources), is_source);
  std::ranges::remove_copy_if(files, std::back_inserter(others), is_source);
  KILN_TRY(check_files(files));  // no name is of both
  const Bytes payload = KILN_TRY(encode_files(std::move(others)));
  if (payload.empty())
    return refuse("{} has no file besides sources", label_of(request));
  const Bytes source = KILN_TRY(encode_files(std::move(sources)));
  return cache::StoredObject::make(
      {.kind = cache::Kind::kFiles,
       .target = target.empty() ? kAnyTarget : target,
       .metadata = {.template_name = name,
                    .params = {},
                    .arch = target,
                    .toolchain = tool,
                    .toolchain_build_ids = {},
                    .producer = version(),
                    .created_ns = cache::unix_now_ns(),
                    .compile_ms = static_cast<std::uint64_t>(took.count()),
                    .entry_points = {},
                    .variables = {},
                    .min_driver = {}},
       .preimage = preimage,
       .payload = payload,
       .log = {},
       .source = as_text(source),
       .ptx = {}});
}

Result<CachedFiles> given_of(const Fetched& fetched) {
  Given given = KILN_TRY(give_files(*fetched.object));
  return CachedFiles{.key = fetched.object->key().hex(),
                     .folder = std::move(given.folder),
                     .names = std::move(given.names),
                     .outcome = event_of(fetched),
                     .not_stored = fetched.not_stored};
}

}  // namespace kiln::files
