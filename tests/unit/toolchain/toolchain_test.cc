#include "toolchain/toolchain.h"

#include <set>
#include <string>

#include "tests/support/elf_builder.h"
#include "tests/support/is_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "toolchain/toolchain_files.h"

namespace kiln::device {
namespace {

NvrtcFacts facts_of(CudaVersion version, std::initializer_list<int> sms) {
  NvrtcFacts facts{version, {}};
  for (const int sm : sms) facts.architectures.push_back({sm / 10, sm % 10});
  return facts;
}

Toolchain toolchain(const std::string& digits, const NvrtcFacts& facts) {
  Toolchain made;
  made.id = {digits + "00000000", "b" + digits};
  made.facts = facts;
  made.nvrtc = "/opt/" + digits + "/libnvrtc.so";
  return made;
}

const NvrtcFacts k11 = facts_of({11, 8}, {35, 37, 50, 70, 75, 80, 86, 90});
const NvrtcFacts k12 = facts_of({12, 9}, {50, 70, 75, 80, 86, 90, 100, 120});
const NvrtcFacts k13 = facts_of({13, 0}, {75, 80, 86, 90, 100, 120});

class ChooseToolchain : public testing::Test {
 protected:
  [[nodiscard]] std::string chosen(const ToolchainCriteria& criteria) const {
    const auto choice = choose_toolchain(found_, criteria);
    return choice ? choice->toolchain.name()
                  : std::string(kiln::to_string(choice.error().code));
  }

  // As the record keeps it: identity alone.
  static Toolchain recorded(Toolchain toolchain) {
    toolchain.nvrtc.clear();
    return toolchain;
  }

