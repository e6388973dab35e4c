#include "tests/support/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <tuple>
#include <utility>

#include "tests/support/paths.h"
#include "tests/support/processes.h"

namespace kiln::test {
namespace {

// Of the host's environment: what finds an NVRTC and a cuDNN, and what a sanitizer
// reads.
constexpr std::array kKept{"PATH",          "LD_LIBRARY_PATH", "CUDA_HOME",
                           "CUDA_PATH",     "VIRTUAL_ENV",     "CONDA_PREFIX",
                           "KILN_NVRTC",    "KILN_CUDNN",      "ASAN_OPTIONS",
                           "UBSAN_OPTIONS", "TSAN_OPTIONS"};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int status_of(int raw) {
  return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// In the child: no more than system calls between fork and exec.
void redirect(int to, const char* path, int flags) {
  constexpr mode_t kMode = 0600;
  const int file = ::open(path, flags, kMode);
  if (file < 0 || ::dup2(file, to) < 0)
    ::_exit(126);
}

}  // namespace

nlohmann::json Finished::json() const {
  auto document = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    ADD_FAILURE() << "stdout is not one JSON document: " << text();
    return nullptr;
  }
  return document;
}

std::string Finished::text() const {
  return fmt::format("exit status {}\n--- stdout\n{}\n--- stderr\n{}", status, out,
                     err);
}

Running::Running(pid_t pid, std::filesystem::path out, std::filesystem::path err)
    : pid_(pid), out_(std::move(out)), err_(std::move(err)) {}

Running::Running(Running&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)) {}

Running::~Running() {
  if (pid_ <= 0)
    return;
  std::ignore = ::kill(pid_, SIGKILL);  // it may have ended
  std::ignore = ::waitpid(pid_, nullptr, 0);
}

std::string Running::err_so_far() const {
  return contents(err_);
}

void Running::signal(int number) const {
  EXPECT_EQ(::kill(pid_, number), 0);
}

Finished Running::finish(std::chrono::seconds limit) {
  int raw = 0;
  if (!eventually(limit, [&] { return ::waitpid(pid_, &raw, WNOHANG) == pid_; })) {
    std::ignore = ::kill(pid_, SIGKILL);
    std::ignore = ::waitpid(pid_, &raw, 0);
    ADD_FAILURE() << "the program was still running after " << limit.count() << " s";
  }
  pid_ = -1;
  return {status_of(raw), contents(out_), contents(err_)};
}

KilnProgram::KilnProgram() {
  for (const char* name : kKept) {
    if (const char* value = std::getenv(name))
      environment_[name] = value;
  }
  environment_["HOME"] = temp_.path() / "home";
  environment_["TMPDIR"] = temp_.path();
  environment_["KILN_CACHE_DIR"] = cache_dir();
  environment_["KILN_SIMULATED_KERNELS"] = "record";  // `kiln bench` launches thousands
}

std::filesystem::path KilnProgram::cache_dir() const {
  return temp_.path() / "cache";
}

void KilnProgram::set(const std::string& variable, const std::string& value) {
  environment_[variable] = value;
}

void KilnProgram::unset(const std::string& variable) {
  environment_.erase(variable);
}

void KilnProgram::use_fake_nvrtc(const std::string& mode) {
  set("KILN_NVRTC", paths::kFakeNvrtc);
  set("KILN_FAKE_NVRTC", mode);
}

std::vector<std::string> KilnProgram::environment() const {
  std::vector<std::string> list;
  for (const auto& [name, value] : environment_) list.push_back(name + "=" + value);
  return list;
}

Running KilnProgram::start(const Arguments& arguments, std::string_view input) {
  std::vector<std::string> words{paths::kProgram};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return start_words(std::move(words), input);
}

Finished KilnProgram::run_in_shell(const std::string& command) {
  set("PATH", std::filesystem::path(paths::kProgram).parent_path().native() +
                  ":/usr/local/bin:/usr/bin:/bin");
  return start_words({"/bin/sh", "-c", command}, "").finish();
}

