#include "compile/pool/worker_path.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "util/this_library.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

bool is_executable(const std::filesystem::path& path) {
  std::error_code not_there;  // on error: not a regular file
  return std::filesystem::is_regular_file(path, not_there) &&
         ::access(path.c_str(), X_OK) == 0;
}

Result<std::filesystem::path> exactly(const std::filesystem::path& path,
                                      std::string_view given_by) {
  std::error_code error;
  auto absolute = std::filesystem::absolute(path, error);
  if (is_executable(path) && !error)
    return absolute;
  return fail(ErrorCode::kUnavailable, "{} names {}, which is not an executable file",
              given_by, path.native());
}

// `here` is a library's or a program's folder.
std::vector<std::filesystem::path> places_of(const std::string& name) {
  const auto here = this_library().parent_path();
  std::vector<std::filesystem::path> places{here / name};
  for (const auto& folder :
       {here / KILN_WORKER_FROM_LIBRARY, here / KILN_WORKER_FROM_PROGRAM,
        here / "../bin",  // in a build tree
        this_program().parent_path()}) {
    const auto place = (folder / name).lexically_normal();
    if (std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  }
  return places;
}

}  // namespace

Result<std::filesystem::path> find_worker(const WorkerSearch& search) {
  if (!search.path.empty())
    return exactly(search.path, search.set_by);

  std::string looked_at;
  for (const auto& place : places_of(search.name)) {
    if (is_executable(place))
      return place;
    looked_at += looked_at.empty() ? "" : ", ";
    looked_at += place.native();
  }
  return fail(ErrorCode::kUnavailable, "there is no {} (looked at {}){}; {}",
              search.name, looked_at,
              this_program().empty() ? ": /proc is not mounted here, so that this "
                                       "program does not know its own folder"
                                     : "",
              search.remedy);
}

std::filesystem::path find_standard_headers(const std::filesystem::path& worker) {
  constexpr const char* kName = "standard_headers";
  std::error_code error;
  auto places = places_of(kName);
  if (!worker.empty())
    places.insert(places.begin(),
                  std::filesystem::absolute(worker, error).replace_filename(kName));
  for (const auto& place : places) {
    if (place.is_absolute() && std::filesystem::is_directory(place, error))
      return place;
  }
  return {};
}

}  // namespace kiln::compile
