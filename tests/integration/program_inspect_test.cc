// Looking at a cache and after it: ls, show, verify, trim, clear, stats.

#include "tests/integration/program_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "device/cubin.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

TEST_F(ProgramInspectTest, LsFiltersCombineWithAnd) {
  warm("tiny:dtype=bf16,wide=false", "8.0,9.0");
  EXPECT_THAT(list({}), SizeIs(4));
  EXPECT_THAT(list({"--arch", "9.0"}, "arch"), ElementsAre("9.0", "9.0"));
  EXPECT_THAT(list({"--arch", "sm_90,8.0"}), SizeIs(4));
  EXPECT_THAT(list({"--arch", "90a"}), IsEmpty());
  EXPECT_THAT(list({"--template", "tiny_fwd"}, "template"),
              ElementsAre("tiny_fwd", "tiny_fwd"));
  EXPECT_THAT(list({"--template", "tiny"}), SizeIs(4));  // a family
  EXPECT_THAT(list({"--template", "tiny_bwd", "--arch", "8.0"}), SizeIs(1));
  EXPECT_THAT(list({"--template", "tiny_bwd", "--template", "tiny_fwd"}), SizeIs(4));
  EXPECT_THAT(list({"--template", "scaled_softmax_fwd"}), IsEmpty());
  // Of a template that is gone.
  kiln_.unset("KILN_TEMPLATE_DIR");
  EXPECT_THAT(list({"--template", "tiny_fwd"}), SizeIs(2));
}

TEST_F(ProgramInspectTest, LsSortsAndLimits) {
  warm("tiny_fwd:dtype=bf16,wide=false", "8.0");
  warm("tiny_bwd:dtype=bf16,wide=false", "9.0");
  const std::string last = one("tiny_bwd:dtype=f16,wide=false", "8.0");
  EXPECT_EQ(list({})[0], last);
  EXPECT_EQ(list({"--sort", "created", "--limit", "1"}), std::vector{last});
  EXPECT_THAT(list({"--sort", "arch"}, "arch"), ElementsAre("8.0", "8.0", "9.0"));
  EXPECT_THAT(list({"--sort", "template"}, "template"),
              ElementsAre("tiny_bwd", "tiny_bwd", "tiny_fwd"));
  EXPECT_THAT(list({"--limit", "0"}), IsEmpty());
  EXPECT_THAT(list({"--limit", "2"}), SizeIs(2));
  EXPECT_THAT(list({"--limit", "9999"}), SizeIs(3));
  const json listed = kiln_.json_of({"ls", "--sort", "size"});
  std::vector<int> sizes;
  for (const json& entry : listed["entries"]) sizes.push_back(entry["size_bytes"]);
  EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
}

TEST_F(ProgramInspectTest, LsIsATableForPeople) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=false");
  const auto listed = kiln_.run({"ls"});
  EXPECT_THAT(listed.out, AllOf(StartsWith("KEY "), HasSubstr(key.substr(0, 12)),
                                HasSubstr("tiny_fwd:dtype=bf16,wide=false")));
  EXPECT_THAT(listed.err, HasSubstr("1 entry,"));
  EXPECT_THAT(listed.err, Not(HasSubstr("more")));
  one("tiny_fwd:dtype=bf16,wide=true");
  EXPECT_THAT(kiln_.run({"ls", "--limit", "1"}).err, HasSubstr("; there are more\n"));
  EXPECT_THAT(kiln_.run({"ls", "--limit", "2"}).err, Not(HasSubstr("more")));
  const auto none = kiln_.run({"ls", "--limit", "0"});
  EXPECT_EQ(none.out + none.err, "0 entries, 0 B; there are more\n");
  EXPECT_EQ(kiln_.run({"show", key.substr(0, 12)}).status, 0);
}

TEST_F(ProgramInspectTest, ShowTellsEverythingOfOneEntry) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=true");
  const auto shown = kiln_.run({"show", key});
  EXPECT_THAT(shown.out, AllOf(HasSubstr(key), HasSubstr("tiny_fwd:dtype=bf16"),
                               HasSubstr("nvrtc-13.0-"), HasSubstr("entry point")));
  EXPECT_THAT(kiln_.run({"show", key, "--source"}).out,
              HasSubstr("__global__ void tiny_fwd"));
  EXPECT_EQ(kiln_.run({"show", key, "--log"}).status, 0);
  EXPECT_THAT(kiln_.run({"show", key, "--ptx"}).out, HasSubstr(".target sm_90"));
  EXPECT_THAT(kiln_.run({"show", key, "--preimage"}).out, HasSubstr("sm_90"));
  const json json_source = kiln_.json_of({"show", key, "--source"});
  EXPECT_THAT(json_source["source"].get<std::string>(), HasSubstr("__global__"));
}

