// What follows from the operations' headers: the C interface, and the names for Python.

#include "interface/c_interface.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "interface/c_structs.h"
#include "interface/operation_header.h"
#include "interface/python_interface.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln::interface {
namespace {

/// A header with these structs, of which an operation takes Scale.
Result<OperationHeader> with_structs(const std::string& structs) {
  return read_operation_header(
      "kiln/ops/sample.h",
      structs +
          "[[nodiscard]] Result<void> scale(Service& service,\n"
          "    const Device& device, CUstream_st* stream, const Scale& args);\n");
}

std::string header_of(const std::string& structs) {
  return c_header(std::vector{with_structs(structs).value()}).value();
}

std::string error_of(const std::string& structs) {
  const auto header = with_structs(structs);
  return header ? c_header(std::vector{*header}).error().message
                : header.error().message;
}

/// A line a struct: its bytes, and the offset of each field.
std::string c_layout(const std::vector<OperationHeader>& headers) {
  std::string text;
  for (const OperationHeader& header : headers) {
    const CStructs all = c_structs(header).value();
    for (const CStruct& each : all.structs) {
      const CLayout layout = all.layout(each);
      text += fmt::format("{} {}:", each.name, layout.bytes);
      for (std::size_t i = 0; i < each.fields.size(); ++i)
        text += fmt::format(" {}@{}", each.fields[i].name, layout.offsets[i]);
      text += "\n";
    }
  }
  return text;
}

TEST(CInterfaceTest, TheStructsOfC) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::paths::source("src/kiln/ops")))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<OperationHeader> headers;
  for (const auto& path : paths)
    headers.push_back(
        read_operation_header(path, read_text_file(path, 1U << 20U).value()).value());
  // A field that is added needs KILN_SINCE, and moves no other field.
  test::expect_golden("tests/unit/interface/golden/c_structs.txt", c_layout(headers));
}

TEST(CInterfaceTest, AFieldHasItsTypeAndItsDefault) {
  const std::string header = header_of(
      "/// How.\n"
      "enum class Rounding : std::uint8_t { kDown, kToNearest };\n"
      "struct Scale {\n"
      "  DType dtype = DType::kUnset;  // of x\n"
      "  const void* x = nullptr;\n"
      "  std::int64_t rows = kUnsetSize;\n"
      "  float factor = std::numeric_limits<float>::quiet_NaN();\n"
      "  std::int64_t window = -1;\n"
      "  std::optional<float> limit{};\n"
      "  Rounding rounding = Rounding::kToNearest;\n"
      "};\n");
  constexpr const char* kFields =
      "  kiln_dtype dtype;\n  const void* x;\n  int64_t rows;\n  float factor;\n"
      "  int64_t window;\n  bool has_limit;\n  float limit;\n"
      "  kiln_rounding rounding;\n} kiln_scale_args;";
  for (const char* const expected :
       {"typedef uint8_t kiln_rounding;", "KILN_ROUNDING_TO_NEAREST", kFields,
        ".rows = KILN_UNSET,", ".factor = NAN,", ".window = -1,",
        ".rounding = KILN_ROUNDING_TO_NEAREST,", "kiln_result kiln_scale(",
        "kiln_result kiln_scale_prepare("})
    EXPECT_THAT(header, HasSubstr(expected));
  for (const char* const zero :
       {".dtype =", ".x =", ".limit =", "kiln_scale_workspace"})
    EXPECT_THAT(header, Not(HasSubstr(zero)));
}

TEST(CInterfaceTest, AStructWithPointersIsItsFieldsAndOneOfNumbersStaysOne) {
  const std::string header = header_of(
      "struct Strides { std::int64_t row = 0; std::int64_t column = 1; };\n"
      "struct Tensor { void* out = nullptr; Strides strides; };\n"
      "struct Scale { Tensor q; };\n");
  EXPECT_THAT(header, HasSubstr("  void* q_out;\n  kiln_strides q_strides;\n"));
  EXPECT_THAT(header, HasSubstr(".q_strides = KILN_STRIDES_INIT,"));
}

TEST(CInterfaceTest, AFieldThatAPartGetsLaterComesLast) {
  EXPECT_THAT(
      header_of(
          "struct Tensor { void* out = nullptr; KILN_SINCE(0, 2) bool wide = false; "
          "};\nstruct Scale { Tensor q; Tensor k; };\n"),
      HasSubstr("  void* q_out;\n  void* k_out;\n  KILN_ALIGNED bool q_wide;\n"
                "  bool k_wide;\n}"));
}

