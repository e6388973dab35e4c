#include "key/header_hint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::key {
namespace {

// Lists of names, each with a blank before and behind it.

// Those of the C++ standard library that libcu++ has as <cuda/std/NAME>.
constexpr std::string_view kInLibcudacxx =
    " algorithm array atomic barrier bit bitset cassert ccomplex cfloat chrono climits "
    "cmath complex concepts cstddef cstdint cstdlib cstring ctime expected functional "
    "initializer_list inplace_vector iterator latch limits linalg mdspan memory "
    "numbers "
    "numeric optional ranges ratio semaphore source_location span tuple type_traits "
    "utility variant version ";

// The others.
constexpr std::string_view kOnlyOnHosts =
    " any cctype cerrno cfenv charconv cinttypes clocale codecvt compare "
    "condition_variable coroutine csetjmp csignal cstdarg cstdio cuchar cwchar cwctype "
    "deque exception execution filesystem flat_map flat_set format forward_list "
    "fstream "
    "future generator iomanip ios iosfwd iostream istream list locale map "
    "memory_resource mutex new ostream print queue random regex scoped_allocator set "
    "shared_mutex spanstream sstream stack stacktrace stdexcept stop_token streambuf "
    "string string_view syncstream system_error thread typeindex typeinfo "
    "unordered_map unordered_set valarray vector ";

// <stdint.h> is <cstdint>.
constexpr std::string_view kOfC =
    " assert complex ctype errno fenv float inttypes limits locale math setjmp signal "
    "stdarg stddef stdint stdio stdlib string time uchar wchar wctype ";

// Headers of the CUDA toolkit: beginnings of their names.
constexpr std::array<std::string_view, 8> kOfToolkit = {
    "cooperative_groups", "cub/", "cuda", "curand", "mma.h", "nv/", "thrust/",
    "vector_types.h"};

std::string install_headers(std::string_view wheels) {
  return fmt::format(
      "install the headers of its CUDA toolkit beside it (as wheels, {}), name a "
      "toolkit "
      "of the same major version in CUDA_HOME, or add their folder to include_dirs, or "
      "with -I",
      wheels);
}

bool has(std::string_view names, std::string_view name) {
  return names.find(fmt::format(" {} ", name)) != names.npos;
}

// The operand in NVRTC's `could not open source file "x.h"`; 12.x says "cannot".
std::optional<std::string_view> missing_header(std::string_view log) {
  constexpr std::string_view kSays = " open source file \"";
  const std::size_t at = log.find(kSays);
  if (at == log.npos)
    return std::nullopt;
  const std::string_view rest = log.substr(at + kSays.size());
  const std::size_t end = rest.find('"');
  return end == rest.npos ? std::nullopt : std::optional(rest.substr(0, end));
}

// `name` is that of libcu++.
std::string libcudacxx_hint(std::string_view header, std::string_view name,
                            StandardHeaders standard, std::string_view wheels) {
  switch (standard) {
    case StandardHeaders::kOff:
      return fmt::format(
          "-nostdinc++ keeps Kiln's <{}> from NVRTC: leave that option out, or include "
          "<cuda/std/{}>",
          header, name);
    case StandardHeaders::kNoLibcudacxx:
      return fmt::format(
          "Kiln's <{}> is <cuda/std/{}>, and this NVRTC has no such headers: {}",
          header, name, install_headers(wheels));
    case StandardHeaders::kNotInstalled:
      return fmt::format(
          "Kiln has a <{}>, but its folder standard_headers is not beside its worker: "
          "reinstall Kiln, or include <cuda/std/{}>",
          header, name);
    case StandardHeaders::kSearched:
      break;
  }
  return fmt::format(
      "Kiln's standard headers are for a source that includes one of them, or whose "
      "own headers include one of them: write #include <{}> in the source",
      header);
}

std::string standard_header_hint(std::string_view header, StandardHeaders standard,
                                 std::string_view wheels) {
  std::string name(header);
  if (header.ends_with(".h") && has(kOfC, header.substr(0, header.size() - 2)))
    name = fmt::format("c{}", header.substr(0, header.size() - 2));
  if (has(kInLibcudacxx, name))
    return libcudacxx_hint(header, name, standard, wheels);
  if (has(kOnlyOnHosts, name))
    return fmt::format(
        "NVRTC has no C++ standard library, and there is no <cuda/std/{}>: keep <{}> "
        "from NVRTC with #ifndef __CUDACC_RTC__",
        name, header);
  return {};
}

std::string toolkit_header_hint(std::string_view header, StandardHeaders standard,
                                std::string_view wheels) {
  const bool is_of_toolkit = std::ranges::any_of(
      kOfToolkit, [&](std::string_view begin) { return header.starts_with(begin); });
  if (is_of_toolkit && standard == StandardHeaders::kNoLibcudacxx)
    return fmt::format(
        "<{}> is of the CUDA toolkit, whose headers this NVRTC lacks: {}", header,
        install_headers(wheels));
  if (header.starts_with("crt/") || header.starts_with("curand"))
    return fmt::format("<{}> is of the CUDA toolkit: {}", header,
                       install_headers(wheels));
  if (header.starts_with("cuda/std/"))
    return fmt::format(
        "the libcu++ of this CUDA toolkit has no <{}>; a newer toolkit may have it",
        header);
  return {};
}

// What is at `path` if the compiler passes over it; "" if there is nothing.
std::string_view kind_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return {};
  if (S_ISREG(info.st_mode))
    return "a file that may not be read";
  if (S_ISDIR(info.st_mode))
    return "a folder";
  if (S_ISFIFO(info.st_mode))
    return "a FIFO";
  return S_ISSOCK(info.st_mode) ? "a socket" : "a device";
}

std::string passed_over_hint(std::string_view header, const HeaderLookups& lookups) {
  for (const auto& [path, file] : lookups.files) {
    const bool is_named = path == header || path.ends_with(fmt::format("/{}", header));
    if (file || !is_named)
      continue;
    if (const std::string_view kind = kind_of(path); !kind.empty())
      return fmt::format("{} is {}: the compiler passes over it", path, kind);
  }
  return {};
}

std::string missing_folder_hint(const HeaderLookups& lookups) {
  for (const std::string& folder : lookups.folders) {
    if (kind_of(folder) != "a folder")
      return fmt::format("there is no include directory {}", folder);
  }
  return {};
}

std::string other_folder_hint(std::string_view header) {
  if (header.empty() || header.starts_with('/'))
    return {};
  return fmt::format(
      "no include directory has {}: name a directory that has it, by include_dirs, or "
      "by -I of `kiln compile`",
      header);
}

}  // namespace

Error with_header_hint(Error error, const HeaderSnapshot& headers,
                       StandardHeaders standard, std::string_view wheels) {
  if (error.code != ErrorCode::kCompileFailed)
    return error;
  const auto header = missing_header(error.message);
  if (!header)
    return error;
  std::string hint = passed_over_hint(*header, headers.lookups);
  if (hint.empty())
    hint = standard_header_hint(*header, standard, wheels);
  if (hint.empty())
    hint = toolkit_header_hint(*header, standard, wheels);
  if (hint.empty())
    hint = missing_folder_hint(headers.lookups);
  if (hint.empty())
    hint = other_folder_hint(*header);
  if (!hint.empty())
    error.message += fmt::format("\nhint: {}", hint);
  return error;
}

}  // namespace kiln::key
