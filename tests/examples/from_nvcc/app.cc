// The program: main() of before.cu, with CUDA's driver in the place of its runtime.

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <vector>

#include "weighted_sums.h"

namespace {

[[noreturn]] void give_up(const char* message) {
  std::fprintf(stderr, "%s\n", message);
  std::exit(1);
}

template <typename T>
T must(kiln::Result<T> result) {
  if (!result)
    give_up(result.error().message.c_str());
  if constexpr (!std::is_void_v<T>)
    return std::move(*result);
}

void must(CUresult result) {
  const char* message = "unknown error of the driver";
  if (result != CUDA_SUCCESS) {
    cuGetErrorString(result, &message);
    give_up(message);
  }
}

/// The first of the sums of rows of halves of 1, with weights of 2.
template <typename T>
float sum_on(const WeightedSums& sums, Element element, T half) {
  const int rows = 3, columns = 200;
  const std::vector<T> in(rows * columns, half);
  std::vector<float> out(rows);
  CUdeviceptr in_on_device = 0, out_on_device = 0;
  must(cuMemAlloc(&in_on_device, in.size() * sizeof(T)));
  must(cuMemAlloc(&out_on_device, out.size() * sizeof(float)));
  must(cuMemcpyHtoD(in_on_device, in.data(), in.size() * sizeof(T)));
  must(sums.set_weights(std::vector<float>(columns, 2)));
  must(sums.run(reinterpret_cast<float*>(out_on_device),
                reinterpret_cast<const void*>(in_on_device), element, 10, rows, columns,
                nullptr));
  must(cuMemcpyDtoH(out.data(), out_on_device, out.size() * sizeof(float)));
  must(cuMemFree(in_on_device));
  must(cuMemFree(out_on_device));
  return out[rows - 1];
}

}  // namespace

int main() {
  auto service = must(kiln::Service::open());
  const auto device = must(service.device());
  CUcontext context = nullptr;  // the primary one, as the runtime's
  must(cuDevicePrimaryCtxRetain(&context, device.ordinal));
  must(cuCtxSetCurrent(context));

  const auto sums = must(WeightedSums::open(service, device));
  const float of_floats = sum_on(sums, Element::kFloat, 0.5F);
  const float of_halves = sum_on(sums, Element::kHalf, std::uint16_t{0x3800});
  std::printf("%g %g\n", of_floats, of_halves);
  return of_floats == 2000 && of_halves == 2000 ? 0 : 1;
}
