// Rows 8 to 12, 22, 24 to 27 and 32: the system calls of a service fail, one after the
// other and from one on. Whoever asks for a kernel gets the right one all the same.

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/fault/campaign.h"
#include "tests/support/fault/syscall_tracer.h"
#include "tests/support/paths.h"
#include "tests/support/print_name.h"
#include "tests/support/service_requests.h"
#include "tests/support/test.h"
#include "util/log.h"

namespace kiln {
namespace {

using test::Campaign;
using test::Fate;
using test::PrintTo;
using test::SystemCall;
using test::Traced;

bool is_one_of(const SystemCall& call, std::initializer_list<long> numbers) {
  return std::find(numbers.begin(), numbers.end(), call.number) != numbers.end();
}
bool creates(const SystemCall& call) {
  return call.number == SYS_openat && (call.arguments[2] & O_CREAT) != 0;
}
bool writes(const SystemCall& call) {
  return is_one_of(call, {SYS_write, SYS_writev, SYS_pwrite64});
}
bool needs_room(const SystemCall& call) {
  return creates(call) || writes(call) ||
         is_one_of(call, {SYS_mkdir, SYS_mkdirat, SYS_link, SYS_linkat, SYS_fdatasync,
                          SYS_ftruncate, SYS_fallocate});
}
bool needs_an_inode(const SystemCall& call) {
  return creates(call) || is_one_of(call, {SYS_mkdir, SYS_mkdirat});
}
bool syncs(const SystemCall& call) {
  return is_one_of(call, {SYS_fdatasync, SYS_fsync});
}
bool closes(const SystemCall& call) {
  return call.number == SYS_close;
}
bool locks(const SystemCall& call) {
  return call.number == SYS_fcntl &&
         (call.arguments[1] == F_OFD_SETLK || call.arguments[1] == F_SETLK);
}
bool links(const SystemCall& call) {
  return is_one_of(call, {SYS_link, SYS_linkat});
}
bool links_or_renames_without_replacing(const SystemCall& call) {
  return links(call) || call.number == SYS_renameat2;
}
bool opens(const SystemCall& call) {
  return call.number == SYS_openat;
}
bool reads_or_opens_an_object(const SystemCall& call) {
  return is_one_of(call, {SYS_openat, SYS_read, SYS_fstat, SYS_newfstatat}) &&
         test::path_of(call).find("/objects/v1/") != std::string::npos;
}
bool opens_an_object_to_read(const SystemCall& call) {
  return opens(call) && !creates(call) &&
         test::path_of(call).find("/objects/v1/") != std::string::npos;
}
bool writes_an_object(const SystemCall& call) {
  return writes(call) && test::path_of(call).find("/objects/v1/") != std::string::npos;
}
bool changes_anything(const SystemCall& call) {
  return test::changes_files(call) && !locks(call);
}

enum class Lasting : bool { kOnce, kFromThenOn };

struct Row {
  const char* name;
  std::function<bool(const SystemCall&)> hits;
  Fate fate;
  Lasting lasting = Lasting::kFromThenOn;
};

constexpr int kKernels = 2;

class ServiceSyscallFault : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (!test::can_trace())
      GTEST_SKIP() << "A PROCESS MAY NOT TRACE ITS CHILD HERE: failing system calls "
                      "were not tested";
    ::setenv("KILN_FAKE_NVRTC", "", 1);  // NOLINT(concurrency-mt-unsafe)
    ASSERT_TRUE(set_log_level("off"));   // each fault has its warning
    make_root();
  }

  [[nodiscard]] fs::path root() const { return dir_.path() / "cache"; }
  [[nodiscard]] fs::path made() const { return dir_.path() / "made"; }
  [[nodiscard]] static Config config(const fs::path& root) {
    Config config = test::service_config(root);
    config.nvrtc = test::paths::kFakeNvrtc;
    return config;
  }

  /// With the toolchain known and kernel 0 in it; what every kernel is goes into the
  /// reference table.
  void make_root() {
    const auto service = test::open_service(config(made()));
    for (int number = 0; number < kKernels; ++number) {
      const auto fetched = test::fetch(*service, test::small_kernel(number));
      ASSERT_TRUE(fetched) << fetched.error().message;
      reference_.emplace_back(as_text(fetched->object->payload()));
      if (number == 0) {
        published_ = fetched->object->key();
      } else {
        ASSERT_TRUE(service->cache().remove(fetched->object->key()));
      }
    }
  }

  void restore_root() const {
    fs::remove_all(root());
    fs::copy(made(), root(), fs::copy_options::recursive);
  }

  /// Every kernel, twice. 0: each was the right one.
  [[nodiscard]] int get_all() const {
    const auto service = test::open_service(config(root()));
    for (int round = 0; round < 2; ++round) {
      for (int number = 0; number < kKernels; ++number) {
        const auto fetched = test::fetch(*service, test::small_kernel(number));
        if (!fetched)
          return 10 + number;
        if (as_text(fetched->object->payload()) !=
            reference_[static_cast<std::size_t>(number)])
          return 20 + number;
      }
    }
    return 0;
  }