TEST_F(ProgramInspectTest, ExtractedBytesAreTheCubinOfTheRightArchitecture) {
  kiln_.unset("KILN_NVRTC");  // the real one
  const std::string key = kiln_.compiled(test::kTinySource, "9.0a");
  EXPECT_EQ(kiln_.run({"show", key, "--extract", "k.cubin"}).status, 0);
  const auto image = read_file(kiln_.folder() / "k.cubin", 1U << 20U).value().value();
  const auto cubin = device::read_cubin(image);
  ASSERT_TRUE(cubin) << cubin.error().message;
  EXPECT_EQ(to_string(cubin->capability), "9.0");
  EXPECT_THAT(std::string(as_text(image)).substr(0, 4), "\177ELF");
  const auto piped = kiln_.run({"show", key, "--extract", "-"});
  EXPECT_EQ(piped.out, as_text(image));
  EXPECT_THAT(kiln_.run({"show", key, "--ptx"}).out, HasSubstr(".target sm_90a"));
  EXPECT_THAT(kiln_.run({"show", key, "--source"}).out, test::kTinySource);
}

TEST_F(ProgramInspectTest, AUniquePrefixIsAKeyAndAnAmbiguousOneIsNot) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=true");
  EXPECT_EQ(kiln_.json_of({"show", key.substr(0, 6)})["key"], key);
  std::string upper = key.substr(0, 10);
  std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
  EXPECT_EQ(kiln_.json_of({"show", upper})["key"], key);
  // A second object whose key begins alike.
  const fs::path file = object(key);
  std::string twin = file.filename();
  twin.back() = twin.back() == '0' ? '1' : '0';
  fs::copy_file(file, file.parent_path() / twin);
  for (const Arguments& arguments :
       {Arguments{"show", key.substr(0, 8)}, Arguments{"clear", key.substr(0, 8)}}) {
    const auto ambiguous = kiln_.run(arguments);
    EXPECT_EQ(ambiguous.status, 2) << ambiguous.text();
    EXPECT_THAT(ambiguous.err, AllOf(HasSubstr(key), HasSubstr(twin)));
  }
  EXPECT_EQ(kiln_.json_of({"show", key})["key"], key);
}

TEST_F(ProgramInspectTest, VerifyFindsDamageAndQuarantineMakesRoomForANewBuild) {
  const json report = warm("tiny_fwd", "9.0");
  const std::string flipped = report["entries"][0]["key"];
  const std::string cut = report["entries"][1]["key"];
  const fs::path flipped_file = object(flipped);
  flip_byte(flipped_file, fs::file_size(flipped_file) / 2);
  fs::resize_file(object(cut), fs::file_size(object(cut)) - 1);

  const json found = kiln_.json_of({"verify"}, 1);
  EXPECT_EQ(found["checked"], 6);
  EXPECT_EQ(found["quarantined"], 0);
  ASSERT_THAT(found["corrupt"], SizeIs(2));
  std::vector<std::string> keys;
  for (const json& each : found["corrupt"]) {
    keys.push_back(each["key"]);
    EXPECT_THAT(each["check"].get<std::string>(), Not(IsEmpty()));
    EXPECT_TRUE(fs::exists(each["path"].get<std::string>()));
  }
  EXPECT_THAT(keys, UnorderedElementsAre(flipped, cut));

  const json moved = kiln_.json_of({"verify", "--quarantine"}, 1);
  EXPECT_EQ(moved["quarantined"], 2);
  EXPECT_THAT(kiln_.object_files(), SizeIs(4));
  EXPECT_EQ(kiln_.run({"verify"}).status, 0);
  const json again = warm("tiny_fwd", "9.0");
  EXPECT_EQ(again["hits"], 4);
  EXPECT_EQ(again["compiled"], 2);
  EXPECT_EQ(kiln_.json_of({"verify"})["checked"], 6);
}

