// What NVRTC answers to its whole C API, as sequences of calls: the oracle for a
// library that stands in for it. Each sequence runs in fresh processes, on a library
// and once more on another, whose answers must be the same, byte for byte. The other
// one is the library that KILN_TEST_OTHER_NVRTC names, else the same: then the answers
// are shown to be no accident of a process. The codes in the rows are those of
// NVRTC 12.4 to 13.5.

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "standin/identity.h"
#include "tests/support/child_process.h"
#include "tests/support/nvrtc.h"
#include "tests/support/nvrtc_recorder.h"
#include "tests/support/paths.h"
#include "tests/support/run_and_read.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using test::NvrtcHeader;
using test::NvrtcInput;
using test::NvrtcRecorder;

using Step = std::function<void(NvrtcRecorder&)>;
using Options = std::vector<const char*>;

/// A sequence of calls. `codes` are the results of its calls, without those of
/// outputs(); null where they differ among NVRTC's versions.
struct Row {
  const char* name;
  const char* codes;
  std::vector<Step> steps;
};

Step create(const NvrtcInput& input) {
  return [input](NvrtcRecorder& nvrtc) { nvrtc.create(input); };
}
Step create(const char* source) {
  return create(NvrtcInput{source});
}
Step compile(const Options& options, int count = NvrtcInput::kAll) {
  return [=](NvrtcRecorder& nvrtc) { nvrtc.compile(options, count); };
}
Step add(const char* expression) {
  return [=](NvrtcRecorder& nvrtc) { nvrtc.add(expression); };
}
Step lowered(const char* expression) {
  return [=](NvrtcRecorder& nvrtc) { nvrtc.lowered(expression); };
}
const Step kOutputs = &NvrtcRecorder::outputs;
const Step kDestroy = &NvrtcRecorder::destroy;
const Step kNulls = &NvrtcRecorder::null_arguments;
const Step kCancel = &NvrtcRecorder::cancel;
const Step kCompile = compile({"-arch=sm_90"});
const Step kAdd = add("t<int>");
const Step kLowered = lowered("t<int>");

constexpr const char* kSource = R"(
template <class T> __global__ void t(T* x) { *x += 1; }
template <int N> __global__ void tn() {}
namespace n { __global__ void q() {} __device__ int dv; __constant__ float cv[4]; }
extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }
)";
constexpr const char* kWrong = "extern \"C\" __global__ void k() { error; }\n";
constexpr const char* kInternal =
    "namespace { __global__ void k(int* x) { *x = 1; } }\n";
// Compiles to PTX; ptxas refuses it.
constexpr const char* kUndefined =
    "__device__ int u(int);\n"
    "template <class T> __global__ void t(T* x) { *x = u(*x); }\n";
const Step kCreate = create(kSource);
const Step kBuilt = [](NvrtcRecorder& nvrtc) {
  for (const Step& step : {kCreate, kAdd, kCompile}) step(nvrtc);
};
constexpr const char* kUnused = "static __global__ void unused() {}\n";
#define FILE_OF(name) "__device__ const char* f_" name " = __FILE__;\n"
constexpr const char* kQuoted = "#include \"x.h\"\n" FILE_OF("k");
constexpr const char* kAngled = "#include <x.h>\n" FILE_OF("k");
constexpr const char* kNested = "#include \"sub/a.h\"\n";
constexpr const char* kInMemory = "// memory\n" FILE_OF("memory");

constexpr char kEnd = '\x1e';  // of what a row gave

/// What a sequence finds in the current folder.
void write_files(const fs::path& folder) {
  fs::remove_all(folder);
  for (const char* const each : {"sub", "inc", "inc2"})
    fs::create_directories(folder / each);
  fs::current_path(folder);
  std::ofstream(folder / "x.h") << FILE_OF("cwd");
  std::ofstream(folder / "sub/x.h") << FILE_OF("sub");
  std::ofstream(folder / "sub/a.h") << "#include \"x.h\"\n";
  std::ofstream(folder / "inc/x.h") << FILE_OF("inc");
  std::ofstream(folder / "inc/y.h") << "#include \"x.h\"\n" << FILE_OF("inc_y");
  std::ofstream(folder / "inc2/y.h") << FILE_OF("inc2_y");
  // Up to NVRTC 13.0 a cubin with debug information has the time of each file.
  for (const fs::directory_entry& each : fs::recursive_directory_iterator(folder))
    fs::last_write_time(each, fs::file_time_type());
}
#undef FILE_OF

