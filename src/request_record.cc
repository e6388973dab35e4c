#include "request_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "request/manifest.h"
#include "util/log.h"
#include "util/posix_error.h"
#include "util/try.h"

namespace kiln {

Result<std::unique_ptr<RequestRecord>> RequestRecord::open(
    const std::filesystem::path& path) {
  constexpr mode_t kMode = 0644;
  // A pipe without a reader must not hold the host up.
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kMode));
  if (!file)
    return posix_error("open", path, errno);
  return std::unique_ptr<RequestRecord>(new RequestRecord(std::move(file), path));
}

RequestRecord::RequestRecord(UniqueFd file, std::filesystem::path path)
    : file_(std::move(file)), path_(std::move(path)) {}

void RequestRecord::add(const cache::Digest& key, const Request& request,
                        device::Architecture architecture) {
  const MutexLock lock(mutex_);
  if (!known_.insert(key).second)
    return;
  const auto written = write(request, architecture);
  if (written || warned_)
    return;
  warned_ = true;
  logger().warn("KILN_RECORD: {} is not recorded, and others may be missing: {}",
                request.name(), written.error().message);
}

Result<void> RequestRecord::write(const Request& request,
                                  device::Architecture architecture) {
  const std::string line = KILN_TRY(request::manifest_line(request, architecture));
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  const int err = errno;
  if (written != static_cast<ssize_t>(line.size()))
    return posix_error("write", path_, written < 0 ? err : ENOSPC);
  return {};
}

}  // namespace kiln
