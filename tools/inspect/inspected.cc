#include "tools/inspect/inspected.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "binaries/folder.h"
#include "binaries/process.h"
#include "binaries/python_environment.h"
#include "binaries/wheel.h"
#include "device/driver.h"
#include "tools/context.h"
#include "util/file_range.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

namespace fs = std::filesystem;
using binaries::DeviceCode;
using nlohmann::ordered_json;

Result<Bytes> begin_of(const Result<FileRange>& file) {
  if (!file)
    return tl::unexpected(file.error());
  return file->read_up_to(0, binaries::kBeginBytes);
}

InspectedFile inspected(const FileRange& file, std::string distribution = {}) {
  return {file.name(), std::move(distribution), binaries::read_device_code(file)};
}

/// Only a file that holds device code or is damaged.
void take_found(const TakeInspected& take, const InspectedFile& file) {
  if (!file.code || file.has_code())
    take(file);
}

void inspect_wheel(const fs::path& path, const TakeInspected& take) {
  const auto done =
      binaries::read_wheel(path, [&](const FileRange& member) -> Result<void> {
        take_found(take, inspected(member));
        return {};
      });
  if (!done)
    take({path.native(), "", tl::unexpected(done.error())});
}

/// A file that a walk came upon: most hold none, or are none of these.
void inspect_found(const fs::path& path, const TakeInspected& take) {
  const auto file = FileRange::open(path);
  const auto begin = begin_of(file);
  if (!begin)
    return take({path.native(), "", tl::unexpected(begin.error())});
  if (path.extension() == ".whl" && binaries::is_wheel(*begin))
    inspect_wheel(path, take);
  else if (binaries::is_binary(*begin) || path.extension() == ".ptx")
    take_found(take, inspected(*file));
}

}  // namespace

Result<std::vector<InspectedDevice>> inspected_devices(const Config& config) {
  const auto driver = KILN_TRY(
      device::Driver::open(config.driver.value_or(""), LibraryPlaces::of_process()));
  std::set<InspectedDevice> devices;
  if (driver) {
    for (const Device& info : KILN_TRY(driver->devices()))
      devices.insert({info.capability, driver->version()});
  }
  return std::vector(devices.begin(), devices.end());
}

Result<void> inspect_path(const fs::path& path, const TakeInspected& take) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return binaries::walk(path, [&](const auto& each) { inspect_found(each, take); });
  const auto file = from_input(FileRange::open(path));
  if (!file)
    return tl::unexpected(file.error());
  const auto begin = begin_of(file);
  if (!begin)
    take({path.native(), "", tl::unexpected(begin.error())});
  else if (binaries::is_wheel(*begin))
    inspect_wheel(path, take);
  else
    take(inspected(*file));
  return {};
}

Result<void> inspect_environment(const fs::path& root, const TakeInspected& take) {
  const auto folders = binaries::package_folders(root);
  if (folders.empty())
    return fail(ErrorCode::kNotFound,
                "{} is no environment of Python: it has no lib/python3*/site-packages",
                root.native());
  for (const fs::path& folder : folders) {
    for (const auto& [path, distribution] : KILN_TRY(binaries::libraries_in(folder))) {
      const auto file = FileRange::open(path);
      if (file)
        take_found(take, inspected(*file, distribution));
      else
        take({path.native(), distribution, tl::unexpected(file.error())});
    }
  }
  return {};
}

Result<void> inspect_process(pid_t pid, const TakeInspected& take) {
  for (const auto& [path, file] : KILN_TRY(binaries::mapped_files(pid))) {
    if (file)
      take_found(take, inspected(*file));
    else
      take({path, "", tl::unexpected(file.error())});
  }
  return {};
}

std::vector<binaries::Verdict> verdicts_of(
    const InspectedFile& file, const std::vector<InspectedDevice>& devices) {
  std::vector<binaries::Verdict> verdicts;
  if (file.has_code()) {
    for (const InspectedDevice& each : devices)
      verdicts.push_back(binaries::judge(*file.code, each.capability, each.driver));
  }
  return verdicts;
}

ordered_json inspected_json(const InspectedFile& file,
                            const std::vector<InspectedDevice>& devices,
                            const std::vector<binaries::Verdict>& verdicts) {
  ordered_json images = ordered_json::array();
  ordered_json answers = ordered_json::array();
  if (file.has_code()) {
    for (const auto& [image, totals] : file.code->images)
      images.push_back({{"kind", binaries::kind_name(image.target.kind)},
                        {"arch", to_string(image.target.architecture)},
                        {"bytes", totals.bytes},
                        {"compression", word_of(image.compression)},
                        {"toolkit", image.toolkit ? to_string(*image.toolkit) : ""},
                        {"count", totals.count},
                        {"relocatable", image.is_relocatable}});
  }
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    answers.push_back({{"arch", to_string(devices[i].capability)},
                       {"verdict", word_of(verdicts[i].answer)},
                       {"reason", verdicts[i].reason},
                       {"remedy", verdicts[i].remedy}});
  return {{"path", file.path},
          {"machine", file.code ? binaries::machine_name(file.code->machine) : ""},
          {"distribution", file.distribution},
          {"images", images},
          {"devices", answers},
          {"error", file.code ? ordered_json() : error_json(file.code.error())}};
}

}  // namespace kiln::tools
