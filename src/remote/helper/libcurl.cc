#include "remote/helper/libcurl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "util/library_search.h"
#include "util/open_library.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

constexpr unsigned kLeastVersion = 0x075500;  // 7.85.0

Result<Libcurl> functions_of(const std::filesystem::path& path) {
  void* const library = KILN_TRY(open_library(path));
  Libcurl curl;
  std::vector<std::string_view> missing;
  // NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define KILN_LOOK_UP(name)                         \
  if (!look_up(library, "curl_" #name, curl.name)) \
    missing.emplace_back("curl_" #name);
  KILN_LIBCURL_FUNCTIONS(KILN_LOOK_UP)
#undef KILN_LOOK_UP
  if (!missing.empty())
    return fail(ErrorCode::kUnavailable, "{} has no {}", path.native(),
                fmt::join(missing, ", "));
  const curl_version_info_data* const version = curl.version_info(CURLVERSION_NOW);
  if (version->version_num < kLeastVersion)
    return fail(ErrorCode::kUnavailable, "{} is version {}", path.native(),
                version->version);
  return curl;
}

}  // namespace

Result<Libcurl> open_libcurl(const std::vector<std::string>& names) {
  std::string refused;
  for (const std::string& name : names) {
    const auto places = LibraryPlaces::of_process();
    for (const auto& each : KILN_TRY(find_libraries({name, {}, {}}, places))) {
      auto curl = functions_of(each.path);
      if (curl)
        return curl;
      refused += fmt::format("; {}", curl.error().message);
    }
  }
  return fail(ErrorCode::kUnavailable,
              "remote caches need libcurl 7.85 or later, and none is installed "
              "here (Debian and Ubuntu: apt-get install libcurl4){}",
              refused);
}

}  // namespace kiln::remote
