// kiln why: the fields in which two keys differ, and why requests miss.

#include <fmt/format.h>

#include <set>
#include <string>

#include "tests/integration/program_inspect.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

TEST_F(ProgramInspectTest, WhyNamesExactlyTheFieldThatDiffers) {
  const json report = warm("tiny_fwd:dtype=bf16", "9.0");
  const std::string a = report["entries"][0]["key"];
  const std::string b = report["entries"][1]["key"];
  const json why = kiln_.json_of({"why", a.substr(0, 10), b});
  EXPECT_EQ(why["same"], false);
  EXPECT_EQ(why["key"], a);
  EXPECT_EQ(why["nearest"], b);
  ASSERT_THAT(why["differences"], SizeIs(1));
  EXPECT_THAT(why["differences"][0]["field"].get<std::string>(), HasSubstr("wide"));
  EXPECT_THAT(std::vector({why["differences"][0]["a"].get<std::string>(),
                           why["differences"][0]["b"].get<std::string>()}),
              UnorderedElementsAre("false", "true"));
  EXPECT_EQ(kiln_.json_of({"why", a, a})["same"], true);
  const std::string other = one("tiny_fwd:dtype=bf16,wide=false", "8.0");
  const json arch =
      kiln_.json_of({"why", one("tiny_fwd:dtype=bf16,wide=false", "9.0"), other});
  ASSERT_THAT(arch["differences"], SizeIs(1));
  EXPECT_EQ(arch["differences"][0]["a"], "sm_90");
  EXPECT_EQ(arch["differences"][0]["b"], "sm_80");
}

TEST_F(ProgramInspectTest, WhySaysWhetherARequestHitsAndWhatIsNearest) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=false");
  const Arguments request{"why", "--arch", "9.0", "--template"};
  auto hit = request;
  hit.emplace_back("tiny_fwd:dtype=bf16,wide=false");
  EXPECT_EQ(kiln_.json_of(hit)["same"], true);
  EXPECT_THAT(kiln_.run(hit).out, HasSubstr("a hit"));
  auto miss = request;
  miss.emplace_back("tiny_fwd:dtype=f16,wide=false");
  const json why = kiln_.json_of(miss, 1);
  EXPECT_EQ(why["same"], false);
  EXPECT_EQ(why["nearest"], key);
  ASSERT_THAT(why["differences"], SizeIs(1));
  EXPECT_EQ(why["differences"][0]["a"], "f16");
  EXPECT_EQ(why["differences"][0]["b"], "bf16");
  EXPECT_THAT(kiln_.run(miss).out, HasSubstr("a miss"));
  kiln_.run({"clear", "--all", "--yes"});
  EXPECT_TRUE(kiln_.json_of(miss, 1)["nearest"].is_null());
}

TEST_F(ProgramInspectTest, WhyMeansByItsWordsWhatWarmBuildsForThem) {
  const std::string key = one("tiny_fwd:dtype=bf16,wide=false");
  for (const char* words : {"tiny_fwd:dtype=bf16", "tiny_fwd", "tiny"}) {
    const Arguments flags{"--template", words, "--arch", "9.0"};
    const json why = kiln_.json_of(Arguments{"why"} + flags, 1);
    std::set<std::string> asked;
    std::set<std::string> missing;
    for (const json& each : why["requests"]) {
      asked.insert(each["key"]);
      if (!each["same"].get<bool>())
        missing.insert(each["key"]);
    }
    std::set<std::string> built;
    const json dry = kiln_.json_of(Arguments{"warm", "--dry-run"} + flags);
    for (const json& each : dry["entries"]) {
      built.insert(each["key"]);
      EXPECT_EQ(missing.contains(each["key"]), each["outcome"] == "missing");
    }
    EXPECT_EQ(asked, built) << words;
    EXPECT_THAT(
        kiln_.run(Arguments{"why"} + flags).out,
        AllOf(HasSubstr(fmt::format("{} is {} kernels", words, built.size())),
              HasSubstr(fmt::format("1 in the cache, {} miss", missing.size()))));
  }
  // What a program gets by the same words comes first: the defaults.
  EXPECT_EQ(kiln_.json_of({"why", "--template", "tiny_fwd:dtype=bf16", "--arch", "9.0"},
                          1)["key"],
            key);
}

