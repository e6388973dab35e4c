// The processes that rows of kiln-bench-costs start.

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "build/build_service.h"
#include "tests/bench/comparison.h"

namespace kiln::bench {

/// ROOT COUNT: opens a service and gets the first COUNT kernels, all of them hits.
inline constexpr std::string_view kHitsChild = "hits";
/// ROOT: prints the seconds from a source with CUB to its key.
inline constexpr std::string_view kSourceKeyChild = "source-key";
/// FILE: prints the seconds for a stat of each path that stands in FILE.
inline constexpr std::string_view kStatChild = "stat";
/// The same for reading each of them for its SHA-256.
inline constexpr std::string_view kHashChild = "hash";
/// ROOT COUNT COUNTER: compiles those of the first COUNT kernels that COUNTER, a file
/// shared with others, leaves to this process.
inline constexpr std::string_view kCompileChild = "compile";

/// ROOT COUNT REMOTE: a process of a job, which gets the first COUNT kernels. REMOTE is
/// as KILN_REMOTE, or "none".
inline constexpr std::string_view kJobChild = "job";

/// ROOT VARIANT: prints the seconds from that CUB source to its artifact.
inline constexpr std::string_view kCubChild = "cub";

/// A kernel that includes CUB, as a user would hand it over; one of many.
[[nodiscard]] std::string cub_source(std::size_t variant = 0);

/// With precompiled headers, whatever the environment says.
[[nodiscard]] Result<std::unique_ptr<BuildService>> open_for_cub(
    const std::filesystem::path& root);

/// From that source to its artifact, which no cache has.
[[nodiscard]] Result<Seconds> cub_build(BuildService& service, std::size_t variant);

}  // namespace kiln::bench
