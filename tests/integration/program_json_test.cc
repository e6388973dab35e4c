// The documents of --json: exactly one on stdout, with exactly these members.

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/program.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

// A member's name and what it may be: (n)umber, (s)tring, (b)oolean, (o)bject,
// (a)rray, nu(l)l.
using Members = std::map<std::string, std::string>;

void expect_members(const json& document, const Members& members) {
  ASSERT_TRUE(document.is_object()) << document.dump(1);
  for (const auto& [name, value] : document.items())
    EXPECT_TRUE(members.contains(name)) << "not in the contract: " << name;
  for (const auto& [name, kinds] : members) {
    ASSERT_TRUE(document.contains(name)) << "missing: " << name;
    const json& value = document[name];
    const char kind = value.is_number()    ? 'n'
                      : value.is_string()  ? 's'
                      : value.is_boolean() ? 'b'
                      : value.is_object()  ? 'o'
                      : value.is_array()   ? 'a'
                                           : 'l';
    EXPECT_NE(kinds.find(kind), std::string::npos) << name << " is " << value.dump();
  }
}

const Members kReport{{"requested", "n"},  {"hits", "n"},    {"compiled", "n"},
                      {"waited", "n"},     {"failed", "n"},  {"skipped", "n"},
                      {"not_stored", "n"}, {"seconds", "n"}, {"min_driver", "sl"},
                      {"entries", "a"}};
const Members kEntry{{"key", "s"},         {"kind", "s"},      {"template", "sl"},
                     {"name", "sl"},       {"file", "sl"},     {"entry_points", "a"},
                     {"params", "o"},      {"arch", "s"},      {"size_bytes", "n"},
                     {"created", "s"},     {"last_used", "s"}, {"toolchain", "s"},
                     {"compile_ms", "n"},  {"registers", "n"}, {"shared_bytes", "n"},
                     {"spill_bytes", "n"}, {"signed_by", "a"}};

/// Of a request that was built, beside what names it.
const Members kBuilt{{"params", "o"}, {"arch", "s"},   {"key", "s"}, {"outcome", "s"},
                     {"tier", "sl"},  {"stored", "b"}, {"ms", "n"},  {"error", "l"}};

Members with(Members members, const Members& more) {
  members.insert(more.begin(), more.end());
  return members;
}

constexpr const char* kKeyPattern = "[0-9a-f]{64}";
constexpr const char* kTimePattern = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z";

class ProgramJsonTest : public testing::Test {
 protected:
  void SetUp() override {
    kiln_.use_fake_nvrtc();
    templates_ = test::write_tiny_templates(kiln_);
    warmed_ = kiln_.json_of({"warm", "--template-dir", templates_, "--template",
                             "tiny_fwd", "--arch", "9.0"});
  }
  [[nodiscard]] std::string key() const { return warmed_["entries"][0]["key"]; }

  test::KilnProgram kiln_;
  std::string templates_;
  json warmed_;
};

TEST_F(ProgramJsonTest, WarmAndCompile) {
  expect_members(warmed_, kReport);
  for (const json& entry : warmed_["entries"]) {
    expect_members(entry, with(kBuilt, {{"template", "s"}}));
    EXPECT_THAT(entry["key"].get<std::string>(), MatchesRegex(kKeyPattern));
    EXPECT_EQ(entry["params"].size(), 2U);
    for (const auto& [name, value] : entry["params"].items())
      EXPECT_TRUE(value.is_string()) << name;
  }
  EXPECT_EQ(warmed_["min_driver"], "13.0");
  const json compiled = kiln_.json_of(
      {"compile", kiln_.write("k.cu", test::kTinySource), "--arch", "9.0a"});
  expect_members(compiled, kReport);
  expect_members(compiled["entries"][0], with(kBuilt, {{"file", "s"}}));
  kiln_.use_fake_nvrtc("crash");
  const json failed =
      kiln_.json_of({"compile", kiln_.folder() / "k.cu", "--arch", "8.0"}, 1);
  expect_members(failed["entries"][0]["error"], {{"code", "s"}, {"message", "s"}});
  EXPECT_EQ(failed["entries"][0]["error"]["code"], "worker_crashed");
}

