#include "device/devices.h"

#include <utility>

#include "device/compatibility.h"
#include "device/profile.h"
#include "device/stream_device.h"
#include "util/fork_count.h"
#include "util/try.h"

namespace kiln {

Result<std::unique_ptr<Devices>> Devices::open(
    const std::optional<device::Driver>& driver) {
  std::vector<Device> list;
  if (driver)
    list = KILN_TRY(driver->devices());
  return std::unique_ptr<Devices>(new Devices(driver, std::move(list)));
}

Devices::Devices(const std::optional<device::Driver>& driver, std::vector<Device> list)
    : driver_(driver),
      list_(std::move(list)),
      forks_(fork_count()),
      slots_(list_.size()) {}

bool Devices::has(const Device& device) const {
  const auto ordinal = static_cast<std::size_t>(device.ordinal);
  if (device.ordinal < 0 || ordinal >= list_.size())
    return false;
  const Device& ours = list_[ordinal];  // mostly this very object: no texts to compare
  return &ours == &device || ours == device;
}

bool Devices::is_of_this_process() const {
  return fork_count() == forks_;
}

Result<void> Devices::check_process() const {
  if (is_of_this_process())
    return {};
  if (!driver_)
    return fail(ErrorCode::kUnavailable,
                "this process was forked from the process that opened the service: "
                "open a service in the child");
  return fail(ErrorCode::kUnavailable,
              "this process was forked from a process that had started CUDA, which "
              "does not survive a fork: open the service in the child, and fork before "
              "CUDA is used, or start the child with exec");
}

Result<void> Devices::check_driver_there() const {
  KILN_TRY(check_process());
  if (driver_)
    return {};
  return fail(ErrorCode::kUnavailable,
              "there is no CUDA driver (libcuda.so.1) on this machine: install one, or "
              "set KILN_DRIVER");
}

Result<void> Devices::check(const Device& device) const {
  KILN_TRY(check_driver_there());
  if (has(device))
    return {};
  return refuse(
      "device {} ({}, compute capability {}) is none of this service's {}; take a "
      "device of Service::devices()",
      device.ordinal, device.name, to_string(device.capability), list_.size());
}

Result<Device> Devices::find(int ordinal) const {
  KILN_TRY(check_driver_there());
  if (list_.empty())
    return fail(ErrorCode::kUnavailable,
                "the CUDA driver has no device here: look at nvidia-smi, and at "
                "CUDA_VISIBLE_DEVICES");
  const auto at = static_cast<std::size_t>(ordinal);
  if (ordinal >= 0 && at < list_.size())
    return list_[at];
  return refuse("there is no device {}: this service has {}, from 0 on", ordinal,
                list_.size());
}

Result<Device> Devices::device_of(CUstream_st* stream) const {
  KILN_TRY(check_driver_there());
  const std::optional<int> ordinal = KILN_TRY(device::device_of(*driver_, stream));
  if (!ordinal) {
    if (list_.size() == 1)
      return list_.front();
    return refuse(
        "the default stream is of the current context, and this thread has no context: "
        "name one of the {} devices, or make a device current with CUDA "
        "(cudaSetDevice), or pass a stream",
        list_.size());
  }
  const auto at = static_cast<std::size_t>(*ordinal);
  if (*ordinal >= 0 && at < list_.size())
    return list_[at];
  return refuse("the stream is of device {}, and this service has {}", *ordinal,
                list_.size());
}

Result<bool> Devices::is_capturing(CUstream_st* stream) const {
  KILN_TRY(check_driver_there());
  return device::is_capturing(driver_->table(), stream, "a stream");
}

Result<void> Devices::check_driver(device::ImageKind kind,
                                   device::CudaVersion toolkit) const {
  return driver_ ? device::check_accepted(driver_->version(), kind, toolkit)
                 : Result<void>();
}

Result<std::shared_ptr<const device::PrimaryContext>> Devices::context(
    const Device& device) {
  KILN_TRY(check(device));
  Slot& slot = slots_[static_cast<std::size_t>(device.ordinal)];
  const MutexLock lock(slot.mutex);
  if (slot.context == nullptr)
    slot.context = KILN_TRY(device::PrimaryContext::retain(*driver_, device));
  slot.retained = slot.context.get();
  return slot.context;
}

Result<const device::PrimaryContext*> Devices::shared_context(const Device& device) {
  KILN_TRY(check(device));
  const Slot& slot = slots_[static_cast<std::size_t>(device.ordinal)];
  if (const device::PrimaryContext* const retained = slot.retained)
    return retained;
  return KILN_TRY(context(device)).get();  // the slot keeps it alive
}

Result<std::string> Devices::profile(const Device& device) const {
  KILN_TRY(check(device));
  return device::describe_device(*driver_, device.ordinal);
}

}  // namespace kiln
