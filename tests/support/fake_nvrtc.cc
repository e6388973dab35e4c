// A library with NVRTC's entry points and a mind of its own, for tests of what happens
// when the compiler hangs, dies or lies. KILN_FAKE_NVRTC says which; anything else, or
// nothing, is honest: a minimal image of the right architecture with the source's
// kernels as entry points and no code in them.
//   hang  crash  empty  wrong-arch  no-entry     and, beyond those:
//   hoard (allocates until it is killed)  exit (leaves the process with status 7)
//   signal-N (ends by that signal; marked-signal-N after 0.5 s where a file `kill` is
//   in TMPDIR; once-signal-N the first that finds it, and takes it away) large (holds
//   200 MiB for 0.3 s) hang-version (never says which version it is), crash-version
//   open-itself (as NVRTC 12.8 does)
//   break-out (status 9 if it can reach the network, another program or process)

#include <dlfcn.h>
#include <elf.h>

#pragma GCC visibility push(default)
#include <nvrtc.h>
#pragma GCC visibility pop

#include <fcntl.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/elf_builder.h"
#include "util/bytes.h"

namespace {

using kiln::as_bytes;
using kiln::Bytes;

constexpr std::array kArchitectures{75, 80,  86,  87,  88,  89,
                                    90, 100, 103, 110, 120, 121};
constexpr std::uint16_t kMachineCuda = 190;
constexpr unsigned char kCudaEntry = 0x10;  // STO_CUDA_ENTRY

struct Program {
  std::string source;
  std::map<std::string, std::string, std::less<>> lowered;  // by name expression
  std::string log;
  Bytes cubin;
  std::string ptx;
};

Program& of(nvrtcProgram raw) {
  return *reinterpret_cast<Program*>(raw);
}

std::string mode() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes a worker's environment
  const char* const value = std::getenv("KILN_FAKE_NVRTC");
  return value == nullptr ? "" : value;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// "scale<float>" is "_Z5scalev": enough of a mangled name to tell it from a plain one.
std::string lower(std::string_view expression) {
  const auto name = expression.substr(0, expression.find('<'));
  return "_Z" + std::to_string(name.size()) + std::string(name) + "v";
}

/// The source without directives and comment lines, which may speak of kernels.
std::string without_directives(std::string_view source) {
  std::string code;
  bool goes_on = false;  // a directive
  while (!source.empty()) {
    const auto end = std::min(source.find('\n'), source.size());
    const auto line = source.substr(0, end);
    source.remove_prefix(std::min(end + 1, source.size()));
    const auto first = line.find_first_not_of(" \t");
    const auto text = first == line.npos ? std::string_view() : line.substr(first);
    const bool is_directive = goes_on || text.starts_with('#');
    goes_on = is_directive && line.ends_with('\\');
    if (!is_directive && !text.starts_with("//"))
      code.append(line).push_back('\n');
  }
  return code;
}

/// The word before the first '(' from `at` on that does not belong to
/// __launch_bounds__.
std::string_view declared_name(std::string_view code, std::size_t at) {
  auto open = code.find('(', at);
  const auto bounds = code.find("__launch_bounds__", at);
  if (bounds < open)
    open = code.find('(', code.find(')', open));
  if (open == code.npos)
    return {};
  auto begin = open;
  while (begin > at && is_word(code[begin - 1])) --begin;
  return code.substr(begin, open - begin);
}

/// The names of the functions declared __global__, or as templates of Kiln declare
/// them.
std::vector<std::string> entry_points(const Program& program) {
  std::vector<std::string> names;
  constexpr std::string_view kGlobal = "__global__";
  constexpr std::string_view kKernel = "KILN_KERNEL(";
  const std::string text = without_directives(program.source);
  const std::string_view code = text;
  for (auto at = code.find(kGlobal); at != code.npos; at = code.find(kGlobal, at)) {
    const auto line = code.rfind('\n', at) + 1;
    const auto before = code.substr(line, at - line);
    at += kGlobal.size();
    const std::string name(declared_name(code, at));
    if (before.find("template") == before.npos)
      names.push_back(before.find("extern \"C\"") != before.npos ? name : lower(name));
  }
  for (auto at = code.find(kKernel); at != code.npos; at = code.find(kKernel, at)) {
    at = std::min(code.find(')', at), code.size());
    names.emplace_back(declared_name(code, at));
  }
  for (const auto& [expression, lowered] : program.lowered) {
    if (std::find(names.begin(), names.end(), lowered) == names.end())
      names.push_back(lowered);
  }
  return names;
}

Bytes make_cubin(unsigned sm, const std::vector<std::string>& entries) {
  kiln::test::ElfBuilder elf;
  elf.machine = kMachineCuda;
  elf.abi_version = 8;
  elf.flags = 0x06000004U | sm << 8U;
  elf.add_section(".text", SHT_PROGBITS, Bytes(16));
  for (const auto& entry : entries)
    elf.add_symbol(entry, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), kCudaEntry, 1, 16);
  return elf.build();
}

