#include "tools/in_threads.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "util/quiet_thread.h"

namespace kiln::tools {

void in_threads(std::size_t threads, std::size_t count, const std::stop_token& stop,
                const std::function<void(std::size_t)>& handle) {
  std::atomic<std::size_t> next{0};
  const auto take = [&] {
    while (!stop.stop_requested()) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count)
        return;
      handle(i);
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) {
    auto thread = start_quiet_thread(take, Thread::kJoinable);
    if (!thread)
      break;  // which is logged
    others.push_back(*std::move(thread));
  }
  take();
  for (std::thread& thread : others) thread.join();
}

}  // namespace kiln::tools
