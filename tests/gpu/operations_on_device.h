// Where test::run_operation() goes in this program, through a service to a device, and
// what the tests of kernels have in common that come this way.

#pragma once

#include "kiln/device.h"
#include "kiln/service.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/on_device.h"

namespace kiln::gpu_test {

/// While it lives operations run there, in a stream of its own, with every tensor that
/// there is copied to the device before and back afterwards. One at a time. Thread
/// safety: none; it belongs to the thread that made it.
class OperationsOnDevice {
 public:
  OperationsOnDevice(Service& service, const Device& device);
  OperationsOnDevice(const OperationsOnDevice&) = delete;
  OperationsOnDevice& operator=(const OperationsOnDevice&) = delete;
  ~OperationsOnDevice();

  /// The one that lives. Throws where there is none.
  [[nodiscard]] static const OperationsOnDevice& of_test();

  [[nodiscard]] Service& service() const { return service_; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const Stream& stream() const { return stream_; }

 private:
  Service& service_;
  const Device device_;
  const OnDevice scope_;
  const Stream stream_;
};

/// A test of results, skipped where nothing computes any.
class GpuResultsTest : public GpuTest {
 protected:
  template <typename Check>
  static void on_each_kind_of_device(const Check& check) {
    for (const Device& device : device_of_each_kind()) {
      SCOPED_TRACE(testing::Message() << "on device " << device.ordinal);
      const OperationsOnDevice scope(service(), device);
      check();
    }
  }
  /// `count` where a device computes, as many as a CPU in its place may take otherwise.
  static std::int64_t many(std::int64_t count, std::int64_t on_cpu) {
    return driver().is_simulated ? on_cpu : count;
  }
};

}  // namespace kiln::gpu_test
