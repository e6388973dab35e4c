// Sources of programs' own calls of NVRTC, and what quotes them, stay where they are.

#include <fmt/format.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "tests/support/object_server.h"
#include "tests/support/program.h"
#include "tests/support/test.h"
#include "util/read_file.h"

namespace kiln {
namespace {

constexpr std::string_view kSecret = "confidential_x41";

/// True if the bytes have the word, in a compressed part, too.
bool has_secret(std::string_view bytes, int depth = 0) {
  if (bytes.find(kSecret) != std::string_view::npos)
    return true;
  constexpr std::string_view kFrame = "\x28\xB5\x2F\xFD";
  for (std::size_t at = bytes.find(kFrame); at != std::string_view::npos && depth < 3;
       at = bytes.find(kFrame, at + 1)) {
    const std::string_view rest = bytes.substr(at);
    const std::size_t size = ZSTD_findFrameCompressedSize(rest.data(), rest.size());
    if (ZSTD_isError(size) != 0)
      continue;
    std::string text(std::size_t{1} << 22U, '\0');
    const std::size_t n = ZSTD_decompress(text.data(), text.size(), rest.data(), size);
    if (ZSTD_isError(n) == 0 &&
        has_secret(std::string_view(text).substr(0, n), depth + 1))
      return true;
  }
  return false;
}

/// The files below `folder` with that word.
std::vector<std::string> secrets_in(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() &&
        has_secret(read_text_file(entry.path(), 1U << 24U).value_or("")))
      found.push_back(fs::relative(entry.path(), folder));
  }
  return found;
}

class PrivateSourceTest : public testing::Test {
 protected:
  PrivateSourceTest() {
    kiln_.write("inc/h.h", fmt::format("// {}\n#define H 3\n", kSecret));
    kiln_.write("quiet.cu", text("", ""));
    kiln_.write("warns.cu", text("int unused;", ""));
    kiln_.write("fails.cu", text("", "nonsense"));
    fs::create_directories(kiln_.folder() / "tmp");
    kiln_.set("TMPDIR", kiln_.folder() / "tmp");
  }

  /// A source with the word in a comment, on a line that a message would quote.
  static std::string text(const std::string& in_body, const std::string& at_end) {
    return fmt::format(
        "#include <h.h>\nextern \"C\" __global__ void k(int* p) {{\n{} *p = H; // {}\n"
        "}}\n{} // {}\n",
        in_body, kSecret, at_end, kSecret);
  }
  [[nodiscard]] Arguments compile(const std::string& file) const {
    return {"compile",
            (kiln_.folder() / file).native(),
            "--as-nvrtc",
            "--arch",
            "9.0",
            "--option",
            "-I" + (kiln_.folder() / "inc").native()};
  }
  /// The key.
  std::string compiled(const std::string& file, int status = 0) {
    return kiln_.json_of(compile(file), status)["entries"][0]["key"];
  }

  test::KilnProgram kiln_;
};

TEST_F(PrivateSourceTest, APackHasTheSourceOnlyIfItIsAskedFor) {
  const std::string key = compiled("quiet.cu");
  const fs::path cache = kiln_.cache_dir();
  EXPECT_THAT(secrets_in(cache), Not(IsEmpty())) << "the cache has it";
  const std::string pack = kiln_.folder() / "pack/job.kpack";
  fs::create_directories(kiln_.folder() / "pack");
  EXPECT_EQ(kiln_.json_of({"pack", "-o", pack})["objects"], 1);
  EXPECT_THAT(secrets_in(kiln_.folder() / "pack"), IsEmpty());
  EXPECT_EQ(kiln_.json_of({"pack", "-o", pack + ".zst"})["objects"], 1);
  EXPECT_THAT(secrets_in(kiln_.folder() / "pack"), IsEmpty());

  // What the pack has is whole.
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  EXPECT_EQ(kiln_.json_of({"unpack", pack})["stored"], 1);
  EXPECT_EQ(kiln_.json_of({"verify"})["corrupt"].size(), 0U);
  const json hit = kiln_.json_of(compile("quiet.cu"));
  EXPECT_EQ(hit["entries"][0]["outcome"], "hit");
  EXPECT_EQ(hit["entries"][0]["key"], key);
  const auto source = kiln_.run({"show", key, "--source"});
  EXPECT_EQ(source.out, "");
  EXPECT_THAT(source.err, HasSubstr("the source of this entry is not stored here"));
  EXPECT_THAT(kiln_.run({"show", key, "--ptx"}).out, HasSubstr(".entry k"));
  EXPECT_THAT(secrets_in(kiln_.folder() / "node"), IsEmpty());

  kiln_.set("KILN_CACHE_DIR", cache);
  EXPECT_EQ(kiln_.json_of({"pack", "-o", pack, "--with-source"})["objects"], 1);
  EXPECT_THAT(secrets_in(kiln_.folder() / "pack"), testing::ElementsAre("job.kpack"));
}

