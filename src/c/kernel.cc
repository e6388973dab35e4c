#include <algorithm>
#include <span>
#include <vector>

#include "c/handles.h"

using kiln::Result;
using kiln::c::answer;
using kiln::c::check_struct;
using kiln::c::given;
using kiln::c::read_struct;
using kiln::c::write_struct;

namespace kiln::c {
namespace {

static_assert(KILN_ARGUMENT_INTEGER == static_cast<int>(ArgumentKind::kInteger) &&
              KILN_ARGUMENT_FLOAT == static_cast<int>(ArgumentKind::kFloat));

/// Writes the first `*n` of what `ask` returns to `list`, and their number to `*n`.
template <typename Ask, typename T>
Result<void> write_list(const Ask& ask, T* list, const char* name, size_t* n) {
  KILN_TRY(given(n, "n"));
  if (*n != 0)
    KILN_TRY(given(list, name));
  const auto all = KILN_TRY(ask());
  for (std::size_t i = 0; i < std::min(*n, all.size()); ++i)
    list[i] = static_cast<T>(all[i]);
  *n = all.size();
  return {};
}

}  // namespace
}  // namespace kiln::c

kiln_result kiln_kernel_entry(const kiln_kernel* kernel, const char* name,
                              kiln_kernel** entry) {
  return answer(kernel, entry, "entry", [&]() -> Result<void> {
    KILN_TRY(given(name, "name"));
    kiln::Kernel chosen = KILN_TRY(kernel->kernel.entry(name));
    *entry = new kiln_kernel{std::move(chosen), kernel->opener};
    return {};
  });
}

kiln_result kiln_kernel_global(const kiln_kernel* kernel, const char* name,
                               uint64_t* address, uint64_t* bytes) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(given(name, "name"));
    KILN_TRY(given(address, "address"));
    KILN_TRY(given(bytes, "bytes"));
    const kiln::GlobalVariable found = KILN_TRY(kernel->kernel.global(name));
    *address = found.address;
    *bytes = found.bytes;
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
        return kiln::fail(kiln::ErrorCode::kInvalidArgument, "names has '{}' twice",
                          names[i]);
    }
    const auto& [grid, block, shared_bytes, cluster, cooperative, programmatic,
                 priority, preferred_cluster] =
        KILN_TRY(kernel->kernel.geometry(arguments));
    kiln_geometry made = KILN_GEOMETRY_INIT;
    std::copy(grid.begin(), grid.end(), made.grid);
    std::copy(block.begin(), block.end(), made.block);
    made.shared_bytes = shared_bytes;
    std::copy(cluster.begin(), cluster.end(), made.cluster);
    made.cooperative = cooperative;
    made.programmatic = programmatic;
    made.has_priority = priority.has_value();
    made.priority = priority.value_or(0);
    std::ranges::copy(preferred_cluster, made.preferred_cluster);
    write_struct(geometry, made);
    return {};
  });
}

// NOLINTNEXTLINE(readability-function-size): as many parameters as a launch has
kiln_result kiln_kernel_launch(const kiln_kernel* kernel, const kiln_geometry* geometry,
                               kiln_stream stream, void* const* args,
                               const size_t* sizes, size_t n) {
  return kiln_kernel_launch_typed(kernel, geometry, stream, args, sizes, nullptr, n);
}

// NOLINTNEXTLINE(readability-function-size): as many parameters as a launch has
kiln_result kiln_kernel_launch_typed(const kiln_kernel* kernel,
                                     const kiln_geometry* geometry, kiln_stream stream,
                                     void* const* args, const size_t* sizes,
                                     const uint8_t* kinds, size_t n) {
  return answer(kernel, [&]() -> Result<void> {
    const kiln_geometry given_geometry =
        KILN_TRY(read_struct(geometry, "geometry", kiln_geometry KILN_GEOMETRY_INIT));
    if (n != 0) {
      KILN_TRY(given(args, "args"));
      KILN_TRY(given(sizes, "sizes"));
    }
    kiln::Geometry where;
    auto& [grid, block, shared_bytes, cluster, cooperative, programmatic, priority,
           preferred_cluster] = where;
    std::ranges::copy(given_geometry.grid, grid.begin());
    std::ranges::copy(given_geometry.block, block.begin());
    shared_bytes = given_geometry.shared_bytes;
    std::ranges::copy(given_geometry.cluster, cluster.begin());
    cooperative = given_geometry.cooperative;
    programmatic = given_geometry.programmatic;
    if (given_geometry.has_priority)
      priority = given_geometry.priority;
    std::ranges::copy(given_geometry.preferred_cluster, preferred_cluster.begin());
    if (kinds == nullptr)
      return kernel->kernel.launch_with(where, stream, std::span(args, n),
                                        std::span(sizes, n));
    std::vector<kiln::ArgumentKind> of_each;
    for (const uint8_t kind : std::span(kinds, n)) {
      if (kind > KILN_ARGUMENT_FLOAT)
        return kiln::fail(kiln::ErrorCode::kInvalidArgument,
                          "kinds has {}, which is no KILN_ARGUMENT", kind);
      of_each.push_back(static_cast<kiln::ArgumentKind>(kind));
    }
    return kernel->kernel.launch_typed(where, stream, std::span(args, n),
                                       std::span(sizes, n), of_each);
  });
}

kiln_result kiln_kernel_info(const kiln_kernel* kernel,
                             kiln_kernel_attributes* attributes) {
  return answer(kernel, [&]() -> Result<void> {
    KILN_TRY(check_struct(attributes, "attributes"));
    const kiln::KernelAttributes its = KILN_TRY(kernel->kernel.attributes());
    write_struct(attributes, {.struct_size = 0,
                              .registers = its.registers,
                              .local_bytes = its.local_bytes,
                              .constant_bytes = its.constant_bytes,
                              .static_shared_bytes = its.static_shared_bytes,
                              .max_dynamic_shared_bytes = its.max_dynamic_shared_bytes,
                              .max_threads_per_block = its.max_threads_per_block});
    return {};
  });
}

kiln_result kiln_kernel_parameters(const kiln_kernel* kernel, size_t* sizes,
                                   size_t* n) {
  return answer(kernel, [&]() -> Result<void> {
    return kiln::c::write_list([&] { return kernel->kernel.parameter_sizes(); }, sizes,
                               "sizes", n);
  });
}

kiln_result kiln_kernel_parameter_kinds(const kiln_kernel* kernel, uint8_t* kinds,
                                        size_t* n) {
  return answer(kernel, [&]() -> Result<void> {
    return kiln::c::write_list([&] { return kernel->kernel.parameter_kinds(); }, kinds,
                               "kinds", n);
  });
}

kiln_result kiln_kernel_image(const kiln_kernel* kernel, const void** image,
                              size_t* size) {
  kiln::c::clear(image);
  if (size != nullptr)
    *size = 0;
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
