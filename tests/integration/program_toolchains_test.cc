// Packs that several toolchains have built, on a machine that builds nothing: all that
// is there is a hit, whichever pack came last.

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tests/integration/program_machines.h"
#include "tests/support/namespaces.h"
#include "tests/support/paths.h"
#include "tests/support/sample_pack.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

const Arguments kForward{"warm", "--template", "tiny_fwd:", "--arch", "9.0"};
const Arguments kBackward{"warm", "--template", "tiny_bwd:", "--arch", "9.0"};

class ProgramToolchainsTest : public ProgramMachinesTest {
 protected:
  ProgramToolchainsTest() {
    forward_ = pack_of("forward", kForward, test::paths::kFakeNvrtc);
    const json record = json::parse(
        read_text_file(place("forward/toolchains/recorded.json"), 65536).value());
    first_ = record["nvrtc"].get<std::string>();
    backward_ = pack_of("backward", kBackward, other_nvrtc());
    kiln_.unset("KILN_NVRTC");
    kiln_.set("KILN_NO_JIT", "1");
  }

  /// What the machine `name` warms by that NVRTC.
  std::string pack_of(const std::string& name, const Arguments& warm,
                      const std::string& nvrtc) {
    use_machine(name);
    kiln_.set("KILN_NVRTC", nvrtc);
    EXPECT_GT(kiln_.json_of(warm)["compiled"], 0);
    EXPECT_EQ(kiln_.run({"pack", "-o", place(name + ".kpack")}).status, 0);
    return place(name + ".kpack");
  }

  /// The same library with another build id.
  [[nodiscard]] std::string other_nvrtc() const {
    Bytes bytes = read_file(test::paths::kFakeNvrtc, 1 << 28).value().value();
    Bytes id;
    for (std::size_t i = 0; i < first_.size(); i += 2)
      id.push_back(static_cast<std::byte>(std::stoi(first_.substr(i, 2), nullptr, 16)));
    const auto found = std::search(bytes.begin(), bytes.end(), id.begin(), id.end());
    EXPECT_NE(found, bytes.end());
    *found = static_cast<std::byte>(std::to_integer<int>(*found) ^ 0xFF);
    fs::create_directory(place("other"));
    const std::string path = place("other/libnvrtc.so.13");
    test::write_bytes(path, bytes);
    return path;
  }

  void expect_hits(const std::string& tier) {
    for (const Arguments& warm : {kForward, kBackward}) {
      for (const Arguments& more : {Arguments{"--dry-run"}, Arguments{}}) {
        const json report = kiln_.json_of(warm + more);
        EXPECT_EQ(hits_of_tier(report, tier), report["entries"].size()) << report;
        for (const json& entry : report["entries"]) expect_entry(entry["key"]);
      }
    }
  }

  void expect_entry(const std::string& key) {
    EXPECT_EQ(kiln_.run({"show", key}).status, 0) << key;
  }

  /// Until `kiln` finds no NVRTC. False: it cannot be hidden.
  bool hide_nvrtcs() {
    for (int i = 0; i < 10; ++i) {
      const json doctor = kiln_.run({"doctor", "--json"}).json();
      if (doctor["toolchains"].empty())
        return true;
      const fs::path nvrtc = doctor["toolchains"][0]["path"].get<std::string>();
      if (!test::mount_small_disk(nvrtc.parent_path(), "size=64k"))
        return false;
    }
    return false;
  }

  std::string first_;  // its build id
  std::string forward_;
  std::string backward_;
};

TEST_F(ProgramToolchainsTest, AfterEitherOrderOfPacksAllOfBothAreHits) {
  for (const auto& [name, packs] :
       {std::pair{"node", Arguments{forward_, backward_}},
        std::pair{"other-node", Arguments{backward_, forward_}}}) {
    use_machine(name);
    for (const std::string& pack : packs)
      EXPECT_EQ(kiln_.run({"unpack", pack}).status, 0);
    expect_hits("disk");
    for (const char* const kernel : {"tiny_fwd:dtype=f16", "tiny_bwd:dtype=f16"})
      EXPECT_EQ(kiln_.json_of({"why", "--template", kernel, "--arch", "9.0"})["same"],
                true);
    EXPECT_THAT(kiln_.run({"doctor"}).out,
                AllOf(HasSubstr("nvrtc recorded"),
                      HasSubstr("nvrtc-13.0-" + first_.substr(0, 8))));
  }
  const json packed = kiln_.json_of({"pack", "-o", place("both.kpack")});
  EXPECT_EQ(packed["header"]["toolchains"].size(), 2U);
  use_machine("third");
  EXPECT_EQ(kiln_.run({"unpack", place("both.kpack")}).status, 0);
  expect_hits("disk");
}

TEST_F(ProgramToolchainsTest, AnEventOfAHitHasTheKeyOfItsEntry) {
  use_machine("node");
  for (const std::string& pack : {forward_, backward_}) kiln_.json_of({"unpack", pack});
  const std::string events = place("events.jsonl");
  for (const Arguments& warm : {kForward, kBackward})
    EXPECT_EQ(kiln_.run(warm + Arguments{"--events", events}).status, 0);
  std::istringstream lines(read_text_file(events, 65536).value());
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    expect_entry(json::parse(line)["key"]);
  EXPECT_GE(count, 2U);
}

TEST_F(ProgramToolchainsTest, WithoutAnNvrtcAllOfBothAreHits) {
  kiln_.unset("KILN_NO_JIT");
  test::in_mount_namespace([&] {
    if (!hide_nvrtcs())
      return test::kImpossible;
    use_machine("node");
    for (const std::string& pack : {forward_, backward_})
      EXPECT_EQ(kiln_.run({"unpack", pack}).status, 0);
    expect_hits("disk");
    const auto missing =
        kiln_.run({"warm", "--template", "tiny_fwd:", "--arch", "8.0"});
    EXPECT_EQ(missing.status, 3) << missing.text();
    EXPECT_THAT(missing.err, HasSubstr("is not installed here"));
    return 0;
  });
}

TEST_F(ProgramToolchainsTest, SeedsOfBothAreHits) {
  use_machine("node");
  kiln_.set("KILN_SEED", forward_ + ":" + backward_);
  for (const Arguments& warm : {kForward, kBackward}) {
    const json report = kiln_.json_of(warm + Arguments{"--dry-run"});
    EXPECT_EQ(hits_of_tier(report, "seed"), report["entries"].size());
    EXPECT_EQ(hits_of_tier(kiln_.json_of(warm), "seed"), report["entries"].size());
  }
}

TEST_F(ProgramToolchainsTest, ASettingThatNamesOneGetsNothingOfTheOthers) {
  use_machine("node");
  for (const std::string& pack : {forward_, backward_}) kiln_.json_of({"unpack", pack});
  kiln_.set("KILN_TOOLCHAIN", first_.substr(0, 8));
  EXPECT_EQ(kiln_.run(kForward).status, 0);
  EXPECT_EQ(kiln_.json_of(kBackward + Arguments{"--dry-run"})["hits"], 0);
  EXPECT_NE(kiln_.run(kBackward).status, 0);
}

TEST_F(ProgramToolchainsTest, WhereItMayBeBuiltItIsBuilt) {
  use_machine("node");
  kiln_.json_of({"unpack", forward_});
  kiln_.unset("KILN_NO_JIT");
  kiln_.set("KILN_NVRTC", place("other/libnvrtc.so.13"));
  EXPECT_EQ(kiln_.json_of(kForward)["hits"], 0);
}

}  // namespace
}  // namespace kiln
