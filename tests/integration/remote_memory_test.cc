// What lying servers cost in memory: this process and its kiln-remote stay small,
// however large and however many their bodies are.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "codec/private_key.h"
#include "remote/client/server.h"
#include "tests/support/fault_server.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"

namespace kiln::remote {
namespace {

using std::chrono::seconds;
using test::Exchange;
using test::FaultServer;

constexpr std::size_t kPayload = 80U << 20U;
constexpr int kAtOnce = 6;
constexpr std::uint64_t kMostKib = 64U << 10U;

void forget_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5" << std::flush;
  ASSERT_TRUE(refs) << "this system does not reset the peak";
}

class RemoteMemoryTest : public testing::Test {
 protected:
  RemoteMemoryTest() {
    test::replace_keys(keys_, to_text(ours_.public_key()));
    test::SampleObject sample(1, std::string(kPayload, 'x'));
    const auto object = cache::StoredObject::make(*sample).value();
    key_ = object.key();
    const Signer by = theirs_.signer();
    const auto digest = Blake2bHasher::of(object.file()).value();
    const Signature signature{by.key, by.sign(digest).value()};
    std::ofstream(body_, std::ios::binary)
        << as_text(object.file())
        << as_text(encode_signatures(std::span(&signature, 1)));
  }

  /// All that it sends is in this file, of which it never has much in memory.
  void send_file(const Exchange& exchange) const {
    exchange.send(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{}\r\n",
                              fs::file_size(body_), headers_));
    std::ifstream file(body_, std::ios::binary);
    std::array<char, 1U << 16U> some{};
    while (file.read(some.data(), some.size()), file.gcount() > 0)
      exchange.send({some.data(), static_cast<std::size_t>(file.gcount())});
  }

  /// Several gets at once, and what they have in common.
  Answer get_all(bool takes_unsigned) {
    const FaultServer lies([this](const Exchange& exchange) {
      send_file(exchange);
      return true;
    });
    Transfers transfers(
        {.path = test::paths::built("bin/kiln-remote"), .name = "remote helper"});
    Server server(
        {.base = lies.url(""), .takes_unsigned = takes_unsigned}, {},
        std::make_shared<cache::KeyFile>(
            cache::real_file_system(), cache::TrustPolicy::of_this_process({}), keys_),
        {}, transfers);
    forget_peak();
    const std::uint64_t before = test::peak_kib(::getpid());
    std::vector<std::promise<Answer>> promises(kAtOnce);
    for (auto& each : promises)
      server.get(key_, "sm_90a",
                 [&each](Answer answer) { each.set_value(std::move(answer)); },
                 {.whole = seconds(60), .slow_for = seconds(60)});
    std::vector<Answer> answers;
    for (auto& each : promises) answers.push_back(each.get_future().get());
    const std::uint64_t own = test::peak_kib(::getpid()) - before;
    const std::uint64_t helpers = test::peak_kib(test::children_of(::getpid()).front());
    fmt::print("{} KiB here, {} KiB in kiln-remote\n", own, helpers);
    EXPECT_LT(own + helpers, kMostKib);
    EXPECT_GT(helpers, 0U);
    for (const Answer& each : answers) {
      EXPECT_EQ(each.verdict, answers.front().verdict) << each.why;
      EXPECT_EQ(each.why, answers.front().why);
      EXPECT_FALSE(each.object);
    }
    return std::move(answers.front());
  }

  const test::TempDir dir_;
  const fs::path keys_ = dir_.path() / "trusted.pub";
  const fs::path body_ = dir_.path() / "body";
  const PrivateKey ours_ = PrivateKey::generate().value();
  const PrivateKey theirs_ = PrivateKey::generate().value();
  Digest key_;
  std::string headers_;
};

TEST_F(RemoteMemoryTest, LargeBodiesThatOthersHaveSignedAreNeverInMemory) {
  const Answer answer = get_all(false);
  EXPECT_EQ(answer.rejected, Rejected::kSignature) << answer.why;
  EXPECT_TRUE(answer.is_of_others);
}

TEST_F(RemoteMemoryTest, LargeBodiesWhoseChecksumIsWrongAreNeverInMemory) {
  std::fstream(body_, std::ios::binary | std::ios::in | std::ios::out).seekp(1'000'000)
      << "y";
  for (const bool takes_unsigned : {true, false}) {
    const Answer answer = get_all(takes_unsigned);
    EXPECT_EQ(answer.rejected, Rejected::kChecksum) << answer.why;
    EXPECT_NE(answer.why.find("its bytes do not give the XXH3-128 it states"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace kiln::remote
