// KILN_RECORD: lines that warm reads back, each once, whole, also from many threads.

#include "library/request_record.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <vector>

#include "request/manifest.h"
#include "tests/support/child_process.h"
#include "tests/support/in_threads.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/read_file.h"
#include "util/this_library.h"

namespace kiln {
namespace {

constexpr device::Target k90{{{9, 0}, device::ArchSuffix::kNone}};

Digest digest(int number) {
  return Digest::of(as_bytes(std::to_string(number)));
}

class RequestRecordTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<RequestRecord> open() const {
    auto record = RequestRecord::open(path_);
    EXPECT_TRUE(record) << record.error().message;
    return record ? *std::move(record) : nullptr;
  }

  /// The lines that are there, each of them good.
  [[nodiscard]] std::vector<request::ManifestEntry> recorded() const {
    std::vector<request::ManifestEntry> entries;
    const auto lines = request::read_manifest(path_);
    EXPECT_TRUE(lines) << lines.error().message;
    for (const auto& line : lines.value_or(std::vector<request::ManifestLine>())) {
      EXPECT_TRUE(line) << line.error().message;
      if (line)
        entries.push_back(*line);
    }
    return entries;
  }

  const test::TempDir temp_;
  const std::filesystem::path path_ = temp_.path() / "asked.jsonl";
};

TEST_F(RequestRecordTest, WritesEachKeyOnceAsALineThatWarmReads) {
  const auto record = open();
  for (int i = 0; i < 3; ++i) {
    record->add(digest(1), {"scaled_softmax_fwd", {{"dtype", "f16"}}}, k90, {});
    record->add(digest(2),
                Request::from_source({.source = "a\n\"b\"", .defines = {"N=1"}}),
                {{{9, 0}, device::ArchSuffix::kA}}, {});
  }
  const auto entries = recorded();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries.at(0).request.name(), "scaled_softmax_fwd");
  EXPECT_EQ(entries.at(1).request.source().source, "a\n\"b\"");
  EXPECT_EQ(arch_name(*entries.at(1).architecture), "9.0a");
}

TEST_F(RequestRecordTest, AddsToWhatIsThere) {
  open()->add(digest(1), {"a", {}}, k90, {});
  open()->add(digest(1), {"a", {}}, k90, {});
  EXPECT_EQ(recorded().size(), 2U) << "another process may have asked for other parts";
}

TEST_F(RequestRecordTest, ManyThreadsMixNoLines) {
  const auto record = open();
  const std::string text(10'000, 'x');
  test::in_threads(8, [&](int t) {
    for (int i = 0; i < 20; ++i)
      record->add(digest(t * 100 + i), Request::from_source({.source = text}), k90, {});
  });
  EXPECT_EQ(recorded().size(), 160U);
}

TEST_F(RequestRecordTest, WhatIsNoJsonIsLeftOutAndTheRestGoesOn) {
  const auto record = open();
  record->add(digest(1), Request::from_source({.source = "\xff\xfe"}), k90, {});
  record->add(digest(2), {"a", {}}, k90, {});
  EXPECT_EQ(recorded().size(), 1U);
}

TEST_F(RequestRecordTest, ALineSaysWhetherItWasPtx) {
  const device::Target ptx{{{12, 0}, {}}, device::ImageKind::kPtx};
  open()->add(digest(1), Request::from_source({.source = "x"}), ptx, {});
  EXPECT_EQ(recorded().at(0).architecture, ptx);
}

TEST_F(RequestRecordTest, FoldersAreAbsoluteForWhoeverWarmsElsewhere) {
  open()->add(digest(1),
              Request::from_source({.source = "a",
                                    .include_dirs = {"inc"},
                                    .defines = {"A"},
                                    .options = {"-I", "more", "-UA", "-G", "-DA=2"}}),
              k90, {});
  const auto entries = recorded();
  ASSERT_EQ(entries.size(), 1U);
  const SourceOptions& source = entries.front().request.source();
  const auto here = std::filesystem::current_path();
  EXPECT_THAT(source.include_dirs, ElementsAre(here / "inc", here / "more"));
  EXPECT_THAT(source.defines, ElementsAre("A"));
  EXPECT_THAT(source.options, ElementsAre("-G", "-UA", "-DA=2"));
}

TEST_F(RequestRecordTest, ARequestAsNvrtcsTellsItsNvrtcAndItsProgram) {
  device::Toolchain used;
  used.id = {"aa", "bb"};
  used.facts.version = {13, 0};
  used.nvrtc = "/opt/libnvrtc.so.13";
  open()->add(
      digest(1),
      Request::from_source({.source = "a", .target = "default", .as_nvrtc = true}), k90,
      used);
  EXPECT_THAT(read_text_file(path_, 4096).value(),
              HasSubstr("\"program\":\"" + this_program().filename().native()));
  const SourceOptions source = recorded().at(0).request.source();
  EXPECT_EQ(source.toolchain, "13.0 aa+bb /opt/libnvrtc.so.13");
  EXPECT_EQ(source.target, "default");
  EXPECT_EQ(source.working_dir, std::filesystem::current_path());
  const auto named = device::parse_named(source.toolchain).value();
  EXPECT_EQ(named.id, used.id);
  EXPECT_EQ(named.nvrtc, used.nvrtc);
  for (const char* const wrong :
       {"", "13.0", "13.0 aa+bb", "13.0 aa+bb b", "x aa+bb /b"})
    EXPECT_FALSE(device::parse_named(wrong)) << wrong;
}

TEST_F(RequestRecordTest, AFileThatMayNotGrowStopsNobody) {
  test::ChildProcess host([&] {
    const auto record = open();
    const rlimit nothing{0, 0};
    if (::setrlimit(RLIMIT_FSIZE, &nothing) != 0)
      return 1;
    record->add(digest(1), {"a", {}}, k90, {});
    record->add(digest(2), {"a", {}}, k90, {});
    return 0;
  });
  EXPECT_EQ(host.wait(), 0);
  EXPECT_EQ(std::filesystem::file_size(path_), 0U);
}

TEST_F(RequestRecordTest, ADeviceIsRefused) {
  const auto record = RequestRecord::open("/dev/full");
  ASSERT_FALSE(record);
  EXPECT_THAT(record.error().message, HasSubstr("/dev/full"));
}

TEST_F(RequestRecordTest, APipeThatNobodyReadsIsAnErrorAndNoWait) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const auto record = RequestRecord::open(path_);
  ASSERT_FALSE(record);
  EXPECT_THAT(record.error().message, HasSubstr(path_.native()));
}

}  // namespace
}  // namespace kiln
