// The templates that the build put in, the program that put them there, and the page
// that says how to write more.

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

#include "render/catalog.h"
#include "render/prelude_file.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln::render {
namespace {

const std::filesystem::path kTemplates = test::paths::source("templates");

struct EmbedRun {
  int status = -1;
  std::string output;
};

EmbedRun embed(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::string command = std::string("'") + test::paths::kEmbed + "' '" +
                              from.string() + "' '" + to.string() + "' 2>&1";
  EmbedRun run;
  FILE* pipe = ::popen(command.c_str(), "r");  // NOLINT(cert-env33-c): our own program
  std::array<char, 512> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr)
    run.output += buffer.data();
  run.status = ::pclose(pipe);
  return run;
}

/// The fenced blocks of a page whose opening fence is "```" + `kind`.
std::vector<std::string> blocks(const std::string& page, const std::string& kind) {
  std::vector<std::string> out;
  std::istringstream lines(page);
  bool inside = false;
  bool wanted = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      wanted = inside && line == "```" + kind;
      if (wanted)
        out.emplace_back();
    } else if (wanted) {
      out.back() += line + "\n";
    }
  }
  return out;
}

TEST(EmbeddedTemplates, AreTheFilesAsTheyAre) {
  for (const EmbeddedFile& file : templates::embedded().files)
    EXPECT_EQ(*read_text_file(kTemplates / file.family / file.name, kMaxTextBytes),
              file.text);
}

TEST(EmbeddedTemplates, HaveAllPartsOfThePreludeWithTheirLines) {
  const std::string prelude(templates::embedded().prelude);
  std::size_t parts = 0;
  for (const auto& part : std::filesystem::directory_iterator(kTemplates / "prelude")) {
    const std::string name = "prelude/" + part.path().filename().string();
    EXPECT_THAT(prelude,
                HasSubstr("#line 1 \"" + name + "\"\n" +
                          *read_text_file(part.path(), kMaxTextBytes) + "#line "));
    ++parts;
  }
  EXPECT_GT(parts, 1U);
  EXPECT_THAT(prelude, testing::Not(HasSubstr("#include")));
}

TEST(EmbeddedTemplates, HaveTheDigestsOfTheirTexts) {
  const EmbeddedTemplates& all = templates::embedded();
  EXPECT_EQ(Digest::of(as_bytes(all.prelude)).hex(), all.prelude_sha256);
  for (const EmbeddedFile& file : all.files)
    EXPECT_EQ(Digest::of(as_bytes(file.text)).hex(), file.sha256) << file.name;
}

TEST(EmbeddedTemplates, AllOpenAndAllVariantsRender) {
  const auto catalog = TemplateCatalog::open(templates::embedded());
  ASSERT_TRUE(catalog) << catalog.error().message;
  std::size_t variants = 0;
  const auto kernels = catalog->kernels();
  ASSERT_TRUE(kernels) << kernels.error().message;
  for (const auto& kernel : *kernels) {
    variants += kernel->default_set().size();
    for (const CanonicalParameters& params : kernel->default_set())
      EXPECT_TRUE(kernel->render(params)) << kernel->name();
  }
  EXPECT_LE(variants, 250U) << "what warm --all builds for one architecture";
}

TEST(EmbeddedTemplates, AreReadAsTheFilesAre) {
  const auto built_in = TemplateCatalog::open(templates::embedded());
  const auto files = TemplateCatalog::open({.prelude = templates::embedded().prelude},
                                           std::vector{kTemplates});
  ASSERT_TRUE(built_in && files);
  ASSERT_EQ(built_in->names(), files->names());
  const auto names_of = [](const auto& all) {
    std::vector<std::string> names;
    for (const auto& one : all) names.push_back(one.name);
    return names;
  };
  for (const std::string& name : files->names()) {
    SCOPED_TRACE(name);
    const auto ours = built_in->find(name).value();
    const auto theirs = files->find(name).value();
    EXPECT_EQ(ours->summary(), theirs->summary());
    EXPECT_EQ(ours->entry_points(), theirs->entry_points());
    EXPECT_EQ(names_of(ours->parameters()), names_of(theirs->parameters()));
    EXPECT_EQ(names_of(ours->launch_arguments()), names_of(theirs->launch_arguments()));
    EXPECT_EQ(ours->digests(), theirs->digests());
    EXPECT_EQ(ours->quick_set(), theirs->quick_set());
    ASSERT_EQ(ours->default_set(), theirs->default_set());
    LaunchArguments arguments;
    for (const auto& argument : ours->launch_arguments()) arguments[argument.name] = 32;
    for (const CanonicalParameters& params : ours->default_set()) {
      EXPECT_EQ(ours->render(params)->text, theirs->render(params)->text);
      const auto geometry = ours->geometry(params, arguments).value();
      const auto expected = theirs->geometry(params, arguments).value();
      EXPECT_EQ(geometry.grid, expected.grid);
      EXPECT_EQ(geometry.block, expected.block);
      EXPECT_EQ(geometry.shared_bytes, expected.shared_bytes);
    }
  }
}

TEST(TemplatesReadme, ItsExampleIsATemplate) {
  const std::string page = *read_text_file(kTemplates / "README.md", kMaxTextBytes);
  const std::vector<std::string> toml = blocks(page, "toml");
  const std::vector<std::string> plain = blocks(page, "");
  ASSERT_FALSE(toml.empty());
  const test::TempDir dir;
  test::write_text(dir.path() / "scale/kernel.toml", toml.front());
  for (const std::string& text : plain) {
    if (text.starts_with("// scale.cu.mustache"))
      test::write_text(dir.path() / "scale/scale.cu.mustache", text);
  }
  const auto catalog = TemplateCatalog::open({"", {}}, std::vector{dir.path()});
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_EQ(catalog->names().size(), 2U);
}

