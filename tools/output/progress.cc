#include "tools/output/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

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

/// At most `width` columns; names are ASCII, so a cut cannot split a character.
std::string shortened(const std::string& text, std::size_t width) {
  if (text.size() <= width)
    return text;
  return width <= 3 ? text.substr(0, width) : text.substr(0, width - 3) + "...";
}

}  // namespace

Progress::Progress(const Terminal& terminal, std::size_t total)
    : terminal_(terminal), total_(total) {}

Progress::~Progress() {
  const MutexLock lock(mutex_);
  erase();
}

void Progress::start(const std::string& item) {
  const MutexLock lock(mutex_);
  running_.insert(item);
  draw();
}

void Progress::finish(const std::string& item) {
  const MutexLock lock(mutex_);
  const auto found = running_.find(item);
  if (found != running_.end())
    running_.erase(found);
  ++done_;
  draw();
}

void Progress::message(std::string_view text) {
  const MutexLock lock(mutex_);
  erase();
  print_error(fmt::format("{}\n", printable_lines(text)));
}

void Progress::draw() {
  const auto now = Clock::now();
  if (now - last_draw_ < (terminal_.is_terminal() ? kRedrawEvery : kLineEvery))
    return;
  last_draw_ = now;
  if (!terminal_.is_terminal()) {
    print_error(fmt::format("{}\n", line()));
    return;
  }
  const auto width = static_cast<std::size_t>(std::max(20, terminal_.width() - 1));
  print_error(fmt::format("\r\033[K{}", shortened(line(), width)));
  drawn_ = true;
}

void Progress::erase() {
  if (!drawn_)
    return;
  print_error("\r\033[K");
  drawn_ = false;
}

std::string Progress::line() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  std::string text =
      fmt::format("[{}] {}/{}  {:.1f}/s", bar(done_, total_), done_, total_, rate);
  if (rate > 0 && done_ < total_) {
    const double left = static_cast<double>(total_ - done_) / rate;
    text += fmt::format(
        "  {} left",
        format_duration(std::chrono::milliseconds(static_cast<long long>(left * 1e3))));
  }
  if (!running_.empty())
    text += "  " + *running_.begin();
  return printable_lines(text);
}

}  // namespace kiln::tools