class NvrtcApi : public testing::Test {
 protected:
  void SetUp() override {
    if (libraries_.empty())
      GTEST_SKIP() << "no NVRTC on this machine";
  }

  /// What `library` answers to each row; the first line has the codes. A process that
  /// does not end well gives one text, which says so.
  [[nodiscard]] std::vector<std::string> recorded(const fs::path& library,
                                                  const std::vector<Row>& rows) const {
    const fs::path folder = temp_.path() / "current";
    const test::SharedWithChildren<std::size_t> reached;
    std::string text = test::run_and_read(
        [&] {
          ::setenv("CUDA_CACHE_DISABLE", "1", 1);  // a hit there has no ptxas log
          ::setenv("PWD", folder.c_str(), 1);      // goes into debug information
          std::string all;
          for (*reached = 0; *reached < rows.size(); ++*reached) {
            write_files(folder);
            NvrtcRecorder nvrtc(library);
            for (const Step& step : rows[*reached].steps) step(nvrtc);
            all += nvrtc.codes() + "\n" + nvrtc.text() + kEnd;
          }
          return all;
        },
        std::chrono::seconds(240));
    std::vector<std::string> texts;
    for (std::size_t end = 0; (end = text.find(kEnd)) != std::string::npos;) {
      texts.push_back(text.substr(0, end));
      text.erase(0, end + 1);
    }
    if (*reached < rows.size())
      text.append(" in ").append(rows[*reached].name);
    if (!text.empty())
      texts = {text};
    return texts;
  }

  /// The same file by a name for which there is no stand-in.
  static fs::path uncaught(const fs::path& library) {
    return library.parent_path().native() + standin::kUncaught +
           library.filename().native();
  }

  void expect_the_same(const std::vector<Row>& rows) const {
    const char* const other = std::getenv("KILN_TEST_OTHER_NVRTC");
    for (const LibraryCandidate& each : libraries_) {
      SCOPED_TRACE(each.path.native());
      const auto expected = recorded(uncaught(each.path), rows);
      const auto found = recorded(other == nullptr ? each.path : other, rows);
      ASSERT_EQ(expected.size(), rows.size()) << expected.front();
      ASSERT_EQ(found.size(), rows.size()) << found.front();
      for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(expected[i], found[i]) << rows[i].name;
        if (rows[i].codes != nullptr) {
          EXPECT_EQ(rows[i].codes, expected[i].substr(0, expected[i].find('\n')))
              << rows[i].name << "\n"
              << expected[i];
        }
      }
    }
  }

  const std::vector<LibraryCandidate> libraries_ = test::nvrtc_libraries();
  const test::TempDir temp_;
};

/// A row that compiles kSource with one name, and looks at everything.
Row mode(const char* codes, const char* name, const Step& compiled) {
  return {name, codes, {kCreate, kAdd, compiled, kOutputs, kLowered, kDestroy}};
}

/// Such rows, each with the options of a line.
std::vector<Row> modes(const char* codes, const std::vector<const char*>& lines) {
  std::vector<Row> rows;
  for (const char* const line : lines)
    rows.push_back(mode(codes, line, [line](NvrtcRecorder& nvrtc) {
      std::istringstream stream(line);
      const std::vector<std::string> words{std::istream_iterator<std::string>(stream),
                                           {}};
      Options options;
      for (const std::string& word : words) options.push_back(word.c_str());
      nvrtc.compile(options);
    }));
  return rows;
}

TEST_F(NvrtcApi, GivesTheSameOutputsInEachMode) {
  expect_the_same(modes(
      "0 0 0 0 0",
      {"", "-arch=compute_80", "-arch=compute_90a", "-arch=sm_80", "-arch=sm_90",
       "-arch=sm_90a", "-dlto", "-arch=sm_90 -dlto", "-arch=compute_90 -dlto",
       "-arch=sm_90 -rdc=true", "-arch=sm_90 --device-c", "-arch=sm_90 -ewp",
       "-arch=compute_90 --optix-ir", "-arch=sm_90 -G", "-arch=sm_90 -lineinfo"}));
  expect_the_same(modes(
      nullptr, {"-arch=sm_100f", "-arch=sm_70", "-arch=sm_90 -fdevice-syntax-only",
                "-arch=sm_90 --no-cache", "-arch=sm_90 -enable-tile"}));
}