TEST_F(PrivateSourceTest, APackSaysThatALogIsMissing) {
  const std::string key = compiled("warns.cu");
  const fs::path cache = kiln_.cache_dir();
  const std::string pack = kiln_.folder() / "job.kpack";
  EXPECT_EQ(kiln_.json_of({"pack", "-o", pack})["objects"], 1);
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  EXPECT_EQ(kiln_.json_of({"unpack", pack})["stored"], 1);
  EXPECT_EQ(kiln_.run({"show", key, "--log"}).out,
            "kiln: the log is not in this copy of the object\n");
  EXPECT_THAT(secrets_in(kiln_.folder() / "node"), IsEmpty());
  kiln_.set("KILN_CACHE_DIR", cache);
  EXPECT_EQ(kiln_.json_of({"pack", "-o", pack, "--with-source"})["objects"], 1);
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "other");
  EXPECT_EQ(kiln_.json_of({"unpack", pack})["stored"], 1);
  EXPECT_THAT(kiln_.run({"show", key, "--log"}).out, HasSubstr("unused"));
}

TEST_F(PrivateSourceTest, WithKilnStoreSource0NothingOfItIsWritten) {
  kiln_.set("KILN_STORE_SOURCE", "0");
  const std::string key = compiled("quiet.cu");
  EXPECT_EQ(compiled("quiet.cu"), key);
  EXPECT_THAT(kiln_.run(compile("warns.cu")).err, HasSubstr("unused"))
      << "who compiles it has the log";
  EXPECT_THAT(kiln_.run(compile("warns.cu")).err, HasSubstr("the log is not in this"));
  EXPECT_THAT(kiln_.run(compile("fails.cu")).err, HasSubstr("nonsense"));
  kiln_.set("KILN_WORKER_MEMORY", "64M");
  std::string much;
  for (int i = 0; i < 2000; ++i)
    much +=
        fmt::format("__global__ void k{}(float* x) {{ *x = sinf(*x * {}); }}\n", i, i);
  kiln_.write("killed.cu", text("", much));
  const auto killed = kiln_.run(compile("killed.cu"));
  EXPECT_EQ(killed.status, 1);
  EXPECT_THAT(killed.err, AllOf(HasSubstr("over its memory limit of 64 MiB; raise"),
                                HasSubstr("KILN_STORE_SOURCE is 0")));
  EXPECT_THAT(secrets_in(kiln_.cache_dir()), IsEmpty());
  EXPECT_THAT(secrets_in(kiln_.folder() / "tmp"), IsEmpty());
  EXPECT_EQ(kiln_.object_files().size(), 2U);

  // Kiln's own compiles are as ever, and so is what is killed without the setting.
  kiln_.unset("KILN_STORE_SOURCE");
  EXPECT_THAT(kiln_.run(compile("killed.cu")).err, HasSubstr("; saved in "));
  EXPECT_THAT(secrets_in(kiln_.cache_dir()), Not(IsEmpty()));
}

