// Memory and streams of one device for a test, in the primary context that Kiln uses.

#pragma once

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

#include "tests/gpu/driver.h"

namespace kiln::gpu_test {

/// Makes a device's primary context current to the thread for a scope. Everything below
/// lives within one. Thread safety: none; it belongs to the thread that made it.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    must(driver().cuDeviceGet(&device_, ordinal), "cuDeviceGet");
    must(driver().cuDevicePrimaryCtxRetain(&context_, device_),
         "cuDevicePrimaryCtxRetain");
    must(driver().cuCtxPushCurrent(context_), "cuCtxPushCurrent");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    CUcontext popped = nullptr;
    std::ignore = driver().cuCtxPopCurrent(&popped);
    std::ignore = driver().cuDevicePrimaryCtxRelease(device_);
  }

  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] int attribute(CUdevice_attribute which) const {
    int value = 0;
    must(driver().cuDeviceGetAttribute(&value, which, device_), "cuDeviceGetAttribute");
    return value;
  }
  /// Everything that was started on it has ended, and well.
  static void synchronize() { must(driver().cuCtxSynchronize(), "cuCtxSynchronize"); }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// Elements of T on the current device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    must(driver().cuMemAlloc(&address_, size_bytes()), "cuMemAlloc");
    must(driver().cuMemsetD8(address_, 0, size_bytes()), "cuMemsetD8");
    OnDevice::synchronize();
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    upload(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { std::ignore = driver().cuMemFree(address_); }

  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(address_); }
  [[nodiscard]] std::size_t size_bytes() const { return size_ * sizeof(T); }

  /// Done when it returns, for every stream.
  void upload(std::span<const T> values) {
    must(driver().cuMemcpyHtoD(address_, values.data(), values.size_bytes()),
         "cuMemcpyHtoD");
    OnDevice::synchronize();
  }
  /// After all that was started on the device.
  [[nodiscard]] std::vector<T> download() const {
    OnDevice::synchronize();
    std::vector<T> values(size_);
    must(driver().cuMemcpyDtoH(values.data(), address_, size_bytes()), "cuMemcpyDtoH");
    return values;
  }

 private:
  std::size_t size_;
  CUdeviceptr address_ = 0;
};

/// Of the context that is current; waits for no other.
class Stream {
 public:
  Stream() {
    must(driver().cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { std::ignore = driver().cuStreamDestroy(handle_); }

  [[nodiscard]] CUstream handle() const { return handle_; }
  void synchronize() const {
    must(driver().cuStreamSynchronize(handle_), "cuStreamSynchronize");
  }

 private:
  CUstream handle_ = nullptr;
};

}  // namespace kiln::gpu_test