TEST_F(NvrtcApi, ReadsOptionsAlike) {
  expect_the_same(
      modes("0 0 0 0 0", {"-arch sm_80", "--gpu-architecture sm_80", "-D X=1 -DX=2",
                          "-arch=sm_90 --time=-", "-arch=sm_90 --ptxas-options=-v",
                          "-arch=sm_90 -Xptxas -v"}));
  expect_the_same(modes(
      "0 0 5 9 0", {"-arch= sm_80", "-arch", "-arch=sm_90b", "-arch=lto_90", "-ptx",
                    "--nope", "-std=c++99", "-std c++17", "--maxrregcount=abc",
                    "--fmad=no", "-rdc", "-dlto --optix-ir"}));
  expect_the_same(
      modes("0 0 6 9 0", {"-D1X", "-D", "-arch=sm_90 --ptxas-options=--nope"}));
  expect_the_same(  // from 12.9 on a warning, and the last one holds
      modes(nullptr, {"-arch=sm_80 -arch=sm_90", "--ftz=true --ftz=false"}));
  expect_the_same(modes("0 0 12 0 0", {"-arch=sm_90 --time=/nowhere/t.csv"}));
  expect_the_same({
      mode("0 0 0 0 0", "blanks", compile({" -arch=sm_90 "})),
      mode("0 0 5 9 0", "a blank inside", compile({"--gpu-architecture sm_80"})),
      mode("0 0 5 9 0", "empty", compile({""})),
      mode("0 0 5 9 0", "null", compile({nullptr})),
      mode("0 0 5 9 0", "null at the end", compile({"-arch=sm_90", nullptr})),
  });
}

// NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks): rows own their functions
TEST_F(NvrtcApi, RefusesTheSameArguments) {
  const std::vector<NvrtcHeader> x{{"x.h", kInMemory}};
  const std::vector<NvrtcHeader> same{{"x.h", ""}, {"x.h", ""}};
  expect_the_same({
      {"the library itself", "", {&NvrtcRecorder::describe}},
      {"null, before a compile", "0", {kCreate, kNulls, kOutputs}},
      {"null, after it", "0 0", {kCreate, kCompile, kNulls, kOutputs}},
      {"destroyed twice", "0 0 4", {kCreate, kDestroy, kDestroy}},
      {"no source", "3", {create(nullptr)}},
      {"an empty source", "0 0", {create(""), kCompile, kOutputs}},
      {"-1 headers", "3", {create({kSource, "k.cu", x, -1})}},
      {"1 header, no arrays", "3", {create({kSource, "k.cu", {}, 1})}},
      {"1 header, no names", "3", {create({kSource, "k.cu", x, 1, true, false})}},
      {"1 header, no texts", "3", {create({kSource, "k.cu", x, 1, false, true})}},
      {"a name is null", "3", {create({kSource, "k.cu", {{nullptr, ""}}})}},
      {"a text is null", "3", {create({kSource, "k.cu", {{"x.h", nullptr}}})}},
      {"a name twice", "3", {create({kSource, "k.cu", same})}},
      {"-1 options", "0 3", {kCreate, compile({"-G"}, -1), kOutputs}},
      {"-1 then", "0 0 3", {kCreate, kCompile, compile({}, -1), kOutputs}},
      {"1 option, no array", "0 5", {kCreate, compile({}, 1), kOutputs}},
      {"0 of 1 option", "0 0", {kCreate, compile({"--nope"}, 0), kOutputs}},
  });
}

TEST_F(NvrtcApi, NamesTheProgramAlikeInMessages) {
  const NvrtcInput wrong{"#include \"m.h\"\n", "k.cu", {{"m.h", kWrong}}};
  const NvrtcInput unused{"#include \"m.h\"\n", "k.cu", {{"m.h", kUnused}}};
  std::vector<Row> rows{
      {"an error of a header", "0 6", {create(wrong), kCompile, kOutputs}},
      {"a warning of one", "0 0", {create(unused), kCompile, kOutputs}},
      {"#line", "0 6", {create("#line 5 \"l.cu\"\nerror\n"), kCompile, kOutputs}},
      {"no text", "0 0", {create("// \xff\n__device__ int i;"), kCompile, kOutputs}}};
  for (const char* const name : std::vector<const char*>{
           "k.cu", "sub/k.cu", "/abs/k.cu", "a b\"c\\d.cu", "a\nb", "", nullptr}) {
    rows.push_back({"an error", "0 6", {create({kWrong, name}), kCompile, kOutputs}});
    rows.push_back({"a warning", "0 0", {create({kUnused, name}), kCompile, kOutputs}});
  }
  expect_the_same(rows);
}

