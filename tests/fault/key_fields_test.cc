// Row 34: whatever is changed of what determines a build, the key is another one. Not
// only than before: than after any other change as well.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/fault/campaign.h"
#include "tests/support/key_changes.h"
#include "tests/support/program.h"

namespace kiln {
namespace {

template <typename Inputs>
void expect_all_differ(const std::vector<test::KeyChange<Inputs>>& changes) {
  test::Campaign campaign;
  std::map<Digest, std::string> keys{{Inputs().key(), "nothing"}};
  for (const auto& [name, change] : changes) {
    Inputs changed;
    change(changed);
    campaign.injected();
    const auto [other, is_new] = keys.emplace(changed.key(), name);
    if (!is_new)
      campaign.wrong(std::string(name) + " and " + other->second + " make one key");
  }
}

TEST(KeyFieldsTest, fault_34_EachFieldOfASourceMakesANewKey) {
  expect_all_differ(test::kSourceKeyChanges);
}

TEST(KeyFieldsTest, fault_34_EachFieldOfATemplateMakesANewKey) {
  expect_all_differ(test::kTemplateKeyChanges);
}

/// The program as it is called: each line is another build than every other.
class KeyOfCommandTest : public test::CampaignTest {
 protected:
  KeyOfCommandTest() {
    kiln_.use_fake_nvrtc();
    source_ = kiln_.write("k.cu", kText);
    other_ = kiln_.write("other.cu", std::string(kText) + " ");
    for (const char* version : {"one", "two"})
      kiln_.write(std::string(version) + "/n.h",
                  std::string("#define N ") + version + "\n");
    with_header_ = kiln_.write("h.cu", std::string("#include \"n.h\"\n") + kText);
  }

  static constexpr const char* kText =
      "template <typename T> __global__ void k(T* x) {}\n"
      "extern \"C\" __global__ void one(int* x) {}\n";

  [[nodiscard]] std::string key_of(Arguments arguments) {
    const auto report = kiln_.json_of(std::move(arguments));
    return report.is_null() ? "" : report["entries"][0]["key"].get<std::string>();
  }

  test::KilnProgram kiln_;
  std::string source_;
  std::string other_;
  std::string with_header_;
};

TEST_F(KeyOfCommandTest, fault_34_EachCommandMakesANewKey) {
  const std::string one = kiln_.folder() / "one";
  const std::string two = kiln_.folder() / "two";
  const std::vector<Arguments> table{
      {source_, "--arch", "9.0"},
      {source_, "--arch", "9.0a"},
      {source_, "--arch", "8.9"},
      {source_, "--arch", "10.0"},
      {source_, "--arch", "10.0a"},
      {source_, "--arch", "10.0f"},
      {other_, "--arch", "9.0"},
      {source_, "--arch", "9.0", "-D", "A", "-D", "B"},
      {source_, "--arch", "9.0", "-D", "A-DB"},
      {source_, "--arch", "9.0", "-D", "A -DB"},
      {source_, "--arch", "9.0", "-D", "A"},
      {source_, "--arch", "9.0", "-D", "A="},
      {source_, "--arch", "9.0", "-D", "A=2"},
      {source_, "--arch", "9.0", "-D", "AB"},
      {source_, "--arch", "9.0", "--option", "--use_fast_math"},
      {source_, "--arch", "9.0", "--option", "--maxrregcount=32"},
      {source_, "--arch", "9.0", "--option", "--maxrregcount=64"},
      {source_, "--arch", "9.0", "--option", "--maxrregcount=32", "--option",
       "--use_fast_math"},
      {source_, "--arch", "9.0", "--option", "--use_fast_math", "--option",
       "--maxrregcount=32"},
      {source_, "--arch", "9.0", "--name", "k<int>"},
      {source_, "--arch", "9.0", "--name", "k<float>"},
      {source_, "--arch", "9.0", "--name", "k<int>", "--name", "k<float>"},
      {with_header_, "--arch", "9.0", "-I", one},
      {with_header_, "--arch", "9.0", "-I", two},
  };
  std::map<std::string, std::size_t> keys;
  for (std::size_t i = 0; i < table.size(); ++i) {
    Arguments words{"compile"};
    words.insert(words.end(), table[i].begin(), table[i].end());
    campaign_.injected();
    const auto [other, is_new] = keys.emplace(key_of(words), i);
    if (!is_new)
      campaign_.wrong("lines " + std::to_string(other->second) + " and " +
                      std::to_string(i) + " of the table make one key");
  }
  EXPECT_FALSE(keys.contains(""));
}

TEST_F(KeyOfCommandTest, fault_34_EachParameterOfATemplateMakesANewKey) {
  const std::string templates = test::write_tiny_templates(kiln_);
  const auto report =
      kiln_.json_of({"warm", "--template-dir", templates, "--template", "tiny_fwd",
                     "--template", "tiny_bwd", "--arch", "8.0,9.0,9.0a"});
  std::map<std::string, std::string> keys;
  for (const auto& entry : report["entries"]) {
    campaign_.injected();
    const auto [other, is_new] = keys.emplace(entry["key"], entry.dump());
    if (!is_new)
      campaign_.wrong(other->second + " and " + entry.dump() + " have one key");
  }
  EXPECT_EQ(keys.size(), 36U);
}

}  // namespace
}  // namespace kiln