std::string make_ptx(const std::string& architecture,
                     const std::vector<std::string>& entries) {
  std::string text = ".version 9.0\n.target " + architecture + "\n.address_size 64\n";
  for (const auto& entry : entries)
    text += ".visible .entry " + entry + "()\n{\n\tret;\n}\n";
  return text;
}

struct Wanted {
  bool cubin = true;
  unsigned sm = 0;
  std::string suffix;
};

/// From --gpu-architecture=sm_90a; all zero without it.
Wanted wanted_architecture(const std::vector<std::string_view>& options) {
  for (const auto option : options) {
    for (const std::string_view name : {"--gpu-architecture=", "-arch="}) {
      if (!option.starts_with(name))
        continue;
      const auto value = option.substr(name.size());
      const auto digits = value.find_first_of("0123456789");
      if (digits == value.npos)
        continue;
      const std::string number(value.substr(digits));
      char* rest = nullptr;
      const auto sm = static_cast<unsigned>(std::strtoul(number.c_str(), &rest, 10));
      return {.cubin = value.starts_with("sm_"), .sm = sm, .suffix = rest};
    }
  }
  return {};
}

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

[[noreturn]] void crash() {
  // A sanitizer's handler would turn the signal into an exit status.
  std::ignore = std::signal(SIGSEGV, SIG_DFL);
  std::ignore = std::raise(SIGSEGV);
  std::abort();
}

void open_itself() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&nvrtcVersion), &info) != 0)
    std::ignore = ::open(info.dli_fname, O_RDONLY | O_CLOEXEC);
}

[[noreturn]] void hoard() {
  constexpr std::size_t kStep = 8U << 20U;
  constexpr std::size_t kMost = 2048;  // 16 GiB, in case nobody watches
  std::vector<std::vector<char>> hoarded;
  while (hoarded.size() < kMost) {
    hoarded.emplace_back(kStep, 'x');
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  hang();
}

bool has_landlock() {
  constexpr int kAskVersion = 1;
  return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion) > 0;
}

bool opens_memory_of(pid_t process) {
  const auto path = "/proc/" + std::to_string(process) + "/mem";
  return ::open(path.c_str(), O_RDONLY) >= 0;
}

/// Whether anything succeeds that a compiler has no need of.
bool breaks_out() {
  for (const int family : {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET}) {
    if (::socket(family, SOCK_DGRAM, 0) >= 0)
      return true;
  }
  ::execl("/bin/true", "true", nullptr);
  return errno != EACCES ||
         ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr) == 0 ||
         ::kill(::getppid(), 0) == 0 || ::unshare(CLONE_NEWUSER) == 0 ||
         (has_landlock() && opens_memory_of(::getppid()));
}

std::string marker() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes a worker's environment
  const char* const folder = std::getenv("TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/kill";
}

