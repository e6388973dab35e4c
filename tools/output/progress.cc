#include "tools/output/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/standard_streams.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

constexpr std::chrono::milliseconds kRedrawEvery{100};
constexpr std::chrono::milliseconds kLineEvery{5000};  // where the output is a log
constexpr std::size_t kBarWidth = 24;

std::string bar(std::size_t done, std::size_t total) {
  const std::size_t filled = total == 0 ? kBarWidth : kBarWidth * done / total;
  return std::string(filled, '#') + std::string(kBarWidth - filled, '.');
}

}  // namespace

// On a terminal the first line comes at once.
Progress::Progress(const Terminal& terminal, std::size_t total)
    : terminal_(terminal),
      total_(total),
      last_draw_(terminal.is_terminal() ? Clock::time_point() : Clock::now()) {}

Progress::~Progress() {
  const MutexLock lock(mutex_);
  erase();
}

void Progress::start(const std::string& item) {
  const MutexLock lock(mutex_);
  running_.insert(item);
  draw();
}

void Progress::finish(const std::string& item,
                      std::optional<std::chrono::milliseconds> left) {
  const MutexLock lock(mutex_);
  left_ = left;
  const auto found = running_.find(item);
  if (found != running_.end())
    running_.erase(found);
  ++done_;
  draw();
}

void Progress::draw() {
  const auto now = Clock::now();
  if (now - last_draw_ < (terminal_.is_terminal() ? kRedrawEvery : kLineEvery))
    return;
  last_draw_ = now;
  if (!terminal_.is_terminal()) {
    print_note(fmt::format("{}\n", line()));
    return;
  }
  // Room for the ^C of a terminal, which the next line must not begin with.
  const auto width = static_cast<std::size_t>(std::max(20, terminal_.width() - 4));
  print_note(fmt::format("\r\033[K{}", shortened(line(), width, Cut::kEnd)));
  drawn_ = true;
}

void Progress::erase() {
  if (!drawn_)
    return;
  print_note("\r\033[K");
  drawn_ = false;
}

std::string Progress::line() const {
  std::string text = fmt::format("[{}] {}/{}", bar(done_, total_), done_, total_);
  if (left_ && done_ < total_)
    text += fmt::format("  {} left", format_duration(*left_));
  if (!running_.empty())
    text += "  " + *running_.begin();
  return printable_lines(text);
}

}  // namespace kiln::tools