TEST_F(PrivateSourceTest, AChangedLineIsShownOnlyWhereTheSourceIsStored) {
  const auto warm = [&](int number, bool is_source) {
    const json line{
        {"source", fmt::format("#include \"x.h\"\n__global__ void k() {{}}\n"
                               "__device__ int n = {}; // {}\n",
                               is_source ? number : 0, kSecret)},
        {"file", is_source ? "s.cu" : "h.cu"},
        {"headers",
         {{"x.h",
           fmt::format("\n\n#define X {} // {}\n", is_source ? 0 : number, kSecret)}}},
        {"as_nvrtc", true}};
    return kiln_.run({"warm", "--manifest", kiln_.write("m.jsonl", line.dump() + "\n"),
                      "--arch", "9.0"});
  };
  const auto expect = [&](bool is_source, const testing::Matcher<std::string>& why) {
    for (const int number : {1, 2}) ASSERT_EQ(warm(number, is_source).status, 0);
    const json listed =
        kiln_.json_of({"ls", "--file", is_source ? "s.cu" : "h.cu"})["entries"];
    ASSERT_EQ(listed.size(), 2U);
    const auto both = kiln_.run({"why", listed[0]["key"], listed[1]["key"]});
    EXPECT_THAT(both.out,
                AllOf(HasSubstr(is_source ? "source_sha256" : "memory_header/x.h"),
                      Not(HasSubstr("include_graph")), why));
    EXPECT_THAT(warm(3, is_source).err, why);
    EXPECT_EQ(kiln_.run({"verify"}).status, 0);
  };
  kiln_.set("KILN_LOG", "info");
  expect(true, HasSubstr(fmt::format("line 3: __device__ int n = 2; // {}", kSecret)));
  expect(false, HasSubstr(fmt::format("line 3: #define X 2 // {}", kSecret)));
  const std::string pack = kiln_.folder() / "pack/job.kpack";
  fs::create_directories(kiln_.folder() / "pack");
  EXPECT_EQ(kiln_.run({"pack", "-o", pack}).status, 0);
  EXPECT_THAT(secrets_in(kiln_.folder() / "pack"), IsEmpty());
  // Of what others have stored nothing is told either.
  kiln_.set("KILN_STORE_SOURCE", "0");
  EXPECT_THAT(warm(4, true).err, AllOf(HasSubstr("differs in source_sha256"),
                                       Not(HasSubstr(std::string(kSecret)))));
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  expect(true, Not(HasSubstr(std::string(kSecret))));
  expect(false, Not(HasSubstr(std::string(kSecret))));
  EXPECT_THAT(secrets_in(kiln_.folder() / "node"), IsEmpty());
}

TEST_F(PrivateSourceTest, WhatAPackBringsIsStoredWithoutTheSource) {
  compiled("warns.cu");
  compiled("quiet.cu");
  const std::string pack = kiln_.folder() / "job.kpack";
  EXPECT_EQ(kiln_.json_of({"pack", "-o", pack, "--with-source"})["objects"], 2);
  kiln_.set("KILN_STORE_SOURCE", "0");
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  EXPECT_EQ(kiln_.json_of({"unpack", pack})["stored"], 2);
  EXPECT_THAT(secrets_in(kiln_.folder() / "node"), IsEmpty());
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "job");
  kiln_.set("KILN_SEED", pack);
  EXPECT_EQ(kiln_.json_of(compile("quiet.cu"))["entries"][0]["tier"], "seed");
  EXPECT_EQ(kiln_.json_of(compile("warns.cu"))["entries"][0]["tier"], "seed");
  EXPECT_THAT(secrets_in(kiln_.folder() / "job"), IsEmpty());
}

class RemotePrivateSourceTest : public PrivateSourceTest {
 protected:
  RemotePrivateSourceTest() { kiln_.set("KILN_REMOTE", server_.url() + ";unsigned=1"); }
  [[nodiscard]] std::size_t secrets_there() const {
    std::size_t n = 0;
    for (const auto& [path, bytes] : server_.files()) n += has_secret(bytes) ? 1 : 0;
    return n;
  }

  test::ObjectServer server_;
};

TEST_F(RemotePrivateSourceTest, UploadsHaveNoSource) {
  kiln_.set("KILN_REMOTE_MODE", "rw");
  compiled("quiet.cu");
  compiled("warns.cu");
  EXPECT_EQ(server_.files().size(), 2U);
  EXPECT_EQ(secrets_there(), 0U);
  kiln_.set("KILN_CACHE_DIR", kiln_.folder() / "node");
  EXPECT_EQ(kiln_.json_of(compile("quiet.cu"))["entries"][0]["tier"], "remote");
}

TEST_F(RemotePrivateSourceTest, APushHasTheSourceOnlyIfItIsAskedFor) {
  compiled("quiet.cu");
  const std::string warns = compiled("warns.cu");
  EXPECT_EQ(kiln_.json_of({"push"})["sent"], 2);
  EXPECT_EQ(secrets_there(), 0U);
  EXPECT_EQ(kiln_.json_of({"push", "--replace", "--with-source", warns})["sent"], 1);
  EXPECT_EQ(secrets_there(), 1U);

  const std::string pack = kiln_.folder() / "job.kpack";
  EXPECT_EQ(kiln_.run({"pack", "-o", pack, "--with-source"}).status, 0);
  const auto refused = kiln_.run({"push", "--pack", pack});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--with-source"));
  EXPECT_EQ(secrets_there(), 1U);
  EXPECT_EQ(kiln_.run({"push", "--pack", pack, "--with-source"}).status, 0);
  EXPECT_EQ(secrets_there(), 2U);
}

}  // namespace
}  // namespace kiln