/// Of "signal-9" and the like.
void end_by_signal(std::string_view how) {
  constexpr std::string_view kSignal = "signal-";
  const auto at = how.find(kSignal);
  if (at == how.npos || (how.starts_with("once-") && ::unlink(marker().c_str()) != 0) ||
      (how.starts_with("marked-") && ::access(marker().c_str(), F_OK) != 0))
    return;
  if (how.starts_with("marked-"))
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const int signal = std::atoi(how.substr(at + kSignal.size()).data());
  // A sanitizer's handler would turn the signal into an exit status.
  std::ignore = std::signal(signal, SIG_DFL);
  std::ignore = std::raise(signal);
}

void be_large() {
  const std::string bytes(200U << 20U, 'x');
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Read, so that it is not left out.
  std::ignore = bytes.find('y');
}

void build(Program& program, const Wanted& wanted) {
  const auto how = mode();
  end_by_signal(how);
  if (how == "large")
    be_large();
  if (how == "hang")
    hang();
  if (how == "crash")
    crash();
  if (how == "hoard")
    hoard();
  if (how == "open-itself")
    open_itself();
  if (how == "exit")
    ::_exit(7);
  if (how == "break-out" && breaks_out())
    ::_exit(9);
  if (how == "empty")
    return;
  const unsigned sm = how != "wrong-arch" ? wanted.sm : wanted.sm == 75 ? 80 : 75;
  const auto entries =
      how == "no-entry" ? std::vector<std::string>{} : entry_points(program);
  program.ptx = make_ptx("sm_" + std::to_string(sm) + wanted.suffix, entries);
  if (wanted.cubin)
    program.cubin = make_cubin(sm, entries);
}

template <typename Text>
nvrtcResult copy_out(const Text& text, char* to) {
  const auto bytes = std::as_bytes(std::span(text));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(to));
  return NVRTC_SUCCESS;
}

}  // namespace

nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (mode() == "hang-version")
    hang();
  if (mode() == "crash-version")
    crash();
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_SUCCESS                ? "NVRTC_SUCCESS"
         : result == NVRTC_ERROR_INVALID_OPTION ? "NVRTC_ERROR_INVALID_OPTION"
                                                : "NVRTC_ERROR unknown";
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(kArchitectures.size());
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  std::copy(kArchitectures.begin(), kArchitectures.end(), architectures);
  return NVRTC_SUCCESS;
}

// NVRTC has six parameters here. NOLINTNEXTLINE(readability-function-size)
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source,
                               const char* /*name*/, int /*headers*/,
                               const char* const* /*texts*/,
                               const char* const* /*names*/) {
  auto* const created = new Program;
  created->source = source;
  *program = reinterpret_cast<nvrtcProgram>(created);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete &of(*program);
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char* expression) {
  of(program).lowered[expression] = lower(expression);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                const char* const* options) {
  const std::vector<std::string_view> list(options, options + count);
  const auto wanted = wanted_architecture(list);
  if (std::find(kArchitectures.begin(), kArchitectures.end(),
                static_cast<int>(wanted.sm)) == kArchitectures.end()) {
    of(program).log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
    return NVRTC_ERROR_INVALID_OPTION;
  }
  build(of(program), wanted);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char* expression,
                                const char** lowered) {
  const auto& names = of(program).lowered;
  const auto found = names.find(std::string_view(expression));
  if (found == names.end())
    return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *lowered = found->second.c_str();
  return NVRTC_SUCCESS;
}

// The sizes of texts count their NUL.
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  *size = of(program).log.size() + 1;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  log[of(program).log.size()] = '\0';
  return copy_out(of(program).log, log);
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* size) {
  *size = of(program).ptx.size() + 1;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  ptx[of(program).ptx.size()] = '\0';
  return copy_out(of(program).ptx, ptx);
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  *size = of(program).cubin.size();
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return copy_out(of(program).cubin, cubin);
}

nvrtcResult nvrtcSetFlowCallback(nvrtcProgram /*program*/,
                                 int (* /*callback*/)(void*, void*),
                                 void* /*payload*/) {
  return NVRTC_SUCCESS;  // never asked: such a compiler is what the limits are for
}
