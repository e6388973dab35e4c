// Presets: what a file may say, and which kernels it asks for.

#include "ops/preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "render/catalog.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops {
namespace {

constexpr std::string_view kSmall = R"(schema = 1
source = "here"
dtype = "bf16"
[attention]
heads = 8
kv_heads = 2
head_dim = 64
sequence = 100
mask = "causal"
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kSmall);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refused(const std::string& text) {
  return refusal(parse_preset(text, "small", "small.toml"));
}

Device device(ComputeCapability capability, int multiprocessors = 0) {
  return {.capability = capability, .multiprocessors = multiprocessors};
}

/// "kernel p=v q=w" of each launch.
std::set<std::string> kernels_of(const Preset& preset, const Device& on) {
  std::set<std::string> names;
  const Launches launches = launches_of(preset, on).value();
  for (const Launch& launch : launches) {
    std::string name = launch.kernel;
    for (const auto& [parameter, value] : launch.parameters)
      name += fmt::format(" {}={}", parameter, value);
    names.insert(std::move(name));
  }
  return names;
}

TEST(Preset, ReadsWhatAFileSays) {
  const Preset preset =
      parse_preset(std::string(kSmall), "small", "small.toml").value();
  EXPECT_EQ(preset.name, "small");
  EXPECT_EQ(preset.source, "here");
  EXPECT_EQ(preset.dtype, DType::kBf16);
  EXPECT_EQ(preset.attention->heads, 8);
  EXPECT_EQ(preset.attention->mask, SoftmaxMask::kCausal);
}

TEST(Preset, NamesFileLineAndNearestWordOfAMistake) {
  EXPECT_EQ(refused(with("heads = 8", "haeds = 8")),
            "small.toml:5: unknown key 'haeds' in [attention], did you mean 'heads'?");
  EXPECT_THAT(refused(with("\"causal\"", "\"casual\"")),
              AllOf(HasSubstr("small.toml:4: [attention]: 'mask': 'casual'"),
                    HasSubstr("did you mean 'causal'?")));
  EXPECT_THAT(refused(with("\"bf16\"", "\"fp16\"")), HasSubstr("'dtype': 'fp16'"));
  EXPECT_THAT(refused(with("schema = 1", "schema = 2")), HasSubstr("'schema'"));
  EXPECT_THAT(refused("schema = "), HasSubstr("small.toml:1: "));
}

TEST(Preset, RefusesWhatIsNoSizeAndWhatIsMissing) {
  for (const char* const wrong : {"0", "-1", "4294967296", "1.5", "\"8\""})
    EXPECT_THAT(refused(with("heads = 8", fmt::format("heads = {}", wrong))),
                HasSubstr("'heads'"))
        << wrong;
  EXPECT_THAT(refused(with("sequence = 100\n", "")),
              HasSubstr("[attention]: 'sequence' is missing"));
  EXPECT_THAT(refused("schema = 1\nsource = \"x\"\ndtype = \"f16\"\n"),
              HasSubstr("it asks for no kernel"));
}

TEST(Preset, IsFoundByItsNameOrReadFromAFileOfOnesOwn) {
  EXPECT_EQ(find_preset("llama-3-8b").value().attention->kv_heads, 8);
  const test::TempDir temp;
  const std::filesystem::path file = temp.path() / "mine.toml";
  std::ofstream(file) << kSmall;
  EXPECT_EQ(find_preset(file).value().name, "mine");
  const auto unknown = find_preset("llama-3-8");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, AllOf(HasSubstr("did you mean 'llama-3-8b'?"),
                                             HasSubstr("gpt-neox-20b")));
  EXPECT_EQ(find_preset(temp.path() / "none.toml").error().code, ErrorCode::kNotFound);
}

class BuiltIn : public testing::TestWithParam<BuiltInPreset> {
 protected:
  static Preset preset() { return find_preset(std::string(GetParam().name)).value(); }
};

