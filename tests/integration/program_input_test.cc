// Wrong input: architectures, keys, files and manifests, and what a machine lacks.

#include "tests/integration/program_usage.h"

namespace kiln {
namespace {

using testing::Eq;

TEST_F(ProgramUsageTest, ArchitecturesThatNobodyEverHadAreRefused) {
  for (const char* form : {"foo", "9", "9.", ".9", "sm_", "sm90", "9.0b", "9.0,",
                           "-9.0", "9.00", "090", "9.0 a", "native9"})
    expect_wrong({"warm", "--quick", "--arch", form}, {"'" + std::string(form)});
  for (const char* never : {"9.9", "1.0", "8.0a", "9.0f", "99.0", "sm_123"})
    expect_wrong({"warm", "--quick", "--arch", never}, {"no NVRTC ever built for"});
  expect_wrong({"warm", "--quick", "--arch", "8.0,9.9"}, {"9.9"});
  expect_wrong({"ls", "--arch", "nine"}, {"'nine' is not an architecture"});
}

TEST_F(ProgramUsageTest, WithoutADeviceAnArchitectureMustBeNamed) {
  if (!kiln_.run({"doctor", "--json"}).json()["devices"].empty())
    GTEST_SKIP() << "there is a device here";
  expect_wrong({"warm", "--quick"}, {"no NVIDIA device", "--arch"});
  expect_wrong({"warm", "--quick", "--arch", "native"}, {"no NVIDIA device"});
  expect_wrong({"ls", "--arch", "native"}, {"no NVIDIA device"});
}

TEST_F(ProgramUsageTest, AKeyIsAtLeastSixHexDigits) {
  for (const char* key : {"abc", "12345", "zzzzzz", "0x1234", "g123456"})
    expect_wrong({"show", key}, {"is no key"});
  expect_wrong({"clear", "abcde"}, {"is no key"});
  expect_wrong({"why", "abcdef", "abc"}, {"no key"});
  expect_wrong({"show", std::string(65, 'a')}, {"is no key"});
}

TEST_F(ProgramUsageTest, AnUnknownKeyIsExitOneForTheCommandLineWasRight) {
  expect_failure({"show", "abcdef"}, 1, {"there is no key abcdef"});
  expect_failure({"show", std::string(64, 'a')}, 1, {"no key"});
  expect_failure({"why", "abcdef", "fedcba"}, 1, {"no key"});
  expect_failure({"clear", "abcdef"}, 1, {"no key"});
}

TEST_F(ProgramUsageTest, AFileThatIsNotThereIsNamed) {
  const std::string source = kiln_.write("k.cu", test::kTinySource);
  expect_wrong({"warm", "--quick", "--profile", "none.json"}, {"none.json"});
  expect_wrong({"warm", "--quick", "--profile", "h100-smx"}, {"'h100-sxm'?"});
  // Where the output would go is looked at before the work.
  expect_wrong({"compile", source, "--arch", "9.0", "-o", "none/k.cubin"},
               {"-o none/k.cubin", "there is no folder"});
  expect_wrong({"compile", source, "--arch", "9.0", "-o", kiln_.folder()}, {"folder"});
  expect_wrong({"warm", "--quick", "--arch", "9.0", "--events", "none/e"},
               {"--events"});
}

TEST_F(ProgramUsageTest, AManifestsBadLineIsNamedByItsNumber) {
  const auto expect_line = [this](const std::string& text, const std::string& place,
                                  const std::string& why) {
    kiln_.write("m.jsonl", text);
    expect_wrong({"warm", "--manifest", "m.jsonl", "--arch", "9.0"},
                 {"m.jsonl:" + place, why});
  };
  const std::string good =
      R"({"template":"scaled_softmax_fwd","params":{"dtype":"bf16"}})";
  expect_line(good + "\n\n{oops\n", "3", "not JSON");
  expect_line("[]\n", "1", "object");
  expect_line(good + "\n{\"tempalte\":\"x\"}\n", "2", "did you mean 'template'?");
  expect_line("{\"params\":{}}\n", "1", "neither");
  expect_line("{\"template\":\"x\",\"source\":\"y\"}\n", "1", "exclude");
  expect_line("{\"source\":\"x\",\"arch\":\"ninety\"}\n", "1", "'ninety'");
  expect_line("{\"source\":\"x\",\"arch\":\"9.9\"}\n", "1", "9.9");
  expect_line(good + "\n{\"template\":\"scaled_sofmax_fwd\"}\n", "2",
              "did you mean 'scaled_softmax_fwd'?");
  expect_line("{\"template\":\"scaled_softmax_fwd\",\"params\":{\"dtype\":\"b\"}}\n",
              "1", "'dtype' cannot be 'b'");
  expect_line("{\"source\":\"x\",\"options\":[\"--gpu-architecture=sm_80\"]}\n", "1",
              "refused");
  expect_line("", "", "no request");
  expect_line("\n  \n", "", "no request");
}

TEST_F(ProgramUsageTest, WhatTheEnvironmentLacksIsExitThree) {
  const auto doctor = kiln_.run({"doctor", "--json"}).json();
  const std::string templates = test::write_tiny_templates(kiln_);
  kiln_.use_fake_nvrtc();  // an NVRTC 13: it begins at 7.5
  expect_failure({"warm", "--template-dir", templates, "--quick", "--arch", "7.0"}, 3,
                 {"7.0", "12.9"});
  expect_failure({"warm", "--template-dir", templates, "--quick", "--arch", "9.0,7.0"},
                 3, {"7.0"});
  kiln_.set("KILN_NVRTC", "/nowhere/libnvrtc.so");
  expect_failure({"compile", kiln_.write("k.cu", test::kTinySource), "--arch", "9.0"},
                 3, {"/nowhere/libnvrtc.so"});
  kiln_.unset("KILN_NVRTC");
  kiln_.set("KILN_TOOLCHAIN", "1.0");
  expect_failure({"warm", "--quick", "--arch", "9.0"}, 3,
                 {"KILN_TOOLCHAIN is 1.0", "known: nvrtc-"});
  kiln_.unset("KILN_TOOLCHAIN");
  kiln_.set("KILN_WORKER", "/nowhere/kiln-worker");
  const auto worker =
      kiln_.run({"compile", kiln_.write("k.cu", test::kTinySource), "--arch", "9.0"});
  EXPECT_THAT(worker.status, AnyOf(Eq(1), Eq(3))) << worker.text();
  EXPECT_THAT(worker.err, HasSubstr("/nowhere/kiln-worker"));
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

// As in a chroot that nobody mounted it in.
TEST_F(ProgramUsageTest, WithoutProcTheReasonIsSaid) {
  kiln_.write("k.cu", test::kTinySource);
  const auto tried = kiln_.run_in_shell(
      "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /proc' || "
      "exit "
      "77\n"
      "export ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0\n"
      "unshare --user --map-root-user --mount sh -c '"
      "mount -t tmpfs none /proc && kiln compile k.cu --arch 9.0'");
  if (tried.status == 77)
    GTEST_SKIP() << "NO USER NAMESPACES HERE: a lack of /proc was not tried";
  EXPECT_EQ(tried.status, 3) << tried.text();
  EXPECT_THAT(tried.err, HasSubstr("there is no kiln-worker"));
  EXPECT_THAT(tried.err, HasSubstr("/proc is not mounted here"));
}

}  // namespace
}  // namespace kiln
