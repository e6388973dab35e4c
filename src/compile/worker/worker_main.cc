// kiln-worker: compiles one request after another for the pool that started it.

#include <sys/types.h>

#include <chrono>
#include <variant>

#include "compile/worker/fixed_place.h"
#include "compile/worker/nvjitlink.h"
#include "compile/worker/nvrtc.h"
#include "compile/worker/nvrtc_compile.h"
#include "compile/worker/opened_files.h"
#include "compile/worker/worker_loop.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

using Clock = std::chrono::steady_clock;

/// The output of `make`, with the files that the compiler or linker opened meanwhile.
template <typename Make>
Result<CompileOutput> recorded(const Make& make) {
  start_recording_files();
  Result<CompileOutput> output = make();
  FileReport files = stop_recording_files();
  if (output)
    output->files = std::move(files);
  return output;
}

Result<Reply> answer(const CompileJob& job) {
  const auto begin = Clock::now();
  report_phase(BuildPhase::kOpening);
  const Nvrtc* const nvrtc = KILN_TRY(open_nvrtc(job.nvrtc));
  auto output = KILN_TRY(recorded(
      [&] { return compile_here(*nvrtc, job, begin + job.time_limit, report_phase); }));
  // Read here, to check them.
  std::erase_if(output.files.opened, [&](const OpenedFile& file) {
    return file.path == job.precompiled.path || file.path == job.make_precompiled;
  });
  return Reply(std::move(output));
}

Result<Reply> answer(const DescribeRequest& request) {
  report_phase(BuildPhase::kOpening);
  const Nvrtc* const nvrtc = KILN_TRY(open_nvrtc(request.nvrtc));
  return Reply(KILN_TRY(describe(*nvrtc)));
}

Result<Reply> answer(const LinkJob& job) {
  report_phase(BuildPhase::kOpening);
  return Reply(KILN_TRY(recorded([&] { return link_here(job, report_phase); })));
}

Result<Reply> answer(const PlanJob& /*job*/) {
  return refuse("kiln-worker builds no execution plans");
}

Result<Reply> answer(const CudnnRequest& /*request*/) {
  return refuse("kiln-worker opens no cuDNN");
}

Result<Reply> answer_request(const Request& request) {
  return std::visit([](const auto& message) { return answer(message); }, request);
}

}  // namespace
}  // namespace kiln::compile

// A sanitizer has an mmap() of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// libnvrtc calls this one, because a program's symbols come before libc's.
// NOLINTNEXTLINE(readability-function-size)
extern "C" __attribute__((visibility("default"))) void* mmap(void* address,
                                                             std::size_t bytes,
                                                             int protection, int flags,
                                                             int fd, off_t offset) {
  return kiln::compile::map_memory(address, bytes, protection, flags, fd, offset);
}
#endif

int main(int argc, char** argv) {
  return kiln::compile::run_worker("kiln-worker",
                                   {argv, static_cast<std::size_t>(argc)},
                                   kiln::compile::answer_request);
}
