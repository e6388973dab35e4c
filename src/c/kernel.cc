#include <algorithm>
#include <span>

#include "c/handles.h"

using kiln::Result;
using kiln::c::answer;
using kiln::c::check_struct;
using kiln::c::given;

kiln_result kiln_kernel_entry(const kiln_kernel* kernel, const char* name,
                              kiln_kernel** entry) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(given(entry, "entry"));
    *entry = nullptr;
    KILN_TRY(given(name, "name"));
    kiln::Kernel chosen = KILN_TRY(kernel->kernel.entry(name));
    *entry = new kiln_kernel{std::move(chosen), kernel->opener};
    return {};
  });
}

kiln_result kiln_kernel_geometry(const kiln_kernel* kernel, const char* const* names,
                                 const int64_t* values, size_t n,
                                 kiln_geometry* geometry) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(check_struct(geometry, "geometry"));
    kiln::LaunchArguments arguments;
    for (size_t i = 0; i < n; ++i) {
      KILN_TRY(given(names, "names"));
      KILN_TRY(given(values, "values"));
      KILN_TRY(given(names[i], fmt::format("names[{}]", i)));
      if (!arguments.emplace(names[i], values[i]).second)
        return kiln::fail(kiln::ErrorCode::kInvalidArgument,
                          fmt::format("names has '{}' twice", names[i]));
    }
    const kiln::Geometry made = KILN_TRY(kernel->kernel.geometry(arguments));
    std::copy(made.grid.begin(), made.grid.end(), geometry->grid);
    std::copy(made.block.begin(), made.block.end(), geometry->block);
    geometry->shared_bytes = made.shared_bytes;
    std::copy(made.cluster.begin(), made.cluster.end(), geometry->cluster);
    geometry->cooperative = made.cooperative;
    return {};
  });
}

// NOLINTNEXTLINE(readability-function-size): as many parameters as a launch has
kiln_result kiln_kernel_launch(const kiln_kernel* kernel, const kiln_geometry* geometry,
                               kiln_stream stream, void* const* args,
                               const size_t* sizes, size_t n) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(check_struct(geometry, "geometry"));
    if (n != 0) {
      KILN_TRY(given(args, "args"));
      KILN_TRY(given(sizes, "sizes"));
    }
    kiln::Geometry where;
    std::copy(std::begin(geometry->grid), std::end(geometry->grid), where.grid.begin());
    std::copy(std::begin(geometry->block), std::end(geometry->block),
              where.block.begin());
    where.shared_bytes = geometry->shared_bytes;
    std::copy(std::begin(geometry->cluster), std::end(geometry->cluster),
              where.cluster.begin());
    where.cooperative = geometry->cooperative;
    return kernel->kernel.launch_with(where, stream, std::span(args, n),
                                      std::span(sizes, n));
  });
}

kiln_result kiln_kernel_info(const kiln_kernel* kernel,
                             kiln_kernel_attributes* attributes) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(check_struct(attributes, "attributes"));
    const kiln::KernelAttributes known = KILN_TRY(kernel->kernel.attributes());
    *attributes = {.struct_size = sizeof(*attributes),
                   .registers = known.registers,
                   .local_bytes = known.local_bytes,
                   .constant_bytes = known.constant_bytes,
                   .static_shared_bytes = known.static_shared_bytes,
                   .max_dynamic_shared_bytes = known.max_dynamic_shared_bytes,
                   .max_threads_per_block = known.max_threads_per_block};
    return {};
  });
}

kiln_result kiln_kernel_image(const kiln_kernel* kernel, const void** image,
                              size_t* size) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(given(image, "image"));
    KILN_TRY(given(size, "size"));
    const std::span<const std::byte> bytes = kernel->kernel.image();
    *image = bytes.data();
    *size = bytes.size();
    return {};
  });
}

const char* kiln_kernel_key(const kiln_kernel* kernel) {
  return kernel == nullptr ? "" : kernel->kernel.key().c_str();
}

void kiln_kernel_free(kiln_kernel* kernel) {
  delete kernel;
}
