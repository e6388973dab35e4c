// A launch as it was asked for, by a call or by a node of a graph.

#pragma once

#include <array>
#include <functional>
#include <tl/expected.hpp>
#include <vector>

#include "tests/support/simulated_driver/abi.h"
#include "tests/support/simulated_driver/image.h"

namespace kiln::simulated {

class Simulator;

using Extent = std::array<unsigned, 3>;

struct Request {
  CUfunction function = nullptr;
  Extent grid{};
  Extent block{};
  unsigned dynamic_shared_bytes = 0;
  CUstream stream = nullptr;
  Extent cluster{};  // zeros for none
  bool is_cooperative = false;
  bool is_programmatic = false;
  std::optional<int> priority{};
  std::array<unsigned, 3> preferred_cluster{};
  void** parameters = nullptr;
  void** extra = nullptr;
  bool is_repeated = false;  // by the launch of a graph
};

/// A launch that is made later, with the parameters' values as they were.
struct KernelWork {
  Request request;  // without stream and parameters
  std::vector<std::vector<std::byte>> values{};
  std::vector<void*> pointers{};  // parameters() keeps them here

  /// To the values, until the next change or copy; null for a kernel without any.
  [[nodiscard]] void** parameters();
};

/// What `request` says, kept. `entry` tells its parameters' sizes.
[[nodiscard]] KernelWork keep(const Request& request, const EntryPoint& entry);

/// The same of a request that was checked as a launch in the current context would be.
[[nodiscard]] tl::expected<KernelWork, CUresult> check_and_keep(Simulator& simulator,
                                                                const Request& request);

/// Accepts the launch into `stream`, under the lock; what it returns makes it, outside.
[[nodiscard]] tl::expected<std::function<CUresult()>, CUresult> prepare(
    Simulator& simulator, const KernelWork& work, CUstream stream);

}  // namespace kiln::simulated