  const Toolchain t11_ = toolchain("11aaaaaa", k11);
  const Toolchain t12_ = toolchain("12aaaaaa", k12);
  const Toolchain t13_ = toolchain("13aaaaaa", k13);
  std::vector<Toolchain> found_{t12_, t13_, t11_};
};

TEST_F(ChooseToolchain, TakesTheNewest) {
  const auto choice = choose_toolchain(found_, {}).value();
  EXPECT_EQ(choice.toolchain, t13_);
  EXPECT_EQ(choice.warning, "");
}

TEST_F(ChooseToolchain, OfEqualsTakesTheFirstFound) {
  Toolchain copy = t13_;
  copy.nvrtc = "/other/libnvrtc.so";
  found_ = {t12_, copy, t13_};
  EXPECT_EQ(choose_toolchain(found_, {})->toolchain, copy);
}

TEST_F(ChooseToolchain, TakesTheNewestThatTheDriverAccepts) {
  EXPECT_EQ(chosen({.driver = CudaVersion{13, 0}}), t13_.name());
  EXPECT_EQ(chosen({.driver = CudaVersion{12, 4}}), t12_.name());
  EXPECT_EQ(chosen({.driver = CudaVersion{11, 4}}), t11_.name());
}

TEST_F(ChooseToolchain, ForTheDriverOfAJobNothingElseIsChosen) {
  const auto for_job = [](CudaVersion driver, ToolchainCriteria more = {}) {
    more.driver = driver;
    more.only_for_driver = true;
    return more;
  };
  EXPECT_EQ(chosen(for_job({12, 4})), t12_.name());
  EXPECT_EQ(chosen(for_job({13, 0})), t13_.name());
  EXPECT_EQ(chosen(for_job({12, 4}, {.recorded = {recorded(t13_)}})), t12_.name());
  EXPECT_EQ(chosen(for_job({13, 0}, {.recorded = {recorded(t12_)}})), t12_.name());
  EXPECT_EQ(chosen(for_job({10, 2})), "unavailable");
  EXPECT_EQ(chosen(for_job({12, 4}, {.wanted = "13.0"})), "unavailable");
  EXPECT_EQ(chosen(for_job({12, 4}, {.wanted = "12.9"})), t12_.name());
  EXPECT_EQ(chosen(for_job({12, 4}, {.build_for = Target{Architecture{{9, 1}}}})),
            "invalid_argument");
  found_ = {t13_};
  const auto wheel = testing::AllOf(
      HasSubstr("a driver for CUDA 12.4 loads (found: " + t13_.name()),
      HasSubstr("`pip install --no-deps --target DIR nvidia-cuda-nvrtc-cu12==12.9."),
      HasSubstr("KILN_NVRTC=DIR/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
  for (const auto& build_for :
       {std::optional<BuildFor>(), std::optional<BuildFor>(ComputeCapability{9, 0}),
        std::optional<BuildFor>(Target{Architecture{{7, 0}}})}) {
    EXPECT_THAT(choose_toolchain(found_, for_job({12, 4}, {.build_for = build_for})),
                test::IsError(ErrorCode::kUnavailable, wheel));
  }
  // Where it is not installed, the recorded one serves hits if the driver takes them.
  EXPECT_EQ(chosen(for_job({12, 4}, {.recorded = {recorded(t12_)}})), t12_.name());
  found_.clear();
  EXPECT_EQ(chosen(for_job({12, 4}, {.recorded = {recorded(t13_)}})), "unavailable");
  EXPECT_EQ(chosen(for_job({12, 4})), "unavailable");
}

TEST_F(ChooseToolchain, AnExplicitOneThatTheDriverOfAJobDoesNotTakeIsAnError) {
  found_[1].is_explicit = true;
  found_[1].found_in = "KILN_NVRTC";
  const auto choice =
      choose_toolchain(found_, {.driver = CudaVersion{12, 4}, .only_for_driver = true});
  ASSERT_THAT(choice, test::IsError(ErrorCode::kUnavailable));
  EXPECT_THAT(choice.error().message,
              AllOf(HasSubstr("a driver for CUDA 12.4 does not load kernels that " +
                              t13_.name()),
                    HasSubstr("KILN_NVRTC names it; `pip install ")));
}

TEST_F(ChooseToolchain, PtxCountsAsPtxForTheDriver) {
  // 12.8 does not list 12.1, but its cubin for 12.0 runs there; 12.9 would need PTX.
  const Toolchain cubin = toolchain("128aaaaa", facts_of({12, 8}, {90, 120}));
  const Toolchain ptx = toolchain("129aaaaa", facts_of({12, 9}, {90, 100}));
  found_ = {ptx, cubin};
  const ComputeCapability device{12, 1};
  EXPECT_EQ(chosen({.driver = CudaVersion{12, 8}, .build_for = device}), cubin.name());
  EXPECT_EQ(chosen({.driver = CudaVersion{12, 9}, .build_for = device}), ptx.name());
}

TEST_F(ChooseToolchain, WarnsWhereTheDriverAcceptsNone) {
  const auto choice = choose_toolchain(found_, {.driver = CudaVersion{10, 2}}).value();
  EXPECT_EQ(choice.toolchain, t13_);
  EXPECT_THAT(choice.warning,
              AllOf(HasSubstr("the driver is for CUDA 10.2"), HasSubstr(t13_.name())));
}

TEST_F(ChooseToolchain, TakesOneThatSupportsWhatIsToBeBuilt) {
  EXPECT_EQ(chosen({.build_for = ComputeCapability{7, 0}}), t12_.name());
  EXPECT_EQ(chosen({.build_for = Target{{{7, 0}}}}), t12_.name());
  EXPECT_EQ(chosen({.build_for = ComputeCapability{3, 7}}), t11_.name());
  EXPECT_EQ(chosen({.build_for = ComputeCapability{9, 0}}), t13_.name());
}

TEST_F(ChooseToolchain, TellsWhatNobodyHereCanBuildFromWhatNobodyEverCould) {
  EXPECT_EQ(chosen({.build_for = Target{{{3, 0}}}}), "unavailable");
  EXPECT_EQ(chosen({.build_for = Target{{{9, 1}}}}), "invalid_argument");
  found_ = {t13_};
  const auto choice = choose_toolchain(found_, {.build_for = Target{{{7, 0}}}});
  ASSERT_FALSE(choice);
  EXPECT_THAT(choice.error().message, HasSubstr("NVRTC 12.0 to 12.9"));
}

TEST_F(ChooseToolchain, TheRecordedOneBeatsTheNewest) {
  const auto choice = choose_toolchain(found_, {.recorded = {recorded(t12_)}}).value();
  EXPECT_EQ(choice.toolchain, t12_);
  EXPECT_TRUE(choice.toolchain.installed());
  EXPECT_EQ(choice.warning, "");
}

TEST_F(ChooseToolchain, TheRecordedOneThatCannotBuildItIsPassedOverWithAWarning) {
  const auto choice = choose_toolchain(found_, {.recorded = {recorded(t13_)},
                                                .build_for = ComputeCapability{7, 0}})
                          .value();
  EXPECT_EQ(choice.toolchain, t12_);
  EXPECT_THAT(choice.warning, AllOf(HasSubstr(t13_.name()), HasSubstr(t12_.name())));
}

TEST_F(ChooseToolchain, TheRecordedOneThatIsGoneIsReplacedWithAWarning) {
  const Toolchain gone = recorded(toolchain("99aaaaaa", k13));
  const auto choice = choose_toolchain(found_, {.recorded = {gone}}).value();
  EXPECT_EQ(choice.toolchain, t13_);
  EXPECT_THAT(choice.warning, AllOf(HasSubstr(gone.name()), HasSubstr(t13_.name()),
                                    HasSubstr("KILN_TOOLCHAIN=99aaaaaa")));
}

TEST_F(ChooseToolchain, TheRecordedOneStandsInWhereNoneIsInstalled) {
  found_.clear();
  const auto choice = choose_toolchain(found_, {.recorded = {recorded(t12_)}}).value();
  EXPECT_EQ(choice.toolchain.id, t12_.id);
  EXPECT_FALSE(choice.toolchain.installed());
  EXPECT_EQ(choice.warning, "");
  const Error error = missing_nvrtc(choice.toolchain);
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, AllOf(HasSubstr(t12_.name()), HasSubstr("KILN_NVRTC")));
}

TEST_F(ChooseToolchain, NothingFoundAndNothingRecordedSaysWhatToInstall) {
  found_.clear();
  EXPECT_THAT(
      choose_toolchain(found_, {}),
      test::IsError(ErrorCode::kUnavailable, HasSubstr("install the CUDA toolkit")));
}

TEST_F(ChooseToolchain, TheExplicitOneBeatsEverything) {
  found_[2].is_explicit = true;
  const auto choice =
      choose_toolchain(found_, {.wanted = "13.0", .recorded = {recorded(t12_)}})
          .value();
  EXPECT_EQ(choice.toolchain.id, t11_.id);
  EXPECT_THAT(choice.warning, HasSubstr(t12_.name()));
}

TEST_F(ChooseToolchain, AWishIsAVersionANameOrEightDigits) {
  for (const char* wanted :
       {"12.9", "nvrtc-12.9-12aaaaaa", "12aaaaaa", "12aaaaaa000"}) {
    const auto choice =
        choose_toolchain(found_, {.wanted = wanted, .recorded = {recorded(t13_)}});
    ASSERT_TRUE(choice) << wanted;
    EXPECT_EQ(choice->toolchain, t12_);
    EXPECT_THAT(choice->warning, HasSubstr(t13_.name()));
  }
}

TEST_F(ChooseToolchain, AnUnknownWishIsAnErrorWithThoseKnown) {
  for (const char* wanted : {"12.8", "12", "12aaaaa", "12aaaaab", "aaaaaaaa"}) {
    const auto choice = choose_toolchain(
        found_, {.wanted = wanted, .recorded = {recorded(toolchain("99aaaaaa", k13))}});
    EXPECT_THAT(
        choice,
        test::IsError(ErrorCode::kUnavailable,
                      AllOf(HasSubstr(t11_.name()), HasSubstr(t12_.name()),
                            HasSubstr(t13_.name()), HasSubstr("nvrtc-13.0-99aaaaaa"))))
        << wanted;
  }
}

TEST_F(ChooseToolchain, AWishForTheRecordedOneServesHitsWhereItIsNotInstalled) {
  const Toolchain gone = recorded(toolchain("99aaaaaa", k13));
  const auto choice =
      choose_toolchain(found_, {.wanted = "99aaaaaa", .recorded = {gone}}).value();
  EXPECT_EQ(choice.toolchain.id, gone.id);
  EXPECT_FALSE(choice.toolchain.installed());
}

constexpr std::string_view kNvrtcId = "65be0db342ad51a06876e71e210bccc5aa8322cf";
constexpr std::string_view kBuiltinsId = "08d17e32084d3171cc6e296843a5e09fbd20a331";

class DiscoverToolchains : public testing::Test {
 protected:
  DiscoverToolchains() {
    search_.places.cuda_home = root_ / "cuda";
    search_.folder = root_ / "cache/toolchains";
    fs::create_directory(root_ / "cache");
    search_.ask = [this](const fs::path& nvrtc, const fs::path& builtins) {
      asked_.push_back(nvrtc.filename().native() + " " + builtins.filename().native());
      return answer_;
    };
  }

  void install(const std::string& nvrtc, const std::string& builtins) const {
    test::write_library(root_ / nvrtc, kNvrtcId);
    if (!builtins.empty())
      test::write_library(root_ / builtins, kBuiltinsId);
  }

  const test::TempDir dir_;
  const fs::path root_ = fs::canonical(dir_.path());
  ToolchainSearch search_;
  Result<NvrtcFacts> answer_ = k13;
  std::vector<std::string> asked_;
};

TEST_F(DiscoverToolchains, FindsNothingOnABareMachine) {
  const auto found = discover_toolchains(search_).value();
  EXPECT_THAT(found.usable, IsEmpty());
  EXPECT_THAT(found.unusable, IsEmpty());
}

TEST_F(DiscoverToolchains, TellsEverythingOfOne) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  test::write_file(root_ / "cuda/include/cuda_fp16.h", {});
  const auto found = discover_toolchains(search_).value();
  ASSERT_THAT(found.usable, SizeIs(1));
  const Toolchain& one = found.usable[0];
  EXPECT_EQ(one.id.nvrtc, kNvrtcId);
  EXPECT_EQ(one.id.builtins, kBuiltinsId);
  EXPECT_EQ(to_string(one.id), std::string(kNvrtcId) + "+" + std::string(kBuiltinsId));
  EXPECT_EQ(one.name(), "nvrtc-13.0-65be0db3");
  EXPECT_EQ(one.nvrtc, root_ / "cuda/lib64/libnvrtc.so.13");
  EXPECT_EQ(one.builtins, root_ / "cuda/lib64/libnvrtc-builtins.so.13.0");
  EXPECT_EQ(one.facts, k13);
  EXPECT_EQ(one.found_in, "CUDA_HOME");
  EXPECT_THAT(one.include_roots, testing::ElementsAre(root_ / "cuda/include"));
}

TEST_F(DiscoverToolchains, AsksOnceAndThenReadsTheHint) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  const auto first = discover_toolchains(search_).value();
  search_.ask = nullptr;
  const auto second = discover_toolchains(search_).value();
  EXPECT_THAT(asked_, testing::ElementsAre("libnvrtc.so.13 libnvrtc-builtins.so.13.0"));
  EXPECT_EQ(second.usable, first.usable);
}

TEST_F(DiscoverToolchains, ADamagedHintIsAskedForAgain) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  test::write_file(search_.folder.path() / (std::string(kNvrtcId) + ".json"),
                   as_bytes("{"));
  EXPECT_THAT(discover_toolchains(search_)->usable, SizeIs(1));
  EXPECT_THAT(asked_, SizeIs(1));
  EXPECT_EQ(read_hint(search_.folder, kNvrtcId), k13);
}