/// Rows that ask for one name each.
std::vector<Row> names(const char* codes, const std::vector<const char*>& each) {
  std::vector<Row> rows;
  for (const char* const name : each)
    rows.push_back(
        {name, codes, {kCreate, add(name), kCompile, kOutputs, lowered(name)}});
  return rows;
}

TEST_F(NvrtcApi, FindsNamesAlike) {
  expect_the_same(names("0 0 0 0", {"t<int>", "&t<int>", " t< int >", "t<int>\n",
                                    "n::q", "&n::dv", "n::cv", "k", "tn<1+2>"}));
  expect_the_same(names("0 0 6 9", {"nope", "t<Foo>", "t<", "int", "n::dv", ""}));
  expect_the_same({
      {"null", "0 3 0 3", {kCreate, add(nullptr), kCompile, lowered(nullptr)}},
      {"twice", "0 0 0 0 0", {kCreate, kAdd, kAdd, kCompile, kOutputs, kLowered}},
      {"with a blank", "0 0 0 10 0", {kBuilt, lowered(" t<int>"), kLowered}},
      {"never added", "0 0 10 10", {kCreate, kCompile, lowered("k"), lowered("")}},
      {"no compile", "0 9 0 9", {kCreate, kLowered, kAdd, kLowered}},
      {"added too late", "0 0 8 10", {kCreate, kCompile, kAdd, kLowered}},
      {"option", "0 5 0 0 0", {kCreate, compile({"-q"}), kAdd, kCompile, kLowered}},
      {"added after an error", "0 6 8", {create(kWrong), kCompile, kAdd}},
      {"one", "0 0 0 6 9", {kCreate, kAdd, add("no"), kCompile, kLowered}},
  });
}

TEST_F(NvrtcApi, KeepsTheSameOutputsOfAnEarlierCompile) {
  const Step bad = compile({"--nope"});
  const Step ptx = compile({"-arch=compute_80"});
  const Step lto = compile({"-dlto"});
  const Step optix = compile({"--optix-ir"});
  const Step wrong = compile({"-Dk=1 2"});
  const Step ptxas = compile({"-arch=sm_90", "--ptxas-options=--nope"});
  expect_the_same({
      {"nothing yet", "0", {kCreate, kOutputs}},
      {"a bad option", "0 5", {kCreate, bad, kOutputs}},
      {"errors", "0 6 6", {create(kWrong), kCompile, kCompile, kOutputs}},
      {"ptxas", "0 0 6 9", {create(kUndefined), kAdd, kCompile, kOutputs, kLowered}},
      {"cubin, PTX", "0 0 0 0 0 8", {kBuilt, ptx, kOutputs, kLowered, kAdd}},
      {"every kind",
       "0 0 0 0 0 5 0",
       {kBuilt, lto, kOutputs, optix, kOutputs, bad, kOutputs, kLowered}},
      {"cubin, error", "0 0 0 6", {kBuilt, wrong, kOutputs}},
      {"ptxas later",
       "0 0 0 6 0 0",
       {kBuilt, ptxas, kOutputs, kLowered, kCompile, kOutputs}},
      {"cancelled", nullptr, {kCreate, kCancel, kCompile, kOutputs, kLowered, kAdd}},
      {"two programs",
       "0 0 0 0 0 0",
       {kBuilt, create(kInternal), ptx, kOutputs, kDestroy}},
  });
}

/// A row that compiles `input` with the paths of its headers in the PTX.
Row included(const char* name, const char* codes, const NvrtcInput& input,
             Options options = {}) {
  options.push_back("-arch=sm_90");
  return {name, codes, {create(input), compile(options), kOutputs}};
}