TEST_F(ProgramInspectTest, ADamagedObjectIsRebuiltByTheNextWarmWithoutAVerify) {
  const std::string key = one("tiny_fwd:dtype=f16,wide=true");
  fs::resize_file(object(key), 10);
  const auto shown = kiln_.run({"show", key});
  EXPECT_EQ(shown.status, 1) << shown.text();
  EXPECT_THAT(shown.err, HasSubstr("is corrupt (size)"));
  EXPECT_EQ(kiln_.run({"verify"}).status, 1) << "looking has moved it away";
  EXPECT_EQ(warm("tiny_fwd:dtype=f16,wide=true", "9.0")["compiled"], 1);
  EXPECT_EQ(kiln_.run({"verify"}).status, 0);
  EXPECT_EQ(kiln_.run({"show", key}).status, 0);
}

TEST_F(ProgramInspectTest, TrimRemovesTheLeastRecentlyUsedUntilTheRestFits) {
  warm("tiny_fwd", "9.0");
  const int bytes = kiln_.json_of({"stats"})["bytes"];
  const std::string half = std::to_string(bytes / 2) + "B";
  const json dry = kiln_.json_of({"trim", "--max-size", half, "--dry-run"});
  EXPECT_EQ(dry["dry_run"], true);
  EXPECT_THAT(dry["removed"].get<int>(), testing::Ge(3));
  EXPECT_THAT(kiln_.object_files(), SizeIs(6));
  const json trimmed = kiln_.json_of({"trim", "--max-size", half});
  EXPECT_EQ(trimmed["removed"], dry["removed"]);
  EXPECT_EQ(trimmed["keys"], dry["keys"]);
  EXPECT_EQ(kiln_.object_files().size() + trimmed["keys"].size(), 6U);
  EXPECT_LE(kiln_.json_of({"stats"})["bytes"].get<int>(), bytes / 2);
  EXPECT_EQ(kiln_.json_of({"trim", "--max-size", "1G"})["removed"], 0);
  EXPECT_EQ(kiln_.run({"trim", "--max-size", "0"}).status, 0);
  EXPECT_THAT(list({}), IsEmpty());
}

TEST_F(ProgramInspectTest, ACacheOverItsLimitSaysWhenItIsTrimmed) {
  const json all = warm("tiny_fwd", "9.0");
  EXPECT_EQ(all["compiled"], 6);
  EXPECT_THAT(kiln_.run({"stats"}).out, Not(HasSubstr("over its limit")));
  kiln_.set("KILN_CACHE_SIZE", "1k");
  EXPECT_THAT(kiln_.run({"stats"}).out, HasSubstr("over its limit: the next build"));
  EXPECT_THAT(kiln_.run({"doctor"}).out,
              AllOf(HasSubstr("warn  index: 6 entries"), HasSubstr("over its limit")));
  const auto kept = kiln_.run({"trim"});
  EXPECT_THAT(kept.out, StartsWith("removed 0 entries"));
  EXPECT_THAT(kept.err, HasSubstr("in the last minute stay"));
  EXPECT_EQ(kiln_.json_of({"trim", "--max-size", "1k"})["removed"], 6);
  EXPECT_THAT(kiln_.run({"stats"}).out, Not(HasSubstr("over its limit")));
}

TEST_F(ProgramInspectTest, StatsForACollectorReplaceTheirFileAndNeverCutIt) {
  warm("tiny_fwd", "9.0");
  warm("tiny_fwd", "9.0");
  const auto printed = kiln_.run({"stats", "--format", "openmetrics"});
  EXPECT_EQ(printed.status, 0) << printed.text();
  const std::string cache = "{cache=\"" + kiln_.cache_dir().native() + "\"";
  const std::vector<std::string> samples{
      "kiln_gets_total" + cache + ",tier=\"build\"} 6\n",
      "kiln_gets_total" + cache + ",tier=\"disk\"} 6\n",
      "kiln_entries" + cache + "} 6\n"};
  for (const std::string& each : samples) EXPECT_THAT(printed.out, HasSubstr(each));
  EXPECT_THAT(printed.out, HasSubstr("# TYPE kiln_gets counter\n"));
  // The older format, which has other names of counters, and neither units nor an end.
  const auto older = kiln_.run({"stats", "--format", "prometheus"});
  EXPECT_EQ(older.status, 0) << older.text();
  for (const std::string& each : samples) EXPECT_THAT(older.out, HasSubstr(each));
  EXPECT_THAT(older.out, AllOf(HasSubstr("# TYPE kiln_gets_total counter\n"),
                               Not(HasSubstr("# UNIT")), Not(HasSubstr("# EOF"))));
  const fs::path file = kiln_.folder() / "kiln.prom";
  kiln_.write("kiln.prom", "old");
  fs::create_hard_link(file, kiln_.folder() / "reader");
  EXPECT_EQ(kiln_.run({"stats", "--format", "openmetrics", "--output", file}).status,
            0);
  EXPECT_THAT(read_text_file(file, 1U << 20U).value(), testing::EndsWith("# EOF\n"));
  EXPECT_EQ(read_text_file(kiln_.folder() / "reader", 100).value(), "old")
      << "written in place";
  EXPECT_EQ(kiln_.run({"stats", "--output", file}).status, 2);
  EXPECT_EQ(kiln_.run({"stats", "--format", "openmetrics", "--json"}).status, 2);
  EXPECT_EQ(kiln_.run({"stats", "--format", "openmetrics", "--output", "no/f"}).status,
            2);
}

