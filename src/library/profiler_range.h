// A range in the time line of a profiler that has injected itself into the process, by
// NVTX 3: domain "kiln", "get <kernel>" or "load <kernel>".

#pragma once

#include <string_view>

namespace kiln {

/// From its construction to its destruction, on one thread. Without a profiler, or
/// built without NVTX's headers, it does nothing. Thread safety: as many as there are
/// threads.
class ProfilerRange {
 public:
  ProfilerRange(std::string_view what, std::string_view kernel);
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange();

 private:
  bool is_open_ = false;
};

}  // namespace kiln