TEST_F(DiscoverToolchains, AFolderThatCannotBeWrittenOnlyCostsTheHint) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  search_.folder = fs::path("/proc/kiln/toolchains");
  EXPECT_THAT(discover_toolchains(search_)->usable, SizeIs(1));
}

TEST_F(DiscoverToolchains, TheAnsweredVersionSettlesWhichBuiltinsBelong) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  test::write_library(root_ / "cuda/lib64/libnvrtc-builtins.so.13.1", "0bad0bad");
  for (int round = 0; round < 2; ++round) {
    const auto found = discover_toolchains(search_).value();
    ASSERT_THAT(found.usable, SizeIs(1));
    EXPECT_EQ(found.usable[0].id.builtins, kBuiltinsId);
  }
  EXPECT_THAT(asked_, SizeIs(1));
}

TEST_F(DiscoverToolchains, OneThatCannotBeUsedIsListedWithItsReason) {
  install("cuda/lib64/libnvrtc.so.13", "");
  test::write_file(root_ / "cuda/lib64/libnvrtc.so.12", as_bytes("no library"));
  const auto found = discover_toolchains(search_).value();
  EXPECT_THAT(found.usable, IsEmpty());
  ASSERT_THAT(found.unusable, SizeIs(2));
  EXPECT_THAT(found.unusable[0].error.message, HasSubstr("no libnvrtc-builtins"));
  EXPECT_EQ(found.unusable[1].error.code, ErrorCode::kCorrupt);
}

