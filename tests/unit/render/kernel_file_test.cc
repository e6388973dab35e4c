// What kernel.toml may not say: each rule of templates/README.md broken once.

#include <ostream>
#include <string>

#include "tests/support/temp_dir.h"
#include "tests/support/template_family.h"
#include "tests/support/test.h"

namespace kiln::render {
namespace {

std::string error_of(std::string_view from, std::string_view to) {
  test::BuiltIn family;
  family.toml = test::replaced(family.toml, from, to);
  // As a user's folder, so that every variant is tried.
  const test::TempDir dir;
  test::write_text(dir.path() / "scale/kernel.toml", family.toml);
  test::write_text(dir.path() / "scale/scale.cu.mustache", family.text);
  const auto catalog = TemplateCatalog::open({"", {}}, std::vector{dir.path()});
  if (catalog)
    return "";
  return test::replaced(catalog.error().message, dir.path().string() + "/scale/", "");
}

struct BadToml {
  const char* from;
  const char* to;
  const char* line;
  const char* reason;
};

void PrintTo(const BadToml& test, std::ostream* out) {
  *out << test.reason;
}

class KernelFileRefuses : public testing::TestWithParam<BadToml> {};

TEST_P(KernelFileRefuses, WithFileLineAndReason) {
  EXPECT_THAT(error_of(GetParam().from, GetParam().to),
              AllOf(StartsWith(std::string("kernel.toml:") + GetParam().line),
                    HasSubstr(GetParam().reason)));
}

INSTANTIATE_TEST_SUITE_P(
    Form, KernelFileRefuses,
    testing::Values(
        BadToml{"schema = 1", "schema = ", "1:", "parsing"},
        BadToml{"schema = 1", "schema = 2", "1:", "schema 2 is not known"},
        BadToml{"schema = 1", "", "", "'schema' is missing"},
        BadToml{"schema = 1", "schema = \"1\"", "1:", "must be an integer"},
        BadToml{"schema = 1", "schema = 1\nsuorce = \"x\"", "2:",
                "unknown key 'suorce' in the top of the file, did you mean 'source'?"},
        BadToml{"required = true", "requierd = true", "7:", "did you mean 'required'?"},
        BadToml{"summary = \"y", "sumary = \"y", "", "did you mean 'summary'?"},
        BadToml{"quick = [", "qiuck = [", "62:", "did you mean 'quick'?"},
        BadToml{"minimum = \"7.5\"", "minimum = \"7.5\"\nminmum = 1",
                "40:", "unknown key 'minmum' in [targets]"},
        BadToml{"block = [128]", "block = [128]\nblocks = 1", "",
                "unknown key 'blocks'"},
        BadToml{"[[kernel]]", "[[kernels]]", "", "unknown key 'kernels'"},
        BadToml{"source = \"scale.cu.mustache\"", "", "", "'source' is missing"},
        BadToml{"\"scale.cu.mustache\"", "\"../scale.cu.mustache\"", "", "beside"},
        BadToml{"\"scale.cu.mustache\"", "\"scale.cu\"", "", "beside"},
        BadToml{"\"scale.cu.mustache\"", "[]", "2:", "'source' has 1 to 8 files"},
        BadToml{"\"scale.cu.mustache\"",
                "[\"1.cu.mustache\", \"2.cu.mustache\", \"3.cu.mustache\",\n"
                "\"4.cu.mustache\", \"5.cu.mustache\", \"6.cu.mustache\",\n"
                "\"7.cu.mustache\", \"8.cu.mustache\", \"9.cu.mustache\"]",
                "2:", "'source' has 1 to 8 files"},
        BadToml{"\"scale.cu.mustache\"",
                "[\"scale.cu.mustache\", \"a.cu.mustache\", \"scale.cu.mustache\"]",
                "2:", "source 'scale.cu.mustache' is given twice"},
        BadToml{"\"scale.cu.mustache\"", "[\"scale.cu.mustache\", \"a/b.cu.mustache\"]",
                "2:", "source 'a/b.cu.mustache' must be the name of"},
        BadToml{"\"scale.cu.mustache\"",
                "[\"scale.cu.mustache\", \"a\\u0000.cu.mustache\"]",
                "2:", "must be the name of"},
        BadToml{"\"scale.cu.mustache\"", "[\"scale.cu.mustache\", 1]",
                "2:", "'source' must be a list of strings"},
        BadToml{"\"scale.cu.mustache\"", "1", "2:", "'source' must be a string"},
        BadToml{"name = \"scale_fwd\"", "name = \"Scale\"", "", "kernel's name"},
        BadToml{"name = \"scale_fwd\"", "name = \"scale\\u0000fwd\"", "", "NUL"},
        BadToml{"summary = \"y = scale * x\"", "summary = \"a\\nb\"", "", "one line"},
        BadToml{"\"scale_bwd_finalize\"]", "\"scale_bwd\"]", "", "given twice"},
        BadToml{"\"scale_bwd_finalize\"]", "\"a-b\"]", "", "no C identifier"}));

INSTANTIATE_TEST_SUITE_P(
    Parameters, KernelFileRefuses,
    testing::Values(
        BadToml{"type = \"enum\"", "type = \"enumm\"",
                "4:", "type 'enumm' is not known"},
        BadToml{"[\"f16\", \"bf16\", \"f32\"]", "[]", "4:", "1 to 64 values"},
        BadToml{"[\"f16\", \"bf16\", \"f32\"]", "[\"f16\", \"f16\"]", "6:", "twice"},
        BadToml{"[\"f16\", \"bf16\", \"f32\"]", "[\"F16\"]",
                "6:", "words in lower-case"},
        BadToml{"[32, 64, 128, \"any\"]", "[-32, \"any\"]", "12:", "integers from 0"},
        BadToml{"[32, 64, 128, \"any\"]", "[1.5, \"any\"]", "12:", "integers from 0"},
        BadToml{"required = true", "required = true\ndefault = \"f16\"", "", "either"},
        BadToml{"required = true", "", "4:", "either"},
        BadToml{"default = \"any\"", "default = \"none\"", "13:", "cannot be 'none'"},
        BadToml{"default = 1\n", "default = 3\n", "21:", "cannot be '3'"},
        BadToml{"max = 8", "max = 0", "16:", "admit no value"},
        BadToml{"min = 1\nmax = 8", "min = 5\nmax = 7", "16:", "admit no value"},
        BadToml{"max = 8", "max = \"8\"", "19:", "must be an integer"},
        BadToml{"default = false", "default = \"no\"", "26:", "cannot be 'no'"},
        BadToml{"meaning = \"element type\"", "", "4:", "'meaning' is missing"},
        BadToml{"[parameters.unroll]", "[parameters.min]", "", "cannot be a name"},
        BadToml{"[parameters.unroll]", "[parameters.kernel]", "", "cannot be a name"},
        BadToml{"[parameters.unroll]", "[parameters.dtype_is_f16]", "", "taken"},
        BadToml{"label = \"forward\"", "dtype = \"forward\"", "", "two things"},
        BadToml{"weight = 3", "unroll = 3", "", "taken"},
        BadToml{"label = \"forward\"", "label = \"a\\nb\"", "", "one line"},
        BadToml{"[kernel.launch]", "[kernel.parameters.unroll]\n[kernel.launch]", "",
                "at the top of the file already"}));

INSTANTIATE_TEST_SUITE_P(
    Expressions, KernelFileRefuses,
    testing::Values(
        BadToml{"unroll <= 4", "unrol <= 4", "30:", "did you mean 'unroll'?"},
        BadToml{"!in_place || unroll <= 4", "unroll + 1", "30:", "must be a boolean"},
        BadToml{"that = \"!in_place", "taht = \"!in_place",
                "30:", "did you mean 'that'?"},
        BadToml{"shared = \"rows_per_block * 33\"", "shared = \"rows\"",
                "34:", "unknown name 'rows'"},
        BadToml{"? 1 : 128", "? shared : 128", "", "rows_per_block needs shared"},
        BadToml{"? 1 : 128", "? rows_per_block : 128", "",
                "in a circle: shared needs rows_per_block needs rows_per_block"},
        BadToml{"rows_per_block * 33", "1.5", "", "not expected"},
        BadToml{"rows_per_block * 33\"", "9223372036854775807 * rows_per_block * 2\"",
                "", "does not fit 64 bits"},
        BadToml{"128 / max_cols\"", "128 / (max_cols - 128)\"", "", "division by zero"},
        BadToml{"max_cols_is_any ? 1 : 128 / max_cols", "128 / max_cols", "",
                "max_cols is not a number here"},
        BadToml{"minimum = \"7.5\"", "minimum = \"seven\"", "", "seven"},
        BadToml{"minimum = \"7.5\"", "minimum = \"9.0a\"", "", "without suffix"},
        BadToml{"[\"9.0a\"]", "[\"9.0\"]", "", "no suffix"},
        BadToml{"when = \"dtype_is_bf16\"", "when = \"dtype_is_bf61\"", "",
                "did you mean 'dtype_is_bf16'?"}));

INSTANTIATE_TEST_SUITE_P(
    LaunchAndSets, KernelFileRefuses,
    testing::Values(
        BadToml{"arguments.rows = \"rows\"", "arguments.unroll = \"x\"", "", "taken"},
        BadToml{"meaning = \"row length\", default = 1", "default = 1", "",
                "'meaning'"},
        BadToml{"length\", default = 1", "length\", default = -1", "", "negative"},
        BadToml{"grid = [\"ceil_div(rows, rows_per_block)\"]", "grid = []", "",
                "one to"},
        BadToml{"block = [128]", "block = [1, 1, 1, 1]", "", "one to three"},
        BadToml{"block = [128]", "block = [true]", "", "or an integer itself"},
        BadToml{"block = [128]", "block = [2048]", "", "block.x is 2048"},
        BadToml{"block = [128]", "block = [1024, 2]", "", "2048 threads"},
        BadToml{"block = [128]", "block = [1, 1, 65]", "", "block.z is 65"},
        BadToml{"block = [128]", "", "", "no grid or no block"},
        BadToml{"shared_bytes = \"shared\"", "shared_bytes = 232449", "",
                "232449 bytes"},
        BadToml{"shared_bytes = \"shared\"", "shared_bytes = -1", "", "-1 bytes"},
        BadToml{"ceil_div(rows, rows_per_block)", "rows - 1", "", "grid.x is 0"},
        BadToml{"entry.scale_bwd_finalize", "entry.scale_bwd_finalise", "",
                "did you mean 'scale_bwd_finalize'?"},
        BadToml{"[{ dtype = \"*\" }]", "[]", "", "1 to 250 products"},
        BadToml{"[{ dtype = \"*\" }]", "[{ }]", "", "required parameter 'dtype'"},
        BadToml{"[{ dtype = \"*\" }]", "[\"f16\"]", "", "a product is a table"},
        BadToml{"[{ dtype = \"*\" }]", "[{ dtype = [] }]", "", "value or a list"},
        BadToml{"[{ dtype = \"*\" }]", "[{ dtype = \"f61\" }]", "", "cannot be 'f61'"},
        BadToml{"[{ dtype = \"*\" }]", "[{ dtype = \"f16\", x = 1 }]", "", "'x'"},
        BadToml{"[{ dtype = \"*\" }]", "[{ dtype = \"*\", unroll = \"*\" }]", "",
                "enums"},
        BadToml{"[{ dtype = \"*\" }]",
                "[{ dtype = \"*\", in_place = true, unroll = 8 }]", "",
                "nothing is left of this default_set product"},
        BadToml{"quick = [{ dtype = \"bf16\" }]",
                "quick = [{ dtype = \"f16\", unroll = 2 }]",
                "62:", "that the default set has not"}));

TEST(KernelFile, AnUnknownNameInTheTextIsFoundForEachKernel) {
  EXPECT_THAT(error_of("label = \"backward\", ", ""),
              StartsWith("scale.cu.mustache:2: unknown name 'label'"));
}

TEST(KernelFile, TheSetsAreBounded) {
  std::string values;
  for (int i = 0; i < 32; ++i) values += std::to_string(i) + ", ";
  EXPECT_THAT(error_of("[32, 64, 128, \"any\"]", "[" + values + "64, 128, \"any\"]"),
              "");
  EXPECT_THAT(
      error_of(
          "[{ dtype = \"*\" }]",
          "[{ dtype = \"*\", max_cols = \"*\", unroll = [1,2,4,8], in_place = \"*\" },"
          "{ dtype = [\"f16\",\"f16\",\"f16\",\"f16\",\"f16\",\"f16\",\"f16\",\"f16\"],"
          " max_cols = [32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32],"
          " unroll = [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
          " in_place = [true,true,true,true] }]"),
      EndsWith("over 10000 combinations"));
}

TEST(KernelFile, ADeeplyNestedDocumentIsAnErrorNotACrash) {
  const std::string deep(100000, '[');
  EXPECT_THAT(error_of("schema = 1", "schema = " + deep), StartsWith("kernel.toml:1:"));
  EXPECT_THAT(error_of("schema = 1", "schema = 1\nx = " + std::string(600000, '1')),
              HasSubstr("over the limit"));
}

TEST(KernelFile, EveryTruncationIsAnErrorOrAWholeFile) {
  test::BuiltIn family;
  const std::string whole = family.toml;
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    family.toml = whole.substr(0, size);
    const std::string message = family.error();
    EXPECT_THAT(message, testing::AnyOf("", StartsWith("scale/"))) << size;
  }
}

TEST(KernelFile, EveryFlippedByteIsAnErrorOrAFile) {
  test::BuiltIn family;
  const std::string whole = family.toml;
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    family.toml = whole;
    family.toml[at] = static_cast<char>(family.toml[at] ^ 0x15);
    EXPECT_NO_FATAL_FAILURE(static_cast<void>(family.open()));
  }
}

TEST(KernelFile, WindowsLineEndsAreRead) {
  test::BuiltIn family;
  std::string toml;
  for (const char c : family.toml)
    toml += c == '\n' ? std::string("\r\n") : std::string(1, c);
  family.toml = toml;
  EXPECT_EQ(family.error(), "");
}

}  // namespace
}  // namespace kiln::render