TEST(KilnEmbed, StopsTheBuildWithFileAndLine) {
  const test::TempDir dir;
  const auto output = dir.path() / "out.cc";
  test::write_text(dir.path() / "t/scale/kernel.toml", test::kScaleToml);
  test::write_text(dir.path() / "t/scale/scale.cu.mustache", "a\n<%dtpye%>");
  const EmbedRun run = embed(dir.path() / "t", output);
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.output, HasSubstr("scale/scale.cu.mustache:2: unknown name 'dtpye'"));
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST(KilnEmbed, RefusesAnIncludeInABuiltInTemplate) {
  const test::TempDir dir;
  test::write_text(dir.path() / "t/scale/kernel.toml", test::kScaleToml);
  test::write_text(dir.path() / "t/scale/scale.cu.mustache",
                   "#include <cuda_fp16.h>\n");
  EXPECT_THAT(embed(dir.path() / "t", dir.path() / "out.cc").output,
              HasSubstr("includes nothing"));
}

TEST(KilnEmbed, EveryByteSurvives) {
  const test::TempDir dir;
  std::string text = "\"quotes\" \\ back ?\?= R\"(raw)\" \t\r\n";
  for (int c = 1; c < 256; ++c) text += static_cast<char>(c) + std::string("7a");
  test::write_text(dir.path() / "t/prelude.cuh", "// p\n");
  test::write_text(dir.path() / "t/scale/kernel.toml", test::kScaleToml);
  test::write_text(dir.path() / "t/scale/scale.cu.mustache", text);
  const EmbedRun run = embed(dir.path() / "t", dir.path() / "out.cc");
  ASSERT_EQ(run.status, 0) << run.output;
  // Read the generated literals back by the rules of C++.
  const std::string source = *read_text_file(dir.path() / "out.cc", 1U << 24U);
  std::string plain;
  bool inside = false;
  for (std::size_t i = source.find("kFiles{{"); i < source.size(); ++i) {
    if (!inside || source[i] == '"') {
      inside = inside != (source[i] == '"');
    } else if (source[i] != '\\') {
      plain += source[i];
    } else if (source[i + 1] >= '0' && source[i + 1] <= '7') {
      plain += static_cast<char>(std::stoi(source.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      ++i;
      plain += source[i] == 'n' ? '\n' : source[i];
    }
  }
  EXPECT_THAT(plain, HasSubstr(text));
}

class KilnEmbedPrelude : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    test::write_text(dir_.path() / "t" / name, text);
  }
  [[nodiscard]] EmbedRun run() const {
    return embed(dir_.path() / "t", dir_.path() / "out.cc");
  }

  const test::TempDir dir_;
};

TEST_F(KilnEmbedPrelude, HasItsPartsInPlaceOfTheirIncludes) {
  write("prelude.cuh",
        "// entry\n#include \"prelude/a.cuh\"\n// between\n#include \"prelude/b.cuh\"");
  write("prelude/a.cuh", "int a;\n");
  write("prelude/b.cuh", "int b;");
  ASSERT_EQ(run().status, 0) << run().output;
  EXPECT_EQ(read_prelude(dir_.path() / "t").value(),
            "// entry\n#line 1 \"prelude/a.cuh\"\nint a;\n#line 3 \"prelude.cuh\"\n"
            "// between\n#line 1 \"prelude/b.cuh\"\nint b;\n#line 5 "
            "\"prelude.cuh\"\n");
}

TEST_F(KilnEmbedPrelude, RefusesWhatItsIncludesCannotMean) {
  write("prelude/a.cuh", "int a;\n");
  const auto refusal = [&](const std::string& entry) {
    write("prelude.cuh", entry);
    const EmbedRun done = run();
    EXPECT_NE(done.status, 0) << entry;
    return done.output;
  };
  EXPECT_THAT(refusal("\n#include \"prelude/b.cuh\"\n"),
              HasSubstr("/t/prelude.cuh:2: there is no 'prelude/b.cuh'"));
  EXPECT_THAT(refusal("#include \"prelude/a.cuh\"\n\n#include \"prelude/a.cuh\"\n"),
              HasSubstr("/t/prelude.cuh:3: 'prelude/a.cuh' is included twice"));
  for (const char* const other :
       {"#include <a.h>\n", "#include \"prelude/../a.cuh\"\n", " # include \"a.cuh\"\n",
        "#include \"prelude/.cuh\"\n", "#include \"prelude/a.cuh\" // a\n"})
    EXPECT_THAT(
        refusal(other),
        HasSubstr("/t/prelude.cuh:1: the prelude includes its own parts alone"));
  write("prelude/a.cuh", "\n#include \"prelude/b.cuh\"\n");
  EXPECT_THAT(refusal("#include \"prelude/a.cuh\"\n"),
              HasSubstr("/t/prelude/a.cuh:2: a part of the prelude includes nothing"));
  write("prelude/a.cuh", "\n\n<%dtype%>\n");
  EXPECT_THAT(refusal("#include \"prelude/a.cuh\"\n"),
              HasSubstr("/t/prelude/a.cuh:3: the prelude is plain text"));
}

TEST(KilnEmbed, NoFamilyAtAllIsNoError) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir.path() / "t");
  const EmbedRun run = embed(dir.path() / "t", dir.path() / "out.cc");
  EXPECT_EQ(run.status, 0) << run.output;
}

}  // namespace
}  // namespace kiln::render