TEST_F(DiscoverToolchains, BuiltinsWithoutABuildIdAreKnownByTheirContent) {
  install("cuda/lib64/libnvrtc.so.13", "");
  const fs::path builtins = root_ / "cuda/lib64/libnvrtc-builtins.so.13.0";
  std::set<std::string> ids;
  for (const char* const content : {"one", "another"}) {
    test::ElfBuilder elf;
    elf.add_section(".rodata", SHT_PROGBITS, test::bytes_of(content));
    test::write_file(builtins, elf.build());
    const auto found = discover_toolchains(search_).value();
    ASSERT_THAT(found.usable, SizeIs(1));
    EXPECT_TRUE(found.usable[0].id.builtins.starts_with("sha256-"));
    ids.insert(found.usable[0].id.builtins);
  }
  EXPECT_THAT(ids, SizeIs(2));
}

TEST_F(DiscoverToolchains, OneOfAnotherKindOfMachineIsNotUsable) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  test::ElfBuilder elf;
  elf.machine = EM_PPC64;
  elf.note_segment = test::make_note(ELF_NOTE_GNU, NT_GNU_BUILD_ID, as_bytes("an id"));
  test::write_file(root_ / "cuda/lib64/libnvrtc.so.13", elf.build());
  const auto found = discover_toolchains(search_).value();
  EXPECT_THAT(found.usable, IsEmpty());
  ASSERT_THAT(found.unusable, SizeIs(1));
  EXPECT_THAT(found.unusable[0].error.message, HasSubstr("another kind of machine"));
}