TEST_F(ProgramInspectTest, WhyExplainsASourceAndAManifest) {
  const std::string source = kiln_.write("scale.cu", std::string(test::kTinySource));
  ASSERT_EQ(kiln_.run({"compile", source, "--arch", "9.0"}).status, 0);
  EXPECT_EQ(kiln_.run({"why", source, "--arch", "9.0"}).status, 0);
  const json miss = kiln_.json_of({"why", source, "--arch", "9.0", "-D", "N=4"}, 1);
  ASSERT_THAT(miss["differences"], SizeIs(1));
  EXPECT_EQ(miss["differences"][0]["field"], "macro");
  EXPECT_EQ(kiln_.json_of({"why", source, "--arch", "8.0,9.0"}, 1)["requests"].size(),
            2U);
  // Of another file of the cache nothing is compared where there is one of its name.
  const std::string other = kiln_.write("other.cu", "__global__ void other() {}");
  ASSERT_EQ(kiln_.run({"compile", other, "--arch", "9.0"}).status, 0);
  EXPECT_EQ(
      kiln_.json_of({"why", source, "--arch", "9.0", "--std", "c++20"}, 1)["nearest"],
      kiln_.json_of({"ls", "--file", "scale.cu"})["entries"][0]["key"]);
  json line{{"source", test::kTinySource}, {"file", "scale.cu"}};
  const std::string hits = line.dump() + "\n";
  line["defines"] = {"N=4"};
  const std::string manifest = kiln_.write("m.jsonl", hits + line.dump() + "\n");
  const json lines = kiln_.json_of({"why", "--manifest", manifest, "--arch", "9.0"}, 1);
  EXPECT_EQ(lines["requests"][0]["same"], true);
  EXPECT_EQ(lines["requests"][1]["differences"], miss["differences"]);
  for (const Arguments& wrong :
       {Arguments{"why", "none.cu", "--arch", "9.0"},
        Arguments{"why", source, "abcdef"},
        Arguments{"why", source, "--manifest", manifest, "--arch", "9.0"},
        Arguments{"why", "--manifest", "none", "--arch", "9.0"}})
    EXPECT_EQ(kiln_.run(wrong).status, 2) << fmt::format("{}", fmt::join(wrong, " "));
}

TEST_F(ProgramInspectTest, WhyShowsTheFirstChangedLineOfAHeaderInMemory) {
  const auto manifest = [&](const std::string& header) {
    const json line{{"source", std::string("#include \"x.h\"\n") + test::kTinySource},
                    {"file", "k.cu"},
                    {"headers", {{"x.h", header}}}};
    return kiln_.write("m.jsonl", line.dump() + "\n");
  };
  const auto warmed = [&](const std::string& header) -> std::string {
    return kiln_.json_of(
        {"warm", "--manifest", manifest(header), "--arch", "9.0"})["entries"][0]["key"];
  };
  const auto expect_lines = [](const json& why) {
    ASSERT_THAT(why["differences"], SizeIs(1));
    const json& only = why["differences"][0];
    EXPECT_EQ(only["field"], "memory_header/x.h");
    EXPECT_THAT(only["a"].get<std::string>(), HasSubstr(", line 3: #define N 3"));
    EXPECT_THAT(only["b"].get<std::string>(), HasSubstr(", line 3: #define N 4"));
  };
  const std::string three = "// x\n\n#define N 3\n";
  const std::string four = "// x\n\n#define N 4\n";
  const std::string b = warmed(four);
  const Arguments request{"why", "--manifest", manifest(three), "--arch", "9.0"};
  expect_lines(kiln_.json_of(request, 1));
  const std::string a = warmed(three);
  expect_lines(kiln_.json_of({"why", a, b}));
  EXPECT_THAT(kiln_.run({"why", a, b}).out, HasSubstr("line 3: #define N 3"));

  EXPECT_EQ(kiln_.run({"show", a, "--source"}).out,
            std::string("#include \"x.h\"\n") + test::kTinySource);
  EXPECT_EQ(kiln_.json_of({"show", a, "--source"})["source"],
            kiln_.run({"show", a, "--source"}).out);
  EXPECT_EQ(kiln_.json_of({"verify"})["corrupt"].size(), 0U);
  const std::string pack = kiln_.folder() / "p.kpack";
  ASSERT_EQ(kiln_.run({"pack", "-o", pack}).status, 0);
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  ASSERT_EQ(kiln_.json_of({"unpack", pack})["stored"], 2);
  expect_lines(kiln_.json_of({"why", a, b}));

  const std::string much = "//" + std::string(std::size_t{256} << 10U, 'x') + "\n";
  const json large = kiln_.json_of({"why", warmed(much + three), warmed(much + four)});
  EXPECT_THAT(large["differences"][0]["a"].get<std::string>(), SizeIs(64));
  EXPECT_THAT(large["differences"][0]["b"].get<std::string>(), SizeIs(64));
}