TEST_F(ProgramInspectTest, ClearTakesKeysFiltersAgesAndAll) {
  const json report = warm("tiny:dtype=bf16", "8.0,9.0");
  ASSERT_EQ(report["compiled"], 8);
  const std::string key = report["entries"][0]["key"];
  const json dry = kiln_.json_of({"clear", "--all", "--dry-run"});
  EXPECT_EQ(dry["removed"], 8);
  EXPECT_EQ(dry["dry_run"], true);
  EXPECT_THAT(kiln_.object_files(), SizeIs(8));

  const json by_key = kiln_.json_of({"clear", key.substr(0, 8)});
  EXPECT_EQ(by_key["removed"], 1);
  EXPECT_THAT(by_key["freed_bytes"].get<int>(), testing::Gt(0));
  EXPECT_THAT(by_key["keys"], ElementsAre(key));
  EXPECT_EQ(kiln_.run({"clear", key}).status, 1);
  EXPECT_EQ(kiln_.json_of({"clear", "--older-than", "1h", "--yes"})["removed"], 0);
  const auto backward = list({"--template", "tiny_bwd", "--arch", "8.0"}).size();
  EXPECT_EQ(kiln_.json_of({"clear", "--template", "tiny_bwd", "--arch", "8.0",
                           "--yes"})["removed"],
            backward);
  EXPECT_THAT(list({"--arch", "8.0"}, "template"), testing::Each("tiny_fwd"));
  const auto old = list({"--arch", "9.0"}).size();
  EXPECT_EQ(kiln_.json_of(
                {"clear", "--older-than", "0s", "--arch", "9.0", "--yes"})["removed"],
            old);
  EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramInspectTest, TheIndexMayBeDeletedOrGarbage) {
  warm("tiny_fwd", "9.0");
  const fs::path index = kiln_.cache_dir() / "index.sqlite";
  ASSERT_TRUE(fs::exists(index));
  fs::remove(index);
  EXPECT_THAT(list({}), SizeIs(6));
  std::ofstream(index) << std::string(20000, 'x');
  const auto listed = kiln_.run({"ls", "--json"});
  EXPECT_EQ(listed.status, 0) << listed.text();
  EXPECT_THAT(listed.json()["entries"], SizeIs(6));
  EXPECT_EQ(kiln_.json_of({"stats"})["entries"], 6);
  EXPECT_EQ(warm("tiny_fwd", "9.0")["hits"], 6);
}

TEST_F(ProgramInspectTest, ClearAllRemovesWhatIsDamagedToo) {
  const std::string key = one("tiny_fwd:dtype=f16,wide=true");
  fs::resize_file(object(key), 100);
  fs::remove(kiln_.cache_dir() / "index.sqlite");
  EXPECT_EQ(kiln_.json_of({"clear", "--all", "--yes"})["keys"], json::array({key}));
  EXPECT_THAT(kiln_.object_files(), IsEmpty());
}