TEST_F(ProgramJsonTest, LsAndShow) {
  const json list = kiln_.json_of({"ls"});
  expect_members(list, {{"entries", "a"}});
  ASSERT_EQ(list["entries"].size(), 6U);
  for (const json& entry : list["entries"]) {
    expect_members(entry, kEntry);
    EXPECT_EQ(entry["kind"], "cubin");
    EXPECT_EQ(entry["arch"], "9.0");
    EXPECT_THAT(entry["key"].get<std::string>(), MatchesRegex(kKeyPattern));
    EXPECT_THAT(entry["created"].get<std::string>(), MatchesRegex(kTimePattern));
    EXPECT_THAT(entry["last_used"].get<std::string>(), MatchesRegex(kTimePattern));
    EXPECT_THAT(entry["toolchain"].get<std::string>(),
                MatchesRegex("nvrtc-13.0-[0-9a-f]{8}"));
  }
  const json shown = kiln_.json_of({"show", key()});
  expect_members(
      shown,
      with(kEntry,
           {{"path", "s"}, {"min_driver", "s"}, {"producer", "s"}, {"preimage", "a"}}));
  expect_members(shown["entry_points"][0], {{"name", "s"}, {"lowered", "s"}});
  expect_members(shown["preimage"][0], {{"field", "s"}, {"value", "s"}});
  EXPECT_TRUE(std::filesystem::exists(shown["path"].get<std::string>()));
}

TEST_F(ProgramJsonTest, Why) {
  const Members why_members{
      {"same", "b"}, {"key", "s"}, {"nearest", "sl"}, {"differences", "a"}};
  const std::string other = warmed_["entries"][1]["key"];
  const json keys = kiln_.json_of({"why", key(), other});
  expect_members(keys, with(why_members, {{"entries", "a"}}));
  expect_members(keys["entries"][0], kEntry);
  expect_members(keys["differences"][0], {{"field", "s"}, {"a", "s"}, {"b", "s"}});
  const json request = kiln_.json_of({"why", "--template-dir", templates_, "--template",
                                      "tiny_bwd:dtype=f16,wide=true", "--arch", "9.0"},
                                     1);
  const Members request_members =
      with(why_members, {{"toolchain", "s"}, {"tier", "sl"}});
  expect_members(request, request_members);
  const json several = kiln_.json_of({"why", "--template-dir", templates_, "--template",
                                      "tiny_bwd:dtype=f16", "--arch", "9.0"},
                                     1);
  expect_members(several, with(request_members, {{"requests", "a"}}));
  expect_members(
      several["requests"][0],
      with(request_members, {{"name", "s"}, {"template", "s"}, {"arch", "s"}}));
}

TEST_F(ProgramJsonTest, EventsAndPs) {
  ASSERT_EQ(kiln_
                .run({"warm", "--template-dir", templates_, "--template", "tiny_bwd",
                      "--arch", "9.0", "--events", "events"})
                .status,
            0);
  const json events = kiln_.json_of({"events", kiln_.folder() / "events"});
  const Members counts{{"found", "n"},   {"compiled", "n"}, {"waited", "n"},
                       {"failed", "n"},  {"passed", "n"},   {"build_ms", "n"},
                       {"wait_ms", "n"}, {"first", "s"},    {"last", "s"}};
  expect_members(events, with(counts, {{"events", "n"},
                                       {"unreadable", "n"},
                                       {"processes", "n"},
                                       {"tiers", "o"},
                                       {"kernels", "a"},
                                       {"hosts", "a"}}));
  EXPECT_EQ(events["processes"], 1);
  expect_members(events["kernels"][0], with(counts, {{"name", "s"},
                                                     {"arch", "s"},
                                                     {"hosts", "a"},
                                                     {"reason", "s"},
                                                     {"error", "sl"}}));
  expect_members(events["hosts"][0], with(counts, {{"host", "s"}, {"processes", "n"}}));
  expect_members(kiln_.json_of({"ps"}), {{"builds", "a"}});
}

TEST_F(ProgramJsonTest, VerifyTrimClearAndStats) {
  expect_members(kiln_.json_of({"verify"}), {{"checked", "n"},
                                             {"corrupt", "a"},
                                             {"untrusted", "n"},
                                             {"unreadable", "n"},
                                             {"quarantined", "n"}});
  expect_members(kiln_.json_of({"stats"}), {{"entries", "n"},
                                            {"bytes", "n"},
                                            {"limit_bytes", "n"},
                                            {"kinds", "o"},
                                            {"precompiled", "o"},
                                            {"seeds", "a"},
                                            {"counters", "o"}});
  const Members removal_members{{"removed", "n"},
                                {"precompiled", "n"},
                                {"freed_bytes", "n"},
                                {"dry_run", "b"},
                                {"keys", "a"}};
  expect_members(kiln_.json_of({"trim"}), removal_members);
  const json cleared = kiln_.json_of({"clear", "--all", "--yes"});
  expect_members(cleared, removal_members);
  EXPECT_EQ(cleared["removed"], 6);
  EXPECT_EQ(cleared["keys"].size(), 6U);
}

