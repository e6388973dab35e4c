// The same in several threads at once.

#pragma once

#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

namespace kiln::test {

/// Runs `body(i)`, or `body()`, in a thread for each i below `count`; returns when all
/// have.
template <typename Count, typename Body>
void in_threads(Count count, const Body& body) {
  std::vector<std::thread> threads;
  for (Count i = 0; i < count; ++i) {
    if constexpr (std::is_invocable_v<const Body&, Count>)
      threads.emplace_back(std::cref(body), i);
    else
      threads.emplace_back(std::cref(body));
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kiln::test