TEST_F(DiscoverToolchains, OneThatDoesNotAnswerIsListedAndNeverRemembered) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  for (const Result<NvrtcFacts>& answer :
       {Result<NvrtcFacts>(fail(ErrorCode::kWorkerCrashed, "the worker died")),
        Result<NvrtcFacts>(NvrtcFacts{{13, 0}, {}})}) {
    answer_ = answer;
    EXPECT_THAT(discover_toolchains(search_)->unusable, SizeIs(1));
    EXPECT_EQ(read_hint(search_.folder, kNvrtcId), std::nullopt);
  }
}

TEST_F(DiscoverToolchains, AQuestionThatWasStoppedOrKilledSaysNothingAboutAnNvrtc) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  const fs::path nvrtc = root_ / "cuda/lib64/libnvrtc.so.13";
  for (const Error& error :
       {Error{ErrorCode::kCancelled, "cancelled"},
        Error{ErrorCode::kWorkerCrashed, "was killed by signal 9", true}}) {
    for (const fs::path& named : {fs::path(), nvrtc}) {
      answer_ = tl::unexpected(error);
      search_.explicit_nvrtc = named;
      const auto found = discover_toolchains(search_);
      ASSERT_THAT(found, test::IsError(error.code));
      EXPECT_EQ(found.error().from_outside, error.from_outside);
    }
  }
}

TEST_F(DiscoverToolchains, TheExplicitOneIsFirstAndNeedsNoBuiltins) {
  install("cuda/lib64/libnvrtc.so.13", "cuda/lib64/libnvrtc-builtins.so.13.0");
  install("named/libfake.so", "");
  search_.explicit_nvrtc = root_ / "named/libfake.so";
  const auto found = discover_toolchains(search_).value();
  ASSERT_THAT(found.usable, SizeIs(2));
  EXPECT_TRUE(found.usable[0].is_explicit);
  EXPECT_EQ(found.usable[0].found_in, "KILN_NVRTC");
  EXPECT_EQ(found.usable[0].builtins, "");
  EXPECT_FALSE(found.usable[1].is_explicit);
}

TEST_F(DiscoverToolchains, AnExplicitOneThatCannotBeUsedIsAnError) {
  search_.explicit_nvrtc = root_ / "absent.so";
  EXPECT_EQ(discover_toolchains(search_).error().code, ErrorCode::kUnavailable);
  test::write_file(root_ / "broken.so", as_bytes("no library"));
  search_.explicit_nvrtc = root_ / "broken.so";
  EXPECT_THAT(discover_toolchains(search_),
              test::IsError(ErrorCode::kUnavailable,
                            AllOf(HasSubstr("KILN_NVRTC"), HasSubstr("broken.so"))));
}

}  // namespace
}  // namespace kiln::device