TEST(CInterfaceTest, APartThatIsAddedComesLastWithAllItsFields) {
  EXPECT_THAT(
      header_of(
          "struct Tensor { bool wide = false; void* out = nullptr; };\n"
          "struct Scale { KILN_SINCE(0, 3) Tensor k; KILN_SINCE(0, 2) bool fast = "
          "false; void* x = nullptr; };\n"),
      HasSubstr("  void* x;\n  KILN_ALIGNED bool fast;\n  KILN_ALIGNED bool k_wide;\n"
                "  void* k_out;\n}"));
}

TEST(CInterfaceTest, AFieldOfALaterVersionBeginsWhereTheOldStructEnded) {
  const std::string structs =
      "struct Scale { void* x = nullptr; bool fast = false;\n"
      "  KILN_SINCE(0, 2) bool exact = false; KILN_SINCE(0, 2) bool wide = false;\n"
      "  KILN_SINCE(0, 3) bool deep = false; };\n";
  EXPECT_EQ(c_layout({with_structs(structs).value()}),
            "kiln_scale_args 40: x@8 fast@16 exact@24 wide@25 deep@32\n");
  EXPECT_THAT(header_of(structs), HasSubstr("  KILN_ALIGNED bool exact;\n  bool wide;\n"
                                            "  KILN_ALIGNED bool deep;\n"));
}

TEST(PythonInterfaceTest, TensorsAndOptionsAreGivenByName) {
  const std::string text =
      python_parameters(
          std::vector{with_structs("struct Scale { DType dtype = DType::kUnset;\n"
                                   "  void* y = nullptr;\n"
                                   "  KILN_TENSOR(f32, rows, 2) float* sum = nullptr;\n"
                                   "  KILN_TENSOR_IF(has_x, dtype, rows + 1)\n"
                                   "  const void* x = nullptr;\n"
                                   "  bool has_x = true;\n"
                                   "  std::int64_t rows = kUnsetSize;\n"
                                   "  KILN_OPTION std::optional<float> factor{};\n"
                                   "  KILN_OPTION bool fast = false;\n"
                                   "  void* workspace = nullptr; };\n")
                          .value()})
          .value();
  EXPECT_THAT(
      text,
      HasSubstr(
          "6> kNames{\"y\", \"sum\", \"x\", \"factor\", \"fast\", \"workspace\"}"));
  EXPECT_THAT(text, HasSubstr("    if (factor)\n      args.has_factor = true, "
                              "args.factor = static_cast<float>(*factor);\n"));
  EXPECT_THAT(
      text,
      HasSubstr("    args.has_x = x.has_value();\n"
                "    call.set(args.x, \"x\", x, type_of(args.dtype), {args.rows + 1}, "
                "shapes[0]);\n"
                "    call.set(args.sum, \"sum\", sum, kFloat32, {args.rows, 2}, "
                "shapes[1]);\n    call.expect_set(args.y, \"y\", y);\n  }\n"));
  EXPECT_THAT(text, HasSubstr("KILN_SCALE_ARGS_INIT, kiln_scale, kiln_scale_prepare}"));
}

TEST(CInterfaceTest, AFormThatCHasNotIsRefusedByItsName) {
  EXPECT_THAT(error_of("struct Scale { std::string name{}; };"),
              HasSubstr("struct Scale: C has no form of 'std::string name"));
  EXPECT_THAT(error_of("struct Scale { float factor = kFactor; };"),
              HasSubstr("struct Scale: C has no form of 'float factor = kFactor'"));
  EXPECT_THAT(error_of("struct Scale { KILN_TENSOR_IF() void* x = nullptr; };"),
              HasSubstr("struct Scale: KILN_TENSOR needs a pointer and its type"));
  EXPECT_THAT(error_of("struct Scale { KILN_TENSOR(f32, rows) float x = 0; };"),
              HasSubstr("KILN_TENSOR needs a pointer"));
  EXPECT_THAT(error_of("struct Scale { float a, b; };"),
              HasSubstr("struct Scale: 'float a, b' is no field of the form"));
  EXPECT_THAT(error_of("struct Strides { KILN_SINCE(0, 2) std::int64_t row = 0; };"
                       "struct Scale { Strides x; };"),
              HasSubstr("struct Strides: row cannot be added"));
  EXPECT_THAT(error_of("Result<void> other(Service& s, CUstream_st* stream);"),
              HasSubstr("other(): no operation has such parameters"));
  EXPECT_THAT(error_of("struct Other {};"),
              HasSubstr("scale: there is no struct Scale"));
}

}  // namespace
}  // namespace kiln::interface
