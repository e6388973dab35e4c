#include "tools/output/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <tuple>

#include "tools/output/terminal.h"
#include "util/log.h"
#include "util/posix_error.h"

namespace kiln::tools {
namespace {

/// The first errno of a failed write to stdout, 0 while there was none.
std::atomic<int>& first_failure() {
  static std::atomic<int> err = 0;  // trivially destroyed
  return err;
}

std::atomic<bool>& leaves_notes_out() {
  static std::atomic<bool> leaves_out = false;
  return leaves_out;
}

void note_failure(int err) {
  int none = 0;
  std::ignore = first_failure().compare_exchange_strong(none, err == 0 ? EIO : err);
}

const Terminal& standard_error() {
  static const Terminal terminal(stderr);
  return terminal;
}

}  // namespace

void open_missing_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() takes the lowest free number. The wrong way round, so that an answer that
    // reaches nobody is not taken for one that did.
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      std::ignore = ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    note_failure(errno);
}

void print_error(std::string_view text) {
  // Keeps the order if both streams go to the same place.
  if (std::fflush(stdout) != 0)
    note_failure(errno);
  static std::atomic<bool> has_bar = false;
  constexpr std::string_view kErase = "\r\033[K";
  const bool is_redrawn = text.starts_with(kErase);
  const bool had_bar = has_bar.exchange(is_redrawn && text != kErase);
  std::string fitted = is_redrawn ? std::string(text) : standard_error().fitted(text);
  if (had_bar && !is_redrawn)
    fitted.insert(0, kErase);
  // A failure here cannot be reported anywhere.
  std::ignore = std::fwrite(fitted.data(), 1, fitted.size(), stderr);
  std::ignore = std::fflush(stderr);
}

void print_note(std::string_view text) {
  if (!leaves_notes_out())
    print_error(text);
}

void leave_notes_out() {
  leaves_notes_out() = true;
}

void print_warnings() {
  log_to([](LogLevel level, const std::string& line) {
    const bool is_warning = level == LogLevel::kWarning;
    const auto head = is_warning                 ? "kiln: warning:"
                      : level == LogLevel::kInfo ? "kiln: info:"
                                                 : "kiln: debug:";
    const auto say = is_warning ? print_error : print_note;
    say(fmt::format(
        "{} {}\n",
        standard_error().styled(head, is_warning ? Style::kYellow : Style::kDim),
        printable_lines(line)));
  });
}

Result<std::string> read_input(const std::stop_token& stop) {
  constexpr int kTurnMs = 100;
  while (!stop.stop_requested()) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, kTurnMs);
    if (ready < 0 && errno != EINTR)
      return posix_error("poll", "standard input", errno);
    if (ready <= 0)
      continue;
    std::string text(1U << 16U, '\0');
    const ssize_t n = ::read(STDIN_FILENO, text.data(), text.size());
    if (n < 0)
      return posix_error("read", "standard input", errno);
    text.resize(static_cast<std::size_t>(n));
    return text;
  }
  return fail(ErrorCode::kCancelled, "stopped while reading standard input");
}

Result<void> flush_output() {
  if (std::fflush(stdout) != 0)
    note_failure(errno);
  const int err = first_failure().load();
  if (err == 0 || err == EPIPE)
    return {};
  return posix_error("write", "standard output", err);
}

}  // namespace kiln::tools