TEST_F(ProgramJsonTest, PackUnpackAndKey) {
  const std::string pack = kiln_.folder() / "job.kpack";
  const Members both{{"file", "s"},    {"objects", "n"},    {"failed", "n"},
                     {"header", "o"},  {"toolchain", "sl"}, {"signed_by", "a"},
                     {"problems", "a"}};
  const std::string key = kiln_.folder() / "key";
  expect_members(kiln_.json_of({"key", "new", key})["keys"][0],
                 {{"id", "s"}, {"public_key", "s"}});
  expect_members(kiln_.json_of({"pack", "-o", pack, "--sign", key}),
                 with(both, {{"bytes", "n"}, {"missing", "n"}}));
  const json unpacked = kiln_.json_of({"unpack", pack});
  expect_members(unpacked, with(both, {{"stored", "n"},
                                       {"already_there", "n"},
                                       {"revoked", "n"},
                                       {"skipped", "n"}}));
  expect_members(unpacked["header"], {{"producer", "s"},
                                      {"name", "s"},
                                      {"created", "sl"},
                                      {"serial", "n"},
                                      {"toolchains", "a"}});
  EXPECT_THAT(unpacked["header"]["created"].get<std::string>(),
              MatchesRegex(kTimePattern));
  const json stats = kiln_.json_of({"stats", "--seed", pack});
  expect_members(stats["seeds"][0], {{"path", "s"},
                                     {"kind", "s"},
                                     {"objects", "nl"},
                                     {"bytes", "nl"},
                                     {"header", "ol"},
                                     {"error", "ol"}});
}

TEST_F(ProgramJsonTest, RenderTemplatesAndDoctor) {
  const json rendered = kiln_.json_of({"render", "scaled_softmax_fwd:dtype=bf16"});
  expect_members(rendered, {{"template", "s"}, {"params", "o"}, {"source", "s"}});
  EXPECT_EQ(rendered["params"]["max_cols"], "any");
  const json templates = kiln_.json_of({"templates"});
  expect_members(templates, {{"templates", "a"}});
  for (const json& each : templates["templates"]) {
    expect_members(each, {{"name", "s"},
                          {"summary", "s"},
                          {"parameters", "a"},
                          {"entry_points", "a"},
                          {"targets", "a"}});
    for (const json& parameter : each["parameters"])
      expect_members(parameter, {{"name", "s"},
                                 {"type", "s"},
                                 {"values", "a"},
                                 {"min", "nl"},
                                 {"max", "nl"},
                                 {"default", "sl"},
                                 {"meaning", "s"}});
  }
  const json doctor = kiln_.run({"doctor", "--json"}).json();
  expect_members(doctor, {{"ok", "b"},
                          {"settings", "a"},
                          {"checks", "a"},
                          {"devices", "a"},
                          {"remotes", "a"},
                          {"toolchains", "a"},
                          {"kiln", "o"},
                          {"cache", "o"}});
  expect_members(doctor["cache"], {{"root", "s"},
                                   {"mode", "s"},
                                   {"owner", "nl"},
                                   {"permissions", "sl"},
                                   {"file_system", "sl"},
                                   {"network", "bl"},
                                   {"free_bytes", "nl"},
                                   {"free_inodes", "nl"},
                                   {"lock_folder", "sl"},
                                   {"locks", "sl"},
                                   {"index", "b"},
                                   {"entries", "nl"},
                                   {"bytes", "nl"},
                                   {"limit_bytes", "n"}});
  for (const json& setting : doctor["settings"])
    expect_members(setting,
                   {{"name", "s"}, {"variable", "s"}, {"value", "s"}, {"origin", "s"}});
  for (const json& check : doctor["checks"]) {
    expect_members(check,
                   {{"name", "s"}, {"verdict", "s"}, {"detail", "s"}, {"remedy", "s"}});
    EXPECT_THAT(check["verdict"], testing::AnyOf("ok", "warn", "fail"));
  }
}