TEST_F(ProgramInspectTest, NothingIsMadeWhereOnlyLookingIsAskedFor) {
  kiln_.unset("KILN_CACHE_DIR");  // the default place may not be there yet
  kiln_.set("XDG_CACHE_HOME", kiln_.folder() / "nowhere/deep");
  const fs::path nowhere = kiln_.folder() / "nowhere/deep/kiln";
  const fs::path runtime = kiln_.folder() / "run";  // where locks could be instead
  fs::create_directory(runtime);
  fs::permissions(runtime, fs::perms::owner_all);
  kiln_.set("XDG_RUNTIME_DIR", runtime);
  for (const Arguments& arguments :
       {Arguments{"ls"}, Arguments{"stats"}, Arguments{"verify"}, Arguments{"trim"}}) {
    const auto finished = kiln_.run(arguments);
    EXPECT_EQ(finished.status, 0) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr(nowhere.native() + ": there is no cache yet"));
  }
  EXPECT_EQ(kiln_.run({"clear", "--all", "--yes"}).status, 0);
  EXPECT_EQ(kiln_.run({"show", "abcdef"}).status, 1);
  const auto why = kiln_.run(
      {"why", "--template", "scaled_softmax_fwd:dtype=bf16", "--arch", "9.0"});
  EXPECT_EQ(why.status, 1) << why.text();
  const auto doctor = kiln_.run({"doctor"});
  EXPECT_EQ(doctor.status, 0) << doctor.text();
  EXPECT_THAT(doctor.out, HasSubstr(nowhere.native() + ": no cache yet; the first"));
  EXPECT_FALSE(fs::exists(kiln_.folder() / "nowhere"));
  EXPECT_TRUE(fs::is_empty(runtime));
}

