#include "tests/integration/degradations/ways.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/child_process.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/fault/syscall_tracer.h"
#include "tests/support/paths.h"
#include "tests/support/sample_object.h"
#include "util/elf.h"

namespace kiln::test {

namespace header = cache::header;

std::size_t find(const Bytes& file, std::string_view text) {
  const std::size_t at = as_text(file).rfind(text);
  EXPECT_NE(at, std::string_view::npos) << text;
  return at;
}

void hold_lock(Place& place) {
  const std::string key = place.build();
  fs::remove(place.object(key));
  const auto digest = Digest::from_hex(key).value();
  const auto byte = [&](std::size_t i) {
    return std::to_integer<std::uint64_t>(digest.bytes()[i]);
  };
  const UniqueFd held = place.hold_silently(place.layout().locks() / key.substr(0, 2),
                                            (byte(1) << 8U | byte(2)) % 4096, digest);
  EXPECT_EQ(place.build(), key);
}

void ask_for_a_precompiled_header(Place& place) {
  place.kiln().set("KILN_PCH_SIZE", "1GiB");
  place.kiln().write("own.h", "#pragma once\n");
  const auto source = place.kiln().write(
      "source.cu", "#include \"own.h\"\n" + std::string(kTinySource));
  const auto folder = fs::path(source).parent_path().native();
  EXPECT_EQ(
      place.kiln()
          .run({"compile", source, "--arch", "9.0", "-I", folder, "--option", "--pch"})
          .status,
      0);
}

void seed_with_a_file(Place& place) {
  place.kiln().set("KILN_SEED", place.kiln().write("seed.kpack", "no pack"));
  place.build();
}

void upload_to_nobody(Place& place) {
  place.kiln().set("KILN_REMOTE", "http://127.0.0.1:1;mode=rw;unsigned=1");
  place.build();
}

void hold_slot(Place& place) {
  fs::create_directories(place.root());
  fs::permissions(place.root(), fs::perms::owner_all);
  const UniqueFd held = place.hold_silently(place.layout().locks() / "slots", 0, {});
  place.kiln().set("KILN_JOBS", "1");
  place.build();
}

void close_descriptors_of_a_lock(Place& place) {
  place.build();
  const fs::path file = place.layout().locks() / "a7";
  ChildProcess host([&] {
    cache::CacheOptions options;
    options.root = place.root();
    const auto cache = cache::Cache::open(options);
    auto lock = cache::OwnedRange::try_own({&cache::real_file_system(), file, 0}, {},
                                           std::chrono::hours(1));
    if (!lock || !*lock)
      return 1;
    for (int fd = 3; fd < 1024; ++fd) {
      std::error_code closed;
      if (fs::equivalent(fmt::format("/proc/self/fd/{}", fd), file, closed))
        ::close(fd);
    }
    (*lock)->set_phase(cache::Phase::kCompiling);
    cache->flush(std::chrono::seconds(10));
    return 0;
  });
  EXPECT_EQ(host.wait(), 0);
}

void plant_a_file(Place& place) {
  const std::string key = place.build();
  const fs::path folder = place.object(key).parent_path();
  fs::remove_all(folder);
  std::ofstream(folder) << "a file in its place";
  place.try_to_build();
}

void fail_a_sync(Place& place) {
  if (!can_trace())
    GTEST_SKIP() << "NOT TESTED: no process can be traced here";
  const auto body = [&] {
    begin_faults();
    cache::CacheOptions options;
    options.root = place.root();
    const auto cache = cache::Cache::open(options);
    SampleObject one(1);
    const bool stored = cache->publish(*one).outcome == cache::Published::kStored;
    cache->flush(std::chrono::seconds(10));
    return stored ? 1 : 0;
  };
  const auto decide = [](const SystemCall& call) {
    return call.number == SYS_fdatasync ? Fate::failed(EDQUOT) : Fate{};
  };
  EXPECT_EQ(trace(body, decide).status, 0);
}

void serve_another_key(Place& place) {
  const std::string key = place.build();
  place.replace(key, place.bytes_of(place.build("8.0")));
  EXPECT_EQ(place.build(), key);
}

/// The object of another architecture, with this one's key written into it.
static Bytes of_another_architecture(Place& place, const std::string& key) {
  Bytes file = place.bytes_of(place.build("8.0"));
  const auto digest = Digest::from_hex(key).value();
  store_bytes(file, header::kKey, digest.bytes());
  repair_checksum(file);
  return file;
}

void serve_another_target(Place& place) {
  const std::string key = place.build();
  place.replace(key, of_another_architecture(place, key));
  EXPECT_EQ(place.build(), key);
}

void find_a_foreign_preimage(Place& place) {
  const std::string key = place.build();
  place.replace(key, of_another_architecture(place, key));
  EXPECT_EQ(place.kiln().run({"verify", "--quarantine"}).status, 1);
}

void let_others_write(Place& place) {
  const std::string key = place.build();
  ASSERT_EQ(::chmod(place.object(key).c_str(), 0666), 0);
  place.try_to_build();
}

void fail_to_read(Place& place) {
  if (!can_trace())
    GTEST_SKIP() << "NOT TESTED: no process can be traced here";
  const std::string key = place.build();
  const auto body = [&] {
    begin_faults();
    cache::CacheOptions options;
    options.root = place.root();
    const auto cache = cache::Cache::open(options);
    const bool found = cache->find(Digest::from_hex(key).value(), "sm_90").has_value();
    cache->flush(std::chrono::seconds(10));
    return found ? 1 : 0;
  };
  const auto decide = [&](const SystemCall& call) {
    const bool of_object =
        call.number == SYS_openat && path_of(call).ends_with(key.substr(2));
    return of_object ? Fate::failed(EIO) : Fate{};
  };
  EXPECT_EQ(trace(body, decide).status, 0);
}

void build_otherwise(Place& place) {
  place.build();
  cache::CacheOptions options;
  options.root = place.root();
  const auto cache = cache::Cache::open(options);
  SampleObject one(1);
  SampleObject other(1, "\177ELF another cubin");
  EXPECT_EQ(cache->publish(*one).outcome, cache::Published::kStored);
  EXPECT_EQ(cache->publish(*other).outcome, cache::Published::kNondeterministic);
}

void replace_the_compiler(Place& place) {
  const fs::path copy = place.kiln().folder() / "libnvrtc.so.13";
  fs::copy_file(test::paths::kFakeNvrtc, copy);
  Config with_copy = place.config("");
  with_copy.nvrtc = copy;
  const auto wanted = keyed(*open_service(with_copy), small_kernel(1));
  ASSERT_TRUE(wanted) << wanted.error().message;
  const std::string id = read_build_id(copy).value();
  std::string raw;
  for (std::size_t i = 0; i + 1 < id.size(); i += 2)
    raw += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  std::string bytes = read_text_file(copy, 1U << 28U).value();
  const std::size_t at = bytes.find(raw);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  fs::remove(copy);
  std::ofstream(copy, std::ios::binary) << bytes;
  const auto fetched = open_service(with_copy)->fetch(*wanted);
  ASSERT_TRUE(fetched) << fetched.error().message;
  EXPECT_TRUE(fetched->not_stored);
}

void include_what_a_macro_names(Place& place) {
  if (real_nvrtc().nvrtc.empty())
    GTEST_SKIP() << "NOT TESTED: there is no NVRTC here";
  place.kiln().unset("KILN_NVRTC");
  place.kiln().write("include/hidden.h", "#define VALUE 1\n");
  const std::string source =
      place.kiln().write("k.cu",
                         "#define NAME(x) #x\n#include NAME(hidden.h)\n"
                         "extern \"C\" __global__ void k(int* x) { *x = VALUE; }\n");
  const auto report = place.kiln().json_of(
      {"compile", source, "--arch", "9.0", "-I", place.kiln().folder() / "include"}, 1);
  EXPECT_EQ(report["not_stored"], 1);
}

void write_over_the_index(Place& place) {
  place.build();
  std::ofstream(place.layout().index()) << std::string(10'000, 'x');
  EXPECT_EQ(place.kiln().run({"ls"}).status, 0);
}

void put_a_folder_for_the_index(Place& place) {
  place.build();
  for (const char* suffix : {"", "-journal", "-wal", "-shm"})
    fs::remove(place.layout().index().native() + suffix);
  fs::create_directories(place.layout().index() / "in the way");
  EXPECT_EQ(place.kiln().run({"ls"}).status, 0);
}

void trim_to_nothing(Place& place) {
  place.age(place.object(place.build()));
  EXPECT_EQ(place.kiln().run({"trim", "--max-size", "1B"}).status, 0);
}

void leave_temporaries(Place& place) {
  const fs::path folder = place.object(place.build()).parent_path();
  for (const fs::path& where : {folder, place.root()}) {
    const std::string left = cache::Layout::temporary_in(where.native());
    std::ofstream(left) << "half an object";
    place.age(left);
  }
  EXPECT_EQ(place.kiln().run({"trim"}).status, 0);
}

void fill_the_quarantine(Place& place) {
  const std::string key = place.build();
  fs::create_directories(place.layout().quarantine());
  for (int i = 0; i < 103; ++i)
    std::ofstream(place.layout().quarantine() / fmt::format("{}-{}-size", key, i));
  EXPECT_EQ(place.kiln().run({"trim"}).status, 0);
}

/// In one process, because a refusal is of a process.
void ask_three_times(Place& place) {
  EXPECT_TRUE(keyed(*open_service(place.config("")), small_kernel(1)));
  const auto service = open_service(place.config("crash"));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(fetch(*service, small_kernel(1)));
}

void compile_with(Place& place, const char* mode) {
  place.build("8.0");  // while it answers
  place.kiln().use_fake_nvrtc(mode);
  place.try_to_build({"--timeout", "2"});
}

void ask_a_compiler_that_crashes(Place& place) {
  place.kiln().use_fake_nvrtc("crash-version");
  place.try_to_build();
}

}  // namespace kiln::test
