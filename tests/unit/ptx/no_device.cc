// ptx_unit has no device.

#include "tests/unit/ptx/on_device.h"

namespace kiln::ptx::test {

void expect_as_on_device(const DeviceLaunch&, const std::string&,
                         std::span<const std::byte>, std::size_t, const Nearness&) {}

}  // namespace kiln::ptx::test