Running KilnProgram::start_words(std::vector<std::string> words,
                                 std::string_view input) {
  const std::string name = fmt::format("run-{}", ++runs_);
  const std::string in = write(name + ".in", input);
  const std::string out = temp_.path() / (name + ".out");
  const std::string err = temp_.path() / (name + ".err");
  std::vector<std::string> variables = environment();
  const auto argv = pointers(words);
  const auto envp = pointers(variables);
  const std::string folder = temp_.path();
  const pid_t pid = ::fork();
  if (pid == 0) {
    redirect(STDIN_FILENO, in.c_str(), O_RDONLY);
    redirect(STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
    redirect(STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
    if (::chdir(folder.c_str()) == 0)
      ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  return {pid, out, err};
}

Finished KilnProgram::run(const Arguments& arguments, std::string_view input) {
  return start(arguments, input).finish();
}

Finished KilnProgram::run_on_terminal(const Arguments& arguments,
                                      std::string_view typed, unsigned short columns,
                                      std::string_view after) {
  std::vector<std::string> words{paths::kProgram};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment();
  const auto argv = pointers(words);
  const auto envp = pointers(variables);
  const std::string folder = temp_.path();
  const winsize size{.ws_row = 30, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  std::array<int, 2> ended{-1, -1};
  EXPECT_EQ(::pipe2(ended.data(), O_CLOEXEC), 0);
  const pid_t leader = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (leader == 0) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (::chdir(folder.c_str()) == 0)
        ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    // The end of a session's leader takes away what nobody has read yet, so it waits.
    std::ignore = std::signal(SIGINT, SIG_IGN);
    int raw = 0;
    std::ignore = ::waitpid(pid, &raw, 0);
    std::ignore = ::write(ended[1], &raw, sizeof raw);
    for (;;) ::pause();
  }
  Finished finished;
  bool is_typed = false;
  const auto type = [&] {
    if (is_typed || finished.out.find(after) == std::string::npos)
      return;
    is_typed = true;
    EXPECT_EQ(::write(terminal, typed.data(), typed.size()),
              static_cast<ssize_t>(typed.size()));
  };
  type();
  std::array<char, 4096> chunk{};
  std::array<pollfd, 2> either{{{.fd = terminal, .events = POLLIN, .revents = 0},
                                {.fd = ended[0], .events = POLLIN, .revents = 0}}};
  // All that was printed before the end is read before it.
  while (::poll(either.data(), either.size(), -1) >= 0 && either[0].revents != 0) {
    const ssize_t n = ::read(terminal, chunk.data(), chunk.size());
    if (n <= 0)
      break;
    finished.out.append(chunk.data(), static_cast<std::size_t>(n));
    type();
  }
  int raw = 0;
  EXPECT_EQ(::read(ended[0], &raw, sizeof raw), sizeof raw);
  ::kill(leader, SIGKILL);
  EXPECT_EQ(::waitpid(leader, nullptr, 0), leader);
  for (const int each : {terminal, ended[0], ended[1]}) ::close(each);
  finished.status = status_of(raw);
  return finished;
}

std::string KilnProgram::write(const std::string& name, std::string_view text) {
  const std::filesystem::path path = temp_.path() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::vector<std::filesystem::path> KilnProgram::object_files() const {
  std::vector<std::filesystem::path> files;
  std::error_code gone;  // while a program under test publishes
  std::filesystem::recursive_directory_iterator at(cache_dir() / "objects", gone);
  for (; !gone && at != std::filesystem::recursive_directory_iterator();
       at.increment(gone)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) &&
        !at->path().filename().native().starts_with('.'))
      files.push_back(at->path());
  }
  return files;
}

nlohmann::json KilnProgram::json_of(Arguments arguments, int status) {
  arguments.emplace_back("--json");
  const Finished finished = run(arguments);
  EXPECT_EQ(finished.status, status) << finished.text();
  return finished.json();
}

std::string KilnProgram::compiled(std::string_view source, const std::string& arch,
                                  const Arguments& more) {
  const nlohmann::json document =
      json_of(Arguments{"compile", write("source.cu", source), "--arch", arch} + more);
  return document.is_null() ? "" : document["entries"][0]["key"].get<std::string>();
}

KilnProgram::Arguments words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

KilnProgram::Arguments operator+(KilnProgram::Arguments arguments,
                                 const KilnProgram::Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string write_tiny_templates(KilnProgram& kiln) {
  kiln.write("templates/tiny/tiny.cu.mustache",
             "extern \"C\" __global__ void <%kernel%>(<%dtype%>* x) {\n"
             "  x[threadIdx.x] = x[threadIdx.x + <%wide%>];\n"
             "}\n");
  kiln.write("templates/tiny/kernel.toml", R"(schema = 1
source = "tiny.cu.mustache"
default_set = [{ dtype = "*", wide = "*" }]
quick = [{ dtype = "bf16", wide = false }]

[targets]
minimum = "7.5"

[parameters.dtype]
type = "enum"
values = ["f16", "bf16", "f32"]
required = true
meaning = "element type"

[parameters.wide]
type = "boolean"
default = false
meaning = "a further element"

[launch]
arguments.rows = "rows"
grid = ["rows"]
block = [32]

[[kernel]]
name = "tiny_fwd"
summary = "copies, forward"

[[kernel]]
name = "tiny_bwd"
summary = "copies, backward"
targets = { minimum = "8.0" }
)");
  return kiln.folder() / "templates";
}

}  // namespace kiln::test
