// Packs and remote caches, beside the plain tools with the same bytes: tar, zstd, curl.

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "tests/support/object_server.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

constexpr std::size_t kCubinBytes = 60'000;

using Words = std::vector<std::string>;

/// A cache, packs of it, and a server that has its objects: all below one folder.
struct Transfers {
  std::shared_ptr<const ScratchFolder> scratch;
  test::ObjectServer server;
  std::vector<std::string> paths;  // of objects, below the cache
  std::size_t runs = 0;

  [[nodiscard]] std::string place(const std::string& name) const {
    return scratch->path() / name;
  }
  [[nodiscard]] std::string cache() const { return place("cache"); }
  std::string new_name() { return fmt::format("run-{}", ++runs); }
};

Result<Seconds> kiln(const Words& words, const std::string& root) {
  Words command{program_beside("kiln"), "--cache-dir", root};
  command.insert(std::next(command.begin()), words.begin(), words.end());
  return wall(command);
}

Result<Seconds> shell(const Transfers& all, const std::string& command) {
  return wall({"/bin/sh", "-c",
               fmt::format("cd '{}' && {}", all.scratch->path().native(), command)});
}

/// `line` is of an object: {0} is its path, {1} the server, {2} `at`.
Result<Seconds> curl(const Transfers& all, const std::string& flags,
                     std::string_view line, const std::string& at) {
  std::ofstream config(all.scratch->path() / "curl.conf");
  for (const std::string& path : all.paths)
    config << fmt::format(fmt::runtime(line), path, all.server.url(), at);
  config.close();
  return shell(
      all, "curl -sZ --no-progress-meter -H Expect: --parallel-max 16 -K curl.conf " +
               flags);
}

/// Other bytes in the table of the cubin, so that each object shrinks by itself, four
/// times, as kernels do.
void vary(Bytes& cubin, std::mt19937& random) {
  constexpr std::size_t kStep = 32;
  for (std::size_t at = cubin.size() / 4; at < cubin.size() * 3 / 4; at += kStep) {
    for (std::size_t i = 0; i < kStep / 2; ++i)
      cubin[at + i] = static_cast<std::byte>(random());
  }
}

Result<std::shared_ptr<Transfers>> fill(const Settings& settings) {
  const auto [scratch, service] = KILN_TRY(scratch_service(settings.folder));
  auto all = std::make_shared<Transfers>();
  all->scratch = scratch;
  const CubinWish wish{
      .architecture = {{9, 0}}, .entry_points = {"f"}, .bytes = kCubinBytes};
  Bytes cubin = KILN_TRY(make_cubin(*KILN_TRY(open_nvrtc(*service)), wish));
  std::mt19937 random;
  const auto cache = KILN_TRY(open_cache(all->cache()));
  for (std::size_t i = 0; i < settings.transfers; ++i) {
    vary(cubin, random);
    Fields preimage;
    preimage.add("transfer", std::to_string(i));
    const auto object = KILN_TRY(make_object(wish, cubin, std::move(preimage)));
    if (const auto published = cache->publish(object); published.error)
      return tl::unexpected(*published.error);
    const std::filesystem::path path = cache->layout().object(object.key());
    all->paths.push_back(path.lexically_relative(all->cache()));
    all->server.put("/kiln/" + all->paths.back(), std::string(as_text(object.file())));
  }
  KILN_TRY(kiln({"pack", "-o", all->place("all.kpack")}, all->cache()));
  KILN_TRY(shell(*all, "tar cf all.tar -C cache objects"));
  KILN_TRY(kiln({"push", "--pack", all->place("all.kpack"), "--remote",
                 all->server.url() + "/packed;unsigned=1;mode=rw"},
                all->cache()));
  return all;
}

using Side = Result<Seconds> (*)(Transfers& all);

struct Way {
  const char* name;
  const char* floor;
  double most;  // times the floor
  Side measured;
  Side plain;
};

Row row(const Settings& settings, const Way& way) {
  return {.name = fmt::format("transfer/{}", way.name),
          .what = fmt::format("{} of {} objects", way.name, settings.transfers),
          .floor = way.floor,
          .limit = {way.most},
          .prepare = [=]() -> Result<Sides> {
            const auto all = KILN_TRY(fill(settings));
            return Sides{.measured = [=] { return way.measured(*all); },
                         .floor = [=] { return way.plain(*all); }};
          }};
}