TEST_F(ProgramInspectTest, ACacheThatIsNamedAndNotThereIsExitThree) {
  const std::string typo = kiln_.folder() / "ccahe";
  for (const Arguments& arguments :
       {Arguments{"ls"}, Arguments{"stats"}, Arguments{"verify"}, Arguments{"trim"},
        Arguments{"clear", "--all", "--yes"}, Arguments{"show", "abcdef"},
        Arguments{"why", "abcdef", "fedcba"}, Arguments{"doctor"}}) {
    auto there = arguments;
    there.insert(there.end(), {"--cache-dir", typo});
    const auto finished = kiln_.run(there);
    EXPECT_EQ(finished.status, 3) << finished.text();
    EXPECT_THAT(finished.err, HasSubstr(typo + ": there is no such folder"));
  }
  kiln_.set("KILN_CACHE_DIR", typo);
  const std::string pack = kiln_.folder() / "job.kpack";
  for (const Arguments& arguments :
       {Arguments{"ls"}, Arguments{"stats"}, Arguments{"verify"}, Arguments{"trim"},
        Arguments{"pack", "-o", pack}}) {
    const auto finished = kiln_.run(arguments);
    EXPECT_EQ(finished.status, 3) << finished.text();
    EXPECT_THAT(finished.err,
                HasSubstr("KILN_CACHE_DIR is " + typo + ": there is no such folder"));
  }
  // These answer the question themselves.
  EXPECT_EQ(
      kiln_.run({"why", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0"}).status,
      1);
  EXPECT_EQ(kiln_.run({"doctor"}).status, 0);
  EXPECT_FALSE(fs::exists(typo));
}

TEST_F(ProgramInspectTest, WhyACacheIsOffIsSaidOnce) {
  const std::string file = kiln_.write("file", "");
  for (const Arguments& arguments :
       {Arguments{"ls"}, Arguments{"verify"},
        Arguments{"why", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0"},
        Arguments{"warm", "--template", "tiny_fwd", "--arch", "9.0"},
        Arguments{"warm", "--template", "tiny_fwd", "--arch", "9.0", "--dry-run"}}) {
    auto off = arguments;
    off.insert(off.end(), {"--cache-dir", file});
    const auto finished = kiln_.run(off);
    EXPECT_EQ(finished.status, 3) << finished.text();
    EXPECT_EQ(std::ranges::count(finished.err, '\n'), 1) << finished.text();
    EXPECT_THAT(finished.out, IsEmpty());
  }
  // Without an NVRTC a warm fails earlier, which may be the consequence.
  kiln_.set("KILN_NVRTC", "/nowhere/libnvrtc.so");
  const auto without = kiln_.run(
      {"warm", "--template", "tiny_fwd", "--arch", "9.0", "--cache-dir", file});
  EXPECT_EQ(without.status, 3) << without.text();
  EXPECT_THAT(without.err, AllOf(HasSubstr("/nowhere"), HasSubstr("; and no cache can "
                                                                  "be used: open ")));
  kiln_.use_fake_nvrtc();
  const auto doctor = kiln_.run({"doctor", "--cache-dir", file});
  EXPECT_EQ(doctor.status, 1) << doctor.text();
  EXPECT_THAT(doctor.out,
              HasSubstr("\n      -> name another place in KILN_CACHE_DIR\n"));
  EXPECT_THAT(doctor.err, IsEmpty());
}

// The mount point of a cache that is not mounted: no `kiln verify || page` is green.
TEST_F(ProgramInspectTest, ANamedFolderThatIsNoCacheIsExitThree) {
  const fs::path empty = kiln_.folder() / "empty";
  fs::create_directory(empty);
  const std::string text = " is " + empty.native() + ": that is no cache, since it has";
  for (const char* verb : {"ls", "stats", "verify", "trim"}) {
    const auto by_option = kiln_.run({verb, "--cache-dir", empty});
    EXPECT_EQ(by_option.status, 3) << by_option.text();
    EXPECT_THAT(by_option.err, HasSubstr("--cache-dir" + text));
    EXPECT_EQ(kiln_.run({verb, "--cache-dir", "/etc"}).status, 3) << verb;
    kiln_.set("KILN_CACHE_DIR", empty);
    const auto by_variable = kiln_.run({verb, "--json"});
    EXPECT_EQ(by_variable.status, 3) << by_variable.text();
    EXPECT_EQ(by_variable.json()["error"]["code"], "unavailable");
    EXPECT_THAT(by_variable.err, HasSubstr("KILN_CACHE_DIR" + text));
  }
  EXPECT_EQ(kiln_.run({"pack", "-o", kiln_.folder() / "job.kpack"}).status, 3);
  EXPECT_TRUE(fs::is_empty(empty));
  // Of another version of the cache, whose programs may have written nothing else.
  fs::create_directories(empty / "objects/v999");
  const auto other = kiln_.run({"verify"});
  EXPECT_EQ(other.status, 0) << other.text();
  EXPECT_THAT(other.err, HasSubstr("there is no cache yet"));
}

TEST_F(ProgramInspectTest, ACollectorOfMetricsIsToldThatThereIsNoCache) {
  const Arguments metrics{"stats", "--format", "openmetrics"};
  const auto expect_present = [&](const Arguments& more, int present) {
    Arguments words = metrics;
    words.insert(words.end(), more.begin(), more.end());
    const auto finished = kiln_.run(words);
    EXPECT_EQ(finished.status, 0) << finished.text();
    EXPECT_THAT(finished.out,
                testing::ContainsRegex(fmt::format(
                    "\nkiln_cache_present.cache=\"[^\"]*\". {}\n", present)));
  };
  for (const fs::path& named : {kiln_.folder() / "none", fs::path("/etc")}) {
    expect_present({"--cache-dir", named}, 0);
    kiln_.set("KILN_CACHE_DIR", named);
    expect_present({}, 0);
  }
  kiln_.unset("KILN_CACHE_DIR");
  expect_present({}, 0);
  kiln_.set("KILN_CACHE_DIR", kiln_.cache_dir());
  warm("tiny_fwd:dtype=f16", "9.0");
  expect_present({}, 1);
}

TEST_F(ProgramInspectTest, LookingIntoAFolderThatIsNoCacheLeavesItAsItIs) {
  const fs::path empty = kiln_.folder() / "empty";
  fs::create_directory(empty);
  EXPECT_EQ(kiln_.run({"show", "abcdef", "--cache-dir", empty}).status, 1);
  EXPECT_EQ(kiln_
                .run({"why", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0",
                      "--cache-dir", empty})
                .status,
            1);
  EXPECT_EQ(kiln_.run({"doctor", "--cache-dir", empty}).status, 0);
  EXPECT_TRUE(fs::is_empty(empty));
}

TEST_F(ProgramInspectTest, DoctorsOfTwoNodesAreCompared) {
  const auto here = kiln_.run({"doctor", "--json"});
  const std::string file = kiln_.write("other.json", here.out);
  const auto same = kiln_.run({"doctor", "--compare", file});
  EXPECT_EQ(same.status, here.status) << same.text();
  kiln_.write("bad.json", "{]");
  EXPECT_EQ(kiln_.run({"doctor", "--compare", "bad.json"}).status, 2);
}

}  // namespace
}  // namespace kiln
