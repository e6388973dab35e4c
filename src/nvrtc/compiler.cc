#include "nvrtc/compiler.h"

#include <fmt/format.h>
#include <nvrtc.h>

#include <optional>
#include <tuple>
#include <utility>

#include "build/artifact.h"
#include "build/settings.h"
#include "compile/protocol/job.h"
#include "request/nvrtc_options.h"
#include "request/resolve.h"
#include "util/fork_count.h"
#include "util/log.h"
#include "util/mutex.h"
#include "util/try.h"
#include "util/words.h"

namespace kiln::nvrtc {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
constinit std::atomic<Compiler*> opened = nullptr;

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
constinit Mutex opening;
constexpr std::uint64_t kNobody = ~std::uint64_t{0};
/// The fork_count() of the process that opens the service, or has.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process
constinit std::atomic<std::uint64_t> opener = kNobody;

Result<std::unique_ptr<BuildService>> open_service() {
  const Config config = KILN_TRY(settings({}, process_environment()));
  if (config.log_level)
    KILN_TRY(set_log_level(*config.log_level));
  return BuildService::open(
      config,
      {.keeps_workers = 1, .journal = "programs of NVRTC", .may_be_elsewhere = true});
}

std::unique_ptr<RequestRecord> open_record(const Config& config) {
  if (!config.record)
    return nullptr;
  auto record = RequestRecord::open(*config.record);
  if (record)
    return *std::move(record);
  log(LogLevel::kWarning, {"nothing is recorded: ", record.error().message});
  return nullptr;
}

/// Of an NVRTC without --gpu-architecture; nullopt for one that is newer than Kiln.
std::optional<device::Target> default_target(device::CudaVersion version) {
  constexpr int k12 = 12;
  constexpr int k13 = 13;
  if (version.major != k12 && version.major != k13)
    return std::nullopt;
  return device::Target{
      device::Architecture{version.major == k12 ? device::ComputeCapability{5, 2}
                                                : device::ComputeCapability{7, 5}},
      device::ImageKind::kPtx};
}

/// Of a compile that ended by the source, whichever process ran it; nullopt for any
/// other result.
std::optional<int> code_of(std::string_view result) {
  if (result == "NVRTC_ERROR_OUT_OF_MEMORY")
    return NVRTC_ERROR_OUT_OF_MEMORY;
  if (result == "NVRTC_ERROR_COMPILATION")
    return NVRTC_ERROR_COMPILATION;
  if (result == "NVRTC_ERROR_INTERNAL_ERROR")
    return NVRTC_ERROR_INTERNAL_ERROR;
  return std::nullopt;
}

tl::unexpected<Passed> passed(Reason reason, std::string detail = {}) {
  return tl::unexpected(Passed{reason, std::move(detail)});
}

}  // namespace

Compiler& Compiler::of_process() {
  if (Compiler* known = opened.load())
    return *known;
  const std::uint64_t forks = fork_count();
  std::uint64_t began = kNobody;
  if (!opener.compare_exchange_strong(began, forks) && began != forks) {
    // A thread of the parent was opening it, and is not here: the lock stays its own.
    auto* const forked = new Compiler(fail(ErrorCode::kUnavailable, "forked"));
    Compiler* known = nullptr;
    return opened.compare_exchange_strong(known, forked) ? *forked : *known;
  }
  const MutexLock lock(opening);
  if (opened.load() == nullptr)
    opened = new Compiler(open_service());
  return *opened;
}

Compiler* Compiler::if_opened() {
  return opened.load();
}

Compiler::Compiler(Result<std::unique_ptr<BuildService>> service)
    : service_(std::move(service)), opened_by_(opener) {
  if (service_)
    record_ = open_record((*service_)->config());
}

tl::expected<Compiled, Passed> Compiler::compile(const std::filesystem::path& library,
                                                 SourceOptions source) {
  auto ended = compiled(library, std::move(source));
  if (ended && ended->code != NVRTC_SUCCESS) {
    ++counts()->failed;
    (*service_)->cache().counters().add_named("nvrtc_failed");
  }
  return ended;
}