/// Without what differs from run to run, from machine to machine and with the compiler
/// that built the fake NVRTC.
json masked(const json& document, const std::string& folder) {
  static const std::set<std::string> measured{
      "ms", "compile_ms", "seconds", "size_bytes", "bytes", "freed_bytes", "producer"};
  static const std::regex digest("[0-9a-f]{64}|[0-9a-f]{2}/[0-9a-f]{62}");
  static const std::regex build_id("[0-9a-f]{40}");
  static const std::regex time(kTimePattern);
  static const std::regex toolchain("nvrtc-13\\.0-[0-9a-f]{8}");
  if (document.is_string()) {
    std::string text = document;
    for (auto at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.replace(at, folder.size(), "<folder>");
    text = std::regex_replace(text, digest, "<digest>");
    text = std::regex_replace(text, build_id, "<build id>");
    text = std::regex_replace(text, toolchain, "<toolchain>");
    return std::regex_replace(text, time, "<time>");
  }
  if (!document.is_structured())
    return document;
  json result = document;
  for (auto at = result.begin(); at != result.end(); ++at) {
    const bool is_measured = result.is_object() && measured.contains(at.key());
    *at = is_measured ? json("<measured>") : masked(*at, folder);
  }
  return result;
}

TEST_F(ProgramJsonTest, TheDocumentsHaveTheMembersAndValuesTheyHad) {
  const std::string softmax = "scaled_softmax_fwd";
  json all{{"warm", warmed_}};
  all["compile"] = kiln_.json_of(
      {"compile", kiln_.write("k.cu", test::kTinySource), "--arch", "9.0a"});
  all["ls"] = kiln_.json_of({"ls"});
  all["show"] = kiln_.json_of({"show", key()});
  EXPECT_EQ("kiln " + all["show"]["producer"].get<std::string>() + "\n",
            kiln_.run({"--version"}).out);
  all["why"] = kiln_.json_of({"why", key(), warmed_["entries"][1]["key"]});
  all["render"] = kiln_.json_of({"render", softmax + ":dtype=bf16"});
  all["render"]["source"] = "";
  const json listed_templates = kiln_.json_of({"templates"});
  for (const json& each : listed_templates["templates"]) {
    if (each["name"] == softmax)
      all["templates"] = each;
  }
  all["verify"] = kiln_.json_of({"verify"});
  all["stats"] = kiln_.json_of({"stats"});
  all["trim"] = kiln_.json_of({"trim"});
  all["clear"] = kiln_.json_of({"clear", "--all", "--yes"});
  all = masked(all, kiln_.folder().native());
  // By when they were used, which the clock may not tell apart.
  json& listed = all["ls"]["entries"];
  std::sort(listed.begin(), listed.end());
  test::expect_golden("tests/integration/golden/documents.json", all.dump(1) + "\n");
}

TEST_F(ProgramJsonTest, AnEmptyCacheIsAnEmptyListAndNoError) {
  kiln_.unset("KILN_CACHE_DIR");
  kiln_.set("XDG_CACHE_HOME", kiln_.folder() / "nothing");
  EXPECT_THAT(kiln_.json_of({"ls"})["entries"], IsEmpty());
  EXPECT_EQ(kiln_.json_of({"stats"})["entries"], 0);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], 0);
  EXPECT_EQ(kiln_.json_of({"trim"})["removed"], 0);
  EXPECT_EQ(kiln_.json_of({"clear", "--all", "--yes"})["removed"], 0);
}

TEST_F(ProgramJsonTest, BytesThatAreNoUtf8AreReplacedAndNoError) {
  kiln_.write("\xff.cu", test::kTinySource);
  const json report = kiln_.json_of({"compile", "\xff.cu", "--arch", "9.0"});
  EXPECT_EQ(report["compiled"], 1);
}

// A reader is slow: its pipe is full when the document is to go out, and a signal comes
// while the program waits.
TEST_F(ProgramJsonTest, AStopWhileTheDocumentGoesOutLosesNoneOfIt) {
  const auto ended = kiln_.run_in_shell(R"(
    mkfifo answer && exec 3<>answer
    timeout 1 cat /dev/zero >&3
    kiln stats --json >answer 3<&- &
    sleep 0.5
    kill -TERM $!
    sleep 0.2
    exec 4<answer 3<&-
    tr -d '\0' <&4
    wait $!)");
  EXPECT_TRUE(ended.status == 0 || ended.status == 143) << ended.text();
  EXPECT_TRUE(ended.json().contains("counters"));
}

TEST_F(ProgramJsonTest, AFullDiskIsSaid) {
  const auto full = kiln_.run({"show", key(), "--extract", "/dev/full"});
  EXPECT_EQ(full.status, 1) << full.text();
  EXPECT_THAT(full.err, testing::HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace kiln