INSTANTIATE_TEST_SUITE_P(Presets, BuiltIn,
                         testing::ValuesIn(built_in_presets().begin(),
                                           built_in_presets().end()),
                         [](const auto& each) {
                           std::string name(each.param.name);
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST_P(BuiltIn, AsksForKernelsThatThereAreWithParametersThatTheyTake) {
  const auto catalog = render::TemplateCatalog::open(templates::embedded(), {}).value();
  Launches launches = launches_of(preset(), device({9, 0})).value();
  Launches attention = attention_launches_of(preset(), device({9, 0})).value();
  EXPECT_EQ(attention.empty(), !preset().attention);
  std::ranges::move(attention, std::back_inserter(launches));
  EXPECT_FALSE(launches.empty());
  for (const Launch& launch : launches) {
    const auto kernel = catalog.find(launch.kernel);
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto params = (*kernel)->canonical(launch.parameters);
    ASSERT_TRUE(params) << params.error().message;
    const auto geometry = (*kernel)->geometry(*params, launch.extents, launch.entry);
    EXPECT_TRUE(geometry) << geometry.error().message;
  }
}

// What is warmed with no device at hand is what a job asks for.
TEST_P(BuiltIn, AsksForTheSameKernelsWhateverTheNumberOfMultiprocessors) {
  const auto without = kernels_of(preset(), device({9, 0}));
  for (const int multiprocessors : {1, 24, 132, 300})
    EXPECT_EQ(kernels_of(preset(), device({9, 0}, multiprocessors)), without);
}

TEST_P(BuiltIn, SaysWhereItsSizesWerePublished) {
  EXPECT_THAT(preset().source, HasSubstr("arXiv:"));
}

// The sizes as the models' own configurations have them, written down once more.
TEST(BuiltIns, HaveThePublishedSizes) {
  struct Published {
    const char* name;
    std::int64_t heads, kv_heads, head_dim, hidden, width, vocabulary;
  };
  std::size_t seen = 0;
  for (const Published& of :
       {Published{"deepseek-v3", 128, 128, 192, 7168, 18432, 129280},
        {"gemma-2-9b", 16, 8, 256, 3584, 14336, 256000},
        {"gpt-neox-20b", 64, 64, 96, 6144, 24576, 50432},
        {"llama-3-405b", 128, 8, 128, 16384, 53248, 128256},
        {"llama-3-70b", 64, 8, 128, 8192, 28672, 128256},
        {"llama-3-8b", 32, 8, 128, 4096, 14336, 128256},
        {"mixtral-8x7b", 32, 8, 128, 4096, 14336, 32000},
        {"qwen-2.5-7b", 28, 4, 128, 3584, 18944, 152064}}) {
    const Preset preset = find_preset(of.name).value();
    EXPECT_EQ(preset.attention->heads, of.heads) << of.name;
    EXPECT_EQ(preset.attention->kv_heads, of.kv_heads) << of.name;
    EXPECT_EQ(preset.attention->head_dim, of.head_dim) << of.name;
    EXPECT_EQ(preset.norm->lengths.at(0), of.hidden) << of.name;
    EXPECT_EQ(preset.activation->widths.at(0), of.width) << of.name;
    EXPECT_EQ(preset.vocabulary, of.vocabulary) << of.name;
    ++seen;
  }
  EXPECT_EQ(seen, built_in_presets().size());
}

/// Of a file that asks for one norm and one activation as well.
std::set<std::string> kernels_with(const std::string& norm,
                                   const std::string& activation) {
  const auto preset = parse_preset(
      std::string(kSmall) + "[rope]\nstyle = \"half\"\ndim = 64\n[norm]\n" + norm +
          "\nlengths = [512]\n[activation]\n" + activation +
          "\nwidths = [512]\n[loss]\nvocabulary = 100\n",
      "small", "small.toml");
  EXPECT_TRUE(preset) << preset.error().message;
  return kernels_of(*preset, device({9, 0}));
}

TEST(Preset, AsksForEachTableThatFrameworksKeepAndForTheLossInOneAndInTwoPasses) {
  const auto kernels = kernels_with("kind = \"layernorm\"", "kind = \"swiglu\"");
  for (const char* const name :
       {"rope_fwd dtype=bf16 style=half table=angles",
        "rope_bwd dtype=bf16 style=half table=cos_sin",
        "rope_fwd dtype=bf16 style=half table=cos_sin_f32",
        "cross_entropy_fwd dtype=bf16 gradient=true",
        "cross_entropy_fwd dtype=bf16 gradient=false", "cross_entropy_bwd dtype=bf16"})
    EXPECT_TRUE(kernels.contains(name)) << name;
}

TEST(Preset, AsksForWeightsOfFloatAndOfExperts) {
  const auto plain = kernels_with("kind = \"rmsnorm\"", "kind = \"clamped_swiglu\"");
  const auto weighted = kernels_with("kind = \"rmsnorm\"\nweight_dtype = \"f32\"",
                                     "kind = \"clamped_swiglu\"\nweighted = true");
  const auto count = [](const std::set<std::string>& kernels, std::string_view word) {
    return std::ranges::count_if(kernels, [&](const std::string& kernel) {
      return kernel.find(word) != kernel.npos;
    });
  };
  EXPECT_EQ(count(plain, "clamped_swiglu"), 2);
  EXPECT_EQ(count(weighted, "clamped_swiglu"), 4);
  EXPECT_EQ(count(plain, "weight_dtype=f32"), 0);
  EXPECT_EQ(count(weighted, "weight_dtype=f32"), 2);
}

TEST(Preset, AsksForNormsWithoutAWeightAndForGradientsFromTheOutput) {
  for (const std::string kind : {"layernorm", "rmsnorm"}) {
    const auto kernels =
        kernels_with("kind = \"" + kind + "\"\nweight = false\nfrom_output = true",
                     "kind = \"swiglu\"");
    const auto has = [&](const std::string& name, std::string_view word) {
      return std::ranges::any_of(kernels, [&](const std::string& kernel) {
        return kernel.starts_with(name) && kernel.find(word) != kernel.npos;
      });
    };
    EXPECT_TRUE(has(kind + "_fwd", " weight=false")) << kind;
    EXPECT_TRUE(has(kind + "_bwd", " weight=false")) << kind;
    EXPECT_TRUE(has(kind + "_bwd", " from_output=true")) << kind;
    EXPECT_FALSE(has(kind, " weight=true")) << kind;
  }
}

TEST(Preset, RefusesWeightsOfWhatHasNone) {
  const auto refused_activation = [](const std::string& activation) {
    return refused(std::string(kSmall) + "[activation]\nwidths = [8]\n" + activation);
  };
  EXPECT_THAT(refused_activation("kind = \"gelu_erf\"\nweighted = true\n"),
              HasSubstr("'weighted' is for gated kinds without a bias"));
  EXPECT_THAT(refused_activation("kind = \"swiglu\"\nbias = true\nweighted = true\n"),
              HasSubstr("'weighted' is for gated kinds without a bias"));
}

}  // namespace
}  // namespace kiln::ops