TEST_F(NvrtcApi, FindsHeadersAlike) {
  const fs::path folder = temp_.path() / "current";
  const std::string absolute = "-I" + (folder / "inc").native();
  const std::string absolute_name = (folder / "sub/k.cu").native();
  const std::vector<NvrtcHeader> x{{"x.h", kInMemory}};
  constexpr const char* kFound = "0 0";
  constexpr const char* kMissing = "0 6";
  constexpr const char* kFromX = "#include \"x.h\"\n";
  constexpr const char* kFromM = "#include \"m.h\"\n";
  const std::vector<NvrtcHeader> sub_x{{"sub/x.h", kInMemory}};
  const std::vector<NvrtcHeader> a_and_m{{"sub/a.h", kFromM}, {"m.h", kInMemory}};
  const std::vector<NvrtcHeader> a_and_sub_m{{"sub/a.h", kFromM}, {"sub/m.h", ""}};
  const std::vector<NvrtcHeader> m{{"m.h", kInMemory}};
  constexpr const char* kAsks =
      "#if !__has_include(\"x.h\") || __has_include(\"m.h\")\nerror\n#endif\n";
  const NvrtcInput y{"#include \"y.h\"\n"};
  expect_the_same({
      included("in the current folder", kFound, {kQuoted}),
      included("in the name's folder", kFound, {kQuoted, "sub/k.cu"}),
      included("in its absolute folder", kFound, {kQuoted, absolute_name.c_str()}),
      included("of a program without a name", kFound, {kQuoted, nullptr}),
      included("not in the current folder then", kMissing, {kQuoted, "gone/k.cu"}),
      included("-I after the name's folder", kFound, {kQuoted, "sub/k.cu"}, {"-Iinc"}),
      included("-I alone", kFound, {kQuoted, "gone/k.cu"}, {"-Iinc"}),
      included("brackets", kMissing, {kAngled}),
      included("brackets and -I", kFound, {kAngled}, {"-Iinc"}),
      included("in memory", kFound, {kQuoted, "k.cu", x}),
      included("in memory, before -I", kFound, {kAngled, "k.cu", x}, {"-Iinc"}),
      included("in memory, from a folder", kFound, {kQuoted, "sub/k.cu", x}),
      included("in memory, by a file", kFound, {kNested, "k.cu", x}),
      included("a file before memory", kFound, {kQuoted, "sub/k.cu", sub_x}),
      included("in memory, from memory", kFound, {kNested, "k.cu", a_and_m}),
      included("not in its folder there", kMissing, {kNested, "k.cu", a_and_sub_m}),
      included("a file, from memory", kFound, {kNested, "k.cu", {{"sub/a.h", kFromX}}}),
      included("a file, from a file", kFound, {kNested}),
      included("a dot in front", kMissing, {"#include \"./m.h\"\n", "k.cu", m}),
      included("not counted", kMissing, {kFromM, "k.cu", m, 0}),
      included("no name", kMissing, {"#include \"\"\n", "k.cu", {{"", kInMemory}}}),
      included("before the source", kFound, {kSource}, {"-include=x.h"}),
      included("asked for", kFound, {kAsks}),
      included("-I relative", kFound, y, {"-Iinc"}),
      included("-I in two", kFound, y, {"-I", "inc"}),
      included("-I with dots", kFound, y, {"-I./inc/../inc/"}),
      included("-I absolute", kFound, y, {absolute.c_str()}),
      included("-I in order", kFound, y, {"-Iinc2", "-Iinc"}),
      included("-I that is not there", kMissing, y, {"-Igone"}),
      included("lines", kFound, y, {"-Iinc", "-lineinfo"}),
      included("debug", kFound, y, {"-Iinc", "-G"}),
      included("debug, a folder", kFound, {kSource, "sub/k.cu"}, {"-G"}),
      included("debug, absolute", kFound, {kSource, "/abs/k.cu"}, {"-G"}),
      included("LTO-IR", kFound, {kSource, "sub/k.cu"}, {"-dlto"}),
      included("toolkit headers", kMissing, {"#include <cuda_fp16.h>\n"}),
  });
}

// Else all of the above could hold because nothing is looked at.
TEST_F(NvrtcApi, ALibraryThatMakesUpImagesIsTold) {
  const std::vector<Row> rows = names(nullptr, {"t<int>", "k"});
  const auto real = recorded(libraries_.front().path, rows);
  const auto made_up = recorded(test::paths::kFakeNvrtc, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(made_up.at(i).substr(0, 6), "0 0 0 ");
    EXPECT_NE(real.at(i), made_up.at(i)) << rows[i].name;
  }
}

// NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)

}  // namespace
}  // namespace kiln