tl::expected<Compiled, Passed> Compiler::compiled(const std::filesystem::path& library,
                                                  SourceOptions source) {
  if (fork_count() != opened_by_)
    return passed(Reason::kForked);
  if (!service_)
    return passed(Reason::kNoService, service_.error().message);
  BuildService& service = **service_;
  if (service.cache().mode() == cache::Mode::kOff)
    return passed(Reason::kCacheOff);
  const auto options = request::read_nvrtc_options(source.options);
  if (!options)
    return passed(Reason::kOption, options.error().message);
  if (!options->target)
    source.target = request::kDefaultTarget;
  const Request request = Request::from_source(std::move(source));
  const auto prepared = service.prepare(request);
  if (!prepared)
    return passed(Reason::kOption, prepared.error().message);
  const auto toolchain = service.toolchains().of(library);
  if (!toolchain) {
    const bool is_unasked = toolchain.error().code == ErrorCode::kUnavailable;
    return passed(is_unasked ? Reason::kNoWorker : Reason::kToolchain,
                  toolchain.error().message);
  }
  auto target = options->target;
  if (!target)
    target = default_target((*toolchain)->toolchain.facts.version);
  if (!target)
    return passed(Reason::kArchitecture);
  const auto keyed = service.key(*prepared, *target, {}, *toolchain);
  if (!keyed)
    return passed(Reason::kOption, keyed.error().message);
  const auto& wanted = std::get<KeyedRequest>(*keyed);
  if (record_ != nullptr)
    record_->add(wanted.key, request, wanted.target, (*toolchain)->toolchain);
  const auto fetched = service.fetch(wanted);
  if (!fetched)
    return ended(fetched.error(), service.under_own_name(wanted).key);
  if (record_ != nullptr && fetched->object->key() != wanted.key)  // by its own name
    record_->add(fetched->object->key(), request, wanted.target,
                 (*toolchain)->toolchain);
  auto log = log_for(wanted, *fetched->object);
  if (!log)
    return passed(Reason::kFailure, log.error().message);
  const bool is_built = fetched->outcome == FetchOutcome::kCompiled;
  ++(is_built ? counts()->built : counts()->hits);
  service.cache().counters().add_named(is_built ? "nvrtc_built" : "nvrtc_hits");
  return Compiled{
      .code = NVRTC_SUCCESS, .log = *std::move(log), .object = fetched->object};
}

/// What the caller sees of a build that failed.
tl::expected<Compiled, Passed> Compiler::ended(const Error& error,
                                               const Digest& key) const {
  if (const auto failure = compile::nvrtc_failure(error)) {
    // ptxas leaves the PTX that it refuses.
    const bool is_whole = failure->log.find("ptxas") == std::string::npos;
    const auto code = code_of(failure->result);
    if (code && is_whole)
      return Compiled{.code = *code, .log = failure->log};
    return passed(is_whole ? Reason::kResult : Reason::kPtxas, failure->result);
  }
  switch (error.code) {
    case ErrorCode::kTimeout:
    case ErrorCode::kResourceLimit:
    case ErrorCode::kWorkerCrashed:
      return Compiled{.code = NVRTC_ERROR_INTERNAL_ERROR, .log = error.message};
    case ErrorCode::kUnavailable:
      if ((*service_)->config().no_jit)
        return Compiled{.code = NVRTC_ERROR_COMPILATION,
                        .log = fmt::format("{} (key {})", error.message, key.hex())};
      return passed(Reason::kNoWorker, error.message);
    default:
      return passed(Reason::kFailure, error.message);
  }
}

void Compiler::count(const Passed& passed, std::string_view program) {
  const std::string_view word = to_string(passed.reason);
  log(LogLevel::kInfo, {"NVRTC itself compiles ", program, ": ", word,
                        passed.detail.empty() ? "" : ": ", passed.detail});
  if (service_)
    (*service_)->journal()->passed(program, word);
  ++counts()->passed[static_cast<std::size_t>(passed.reason)];
  if (is_of_this_process())
    (*service_)->cache().counters().add_named(fmt::format("nvrtc_passed.{}", word));
}

std::string Compiler::end() {
  constexpr std::chrono::milliseconds kFlush{200};
  if (is_of_this_process())
    (*service_)->cache().flush(kFlush);
  const auto done = counts();
  std::string text =
      fmt::format("{} hits, {} built", done->hits.load(), done->built.load());
  if (const auto failed = done->failed.load(); failed != 0)
    text += fmt::format(", {} failed", failed);
  for (std::size_t i = 0; i < kReasonCount; ++i) {
    if (const auto times = done->passed[i].load(); times != 0)
      text += fmt::format(", {} passed ({})", times,
                          to_string(Reason{static_cast<std::uint8_t>(i)}));
  }
  return text;
}

bool Compiler::is_of_this_process() const {
  return service_ && fork_count() == opened_by_;
}

Compiler::Counts* Compiler::counts() {
  return fork_count() == opened_by_ ? &counts_ : &counts_of_child_;
}

std::string_view to_string(Reason reason) {
  return word_of(reason, {"arguments", "callback", "private", "output", "option",
                          "architecture", "ptxas", "result", "toolchain", "no_worker",
                          "no_service", "cache_off", "forked", "failure"});
}

}  // namespace kiln::nvrtc