TEST_F(ProgramInspectTest, WhyOfTwoKeysComparesWhatWasBuilt) {
  const std::string source = kiln_.write("k.cu", std::string(test::kTinySource));
  const std::string a = kiln_.compiled(test::kTinySource);
  const std::string b = kiln_.compiled(test::kTinySource, "9.0", {"--option", "-G"});
  const json why = kiln_.json_of({"why", a, b});
  ASSERT_THAT(why["entries"], SizeIs(2));
  EXPECT_EQ(why["entries"][0]["key"], a);
  EXPECT_TRUE(why["entries"][1]["registers"].is_number());
}

TEST_F(ProgramInspectTest, SourcesAreListedClearedAndPackedByNameAndFile) {
  const auto listed = [&](const Arguments& filter) {
    return kiln_.json_of(Arguments{"ls"} + filter)["entries"].size();
  };
  for (const char* const name : {"one.cu", "two.cu"})
    ASSERT_EQ(
        kiln_.run({"compile", kiln_.write(name, test::kTinySource), "--arch", "9.0"})
            .status,
        0);
  one("tiny_fwd:dtype=bf16,wide=false");
  const json entry = kiln_.json_of({"ls", "--file", "one.cu"})["entries"][0];
  const std::string kernel = entry["entry_points"][0]["name"];
  EXPECT_EQ(entry["name"], "one.cu: " + kernel);
  EXPECT_TRUE(entry["template"].is_null());
  EXPECT_EQ(listed({"--file", "*.cu"}), 2U);
  EXPECT_EQ(listed({"--file", "one.cu", "--file", "two.cu"}), 2U);
  EXPECT_EQ(listed({"--name", kernel}), 2U);
  EXPECT_EQ(listed({"--name", kernel, "--file", "one.cu"}), 1U);
  EXPECT_EQ(listed({"--name", "tiny_*"}), 1U);
  EXPECT_EQ(listed({"--name", kernel, "--limit", "1"}), 1U);
  EXPECT_EQ(listed({"--name", "none"}), 0U);
  EXPECT_EQ(listed({"--file", "*"}), 2U) << "a template has no file";
  EXPECT_EQ(kiln_.json_of({"verify", "--file", "one.cu"})["checked"], 1);
  EXPECT_EQ(kiln_.json_of({"pack", "-o", "p.kpack", "--file", "*.cu"})["objects"], 2);
  EXPECT_EQ(
      kiln_.run({"pack", "-o", "q.kpack", "--file", "a.cu", "--quick", "--arch", "9.0"})
          .status,
      2);
  for (const auto& [words, status] :
       std::vector<std::pair<Arguments, int>>{{{"ls"}, 0},
                                              {{"verify"}, 0},
                                              {{"clear", "--yes"}, 0},
                                              {{"clear", "--dry-run", "--json"}, 0},
                                              {{"pack", "-o", "r.kpack"}, 1}}) {
    const auto done = kiln_.run(words + Arguments{"--name", "none"});
    EXPECT_EQ(done.status, status) << done.text();
    EXPECT_THAT(done.err, HasSubstr("cache has nothing that matches")) << words[0];
    EXPECT_THAT(kiln_.run(words + Arguments{"--name", kernel, "--name", "none"}).err,
                Not(HasSubstr("nothing")))
        << words[0];
    if (words == Arguments{"clear", "--yes"}) {
      ASSERT_EQ(kiln_.run({"unpack", "p.kpack"}).status, 0);
    }
  }
  EXPECT_EQ(kiln_.json_of({"clear", "--file", "one.cu", "--yes"})["removed"], 1);
  EXPECT_EQ(listed({}), 2U);
}

}  // namespace
}  // namespace kiln