  /// The whole life of a service, from its opening to its end, with faults.
  Traced live(const std::function<Fate(const SystemCall&)>& decide) const {
    restore_root();
    return test::trace(
        [this] {
          test::begin_faults();
          return get_all();
        },
        decide);
  }

  /// Whether the row's fault is for this call: one of the cache's own files.
  [[nodiscard]] bool is_hit(const SystemCall& call) const {
    return GetParam().hits(call) &&
           test::path_of(call).starts_with(root().native() + "/");
  }

  /// Afterwards, with nothing failing any more.
  void check(Campaign& campaign, int at) const {
    const std::string after = " after fault " + std::to_string(at);
    if (!test::open_service(config(root()))->cache().find(published_))
      campaign.wrong("what was published is lost" + after);
    if (const int code = get_all(); code != 0)
      campaign.wrong("a kernel is not the right one, code " + std::to_string(code) +
                     after);
    const auto service = test::open_service(config(root()));
    const auto verified = service->cache().verify({});
    if (!verified || !verified->problems.empty())
      campaign.wrong("verify finds damage" + after);
  }

  std::vector<std::string> reference_;
  Digest published_;  // of kernel 0, there before the faults
  const test::TempDir dir_;
};

TEST_P(ServiceSyscallFault, TheCallerGetsTheRightKernelAllTheSame) {
  Campaign campaign;
  int calls = 0;
  const Traced whole = live([&](const SystemCall& call) {
    calls += is_hit(call) ? 1 : 0;
    return Fate{};
  });
  ASSERT_EQ(whole.status, 0) << "left alone it does not work";
  ASSERT_GT(calls, 0) << "nothing to fail";
  // A dozen places by default, spread over the whole life; with more time all.
  const int step = test::fault_length() > 1 ? 1 : std::max(1, calls / 12);
  for (int at = 0; at < calls; at += step) {
    int seen = 0;
    int failed = 0;
    const Traced traced = live([&](const SystemCall& call) {
      if (!is_hit(call))
        return Fate{};
      const int mine = seen++;
      const bool fails = GetParam().lasting == Lasting::kOnce ? mine == at : mine >= at;
      failed += fails ? 1 : 0;
      return fails ? GetParam().fate : Fate{};
    });
    campaign.injected(failed);
    if (traced.status != 0 || traced.timed_out)
      campaign.wrong("status " + std::to_string(traced.status) + " with fault " +
                     std::to_string(at));
    check(campaign, at);
    ASSERT_FALSE(HasFailure()) << "at call " << at << " of " << calls;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, ServiceSyscallFault,
    testing::Values(
        Row{"fault_08_FullDiskFromAnyCallOn", needs_room, Fate::failed(ENOSPC)},
        Row{"fault_08_FullDiskAtOneCall", needs_room, Fate::failed(ENOSPC),
            Lasting::kOnce},
        Row{"fault_09_NoInodesFromAnyCallOn", needs_an_inode, Fate::failed(ENOSPC)},
        Row{"fault_10_QuotaAtClose", closes, Fate::lost_reply(EDQUOT)},
        Row{"fault_10_FileTooLarge", writes, Fate::failed(EFBIG)},
        Row{"fault_11_InputOutputErrorAtSync", syncs, Fate::failed(EIO)},
        Row{"fault_12_WritesThatLie", writes_an_object, Fate::cut_short(100)},
        Row{"fault_22_LocksUnsupported", locks, Fate::failed(ENOLCK)},
        Row{"fault_22_LocksNotImplemented", locks, Fate::failed(ENOSYS)},
        Row{"fault_24_NoHardLinks", links, Fate::failed(EPERM)},
        Row{"fault_24_NoHardLinksAndNoRenameat2", links_or_renames_without_replacing,
            Fate::failed(EINVAL)},
        Row{"fault_25_LostReplyToALink", links, Fate::lost_reply(EIO), Lasting::kOnce},
        Row{"fault_26_PublishedFilesThatAreInvisible", opens_an_object_to_read,
            Fate::failed(ENOENT)},
        Row{"fault_27_StaleHandles", reads_or_opens_an_object, Fate::failed(ESTALE)},
        Row{"fault_27_StaleHandleOnce", reads_or_opens_an_object, Fate::failed(ESTALE),
            Lasting::kOnce},
        Row{"fault_27_BusyFiles", reads_or_opens_an_object, Fate::failed(EBUSY)},
        Row{"fault_32_ReadOnlyFromAnyCallOn", changes_anything, Fate::failed(EROFS)},
        Row{"fault_32_NoDescriptorsFromAnyCallOn", opens, Fate::failed(EMFILE)}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kiln