Result<Seconds> pull(Transfers& all) {
  Words words{"pull", "--remote", all.server.url() + ";unsigned=1"};
  for (const std::filesystem::path path : all.paths)
    words.push_back(path.parent_path().filename().native() + path.filename().native());
  return kiln(words, all.place(all.new_name()));
}

Result<Seconds> push(Transfers& all) {
  const std::string to = all.server.url() + "/" + all.new_name();
  return kiln({"push", "--remote", to + ";unsigned=1;mode=rw"}, all.cache());
}

Result<Seconds> curl_get(Transfers& all) {
  const std::string into = all.new_name();
  return curl(all, "-f --create-dirs && sync -f " + into,
              "output = {2}/{0}\nurl = {1}/{0}\n", into);
}

Result<Seconds> curl_put(Transfers& all) {
  const std::string to = all.new_name();
  const Seconds asked =
      KILN_TRY(curl(all, "-I", "output = /dev/null\nurl = {1}/{2}/{0}\n", to));
  const Seconds sent =
      KILN_TRY(curl(all, "-f", "upload-file = cache/{0}\nurl = {1}/{2}/{0}\n", to));
  return asked + sent;
}

Result<Seconds> pack(Transfers& all) {
  return kiln({"pack", "-o", all.place("new.kpack")}, all.cache());
}

Result<Seconds> tar(Transfers& all) {
  return shell(all, "tar cf new.tar -C cache objects && sync -d new.tar");
}

Result<Seconds> unpack(Transfers& all) {
  return kiln({"unpack", all.place("all.kpack")}, all.place(all.new_name()));
}

Result<Seconds> untar(Transfers& all) {
  return shell(all, fmt::format("mkdir {0} && tar xf all.tar -C {0} && sync -f {0}",
                                all.new_name()));
}

Result<Seconds> pack_compressed(Transfers& all) {
  return kiln({"pack", "-o", all.place("new.kpack.zst")}, all.cache());
}

Result<Seconds> tar_compressed(Transfers& all) {
  return shell(
      all, "tar c -C cache objects | zstd -qf -o new.tar.zst && sync -d new.tar.zst");
}

Result<Seconds> push_pack(Transfers& all) {
  const std::string to = all.server.url() + "/" + all.new_name();
  return kiln({"push", "--pack", all.place("all.kpack"), "--remote",
               to + ";unsigned=1;mode=rw"},
              all.cache());
}

Result<Seconds> curl_pack_put(Transfers& all) {
  return shell(all,
               fmt::format("curl -sf -H Expect: -T all.kpack {}/{}/packs/all.kpack",
                           all.server.url(), all.new_name()));
}

Result<Seconds> pull_pack(Transfers& all) {
  return kiln({"pull", "--pack", "all.kpack", "-o", all.place(all.new_name()),
               "--remote", all.server.url() + "/packed;unsigned=1"},
              all.cache());
}

Result<Seconds> curl_pack_get(Transfers& all) {
  const std::string into = all.new_name();
  return shell(all,
               fmt::format("curl -sf -o {0} {1}/packed/packs/all.kpack && sync -d {0}",
                           into, all.server.url()));
}

}  // namespace

std::vector<Row> transfer_rows(const Settings& settings) {
  return {row(settings, {"pack", "tar c, sync", 2, pack, tar}),
          row(settings,
              {"pack.zst", "tar c | zstd, sync", 2, pack_compressed, tar_compressed}),
          row(settings, {"unpack", "tar x, sync", 2, unpack, untar}),
          row(settings, {"push", "curl -Z, HEAD and PUT", 2, push, curl_put}),
          row(settings, {"pull", "curl -Z, sync", 1.5, pull, curl_get}),
          row(settings, {"push --pack", "curl -T", 2, push_pack, curl_pack_put}),
          row(settings, {"pull --pack", "curl -o, sync", 2, pull_pack, curl_pack_get})};
}

}  // namespace kiln::bench
