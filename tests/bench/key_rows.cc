// From a request to its key: of a template, of a source with CUB in a new process; and
// that reading a text for its includes is linear.

#include <fmt/format.h>

#include <charconv>
#include <fstream>

#include "tests/bench/costs_children.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "util/include_directives.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

using Service = std::shared_ptr<const ScratchService>;

Result<Service> open(const Settings& settings) {
  return std::make_shared<const ScratchService>(
      KILN_TRY(scratch_service(settings.folder)));
}

Row template_row(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const Service made = KILN_TRY(open(settings));
    const KernelRequest request = softmax_requests(1).front();
    KILN_TRY(keyed(*made->service, request));
    return Sides{.measured = [=] {
      return timed_each(settings.batch_calls,
                        [&] { return keyed(*made->service, request); });
    }};
  };
  return {.name = "key/template",
          .what = "request -> key, template",
          .limit = {1, Seconds(5e-6)},
          .prepare = prepare};
}

/// Every file that the key of the CUB source stands for, one a line of a file.
Result<void> write_closure(BuildService& service, const std::string& path) {
  const auto key = KILN_TRY(
      keyed(service, {Request::from_source({.source = cub_source()}), {{9, 0}, {}}}));
  const key::HeaderSnapshot& headers = *key.headers;
  std::ofstream list(path);
  for (const auto& file : headers.files) list << file.path.native() << '\n';
  if (headers.toolkit.empty())
    return fail(ErrorCode::kNotFound, "this row needs the toolkit's headers with CUB");
  for (const key::ToolkitTree& tree : headers.toolkit) {
    for (const auto& file : tree.headers->files())
      list << (tree.headers->root() / file.path).native() << '\n';
  }
  list.close();
  return {};
}

/// Of each sample's key, `before(root)` first; the floor is the child's.
template <typename Before>
auto source_sides(const Settings& settings, std::string_view floor,
                  const Before& before) {
  return [=]() -> Result<Sides> {
    const Service made = KILN_TRY(open(settings));
    const std::string closure = made->scratch->path() / "closure";
    KILN_TRY(write_closure(*made->service, closure));
    const std::string root = made->root();
    return Sides{.measured =
                     [=] {
                       before(root);
                       return printed_seconds(child_command(kSourceKeyChild, {root}));
                     },
                 // Keeps the folder, too.
                 .floor =
                     [=, kept = made] {
                       return printed_seconds(child_command(floor, {closure}));
                     }};
  };
}

Row source_row(const Settings& settings) {
  return {.name = "key/source",
          .what = "request -> key, source with CUB, new process",
          .floor = "stat of every file that the key stands for, new process",
          .limit = {1.3},
          .prepare = source_sides(settings, kStatChild, [](const std::string&) {})};
}

/// Where no memo counts: on an overlay, say, or a network file system.
Row unremembered_row(const Settings& settings) {
  const auto forget = [](const std::string& root) {
    std::error_code error;
    std::filesystem::remove_all(std::filesystem::path(root) / "memo", error);
  };
  return {.name = "key/unremembered",
          .what = "the same where metadata does not say what is unchanged",
          .floor = "SHA-256 of every file that the key stands for, new process",
          .limit = {1, Seconds(0.12)},
          .prepare = source_sides(settings, kHashChild, forget)};
}

// A lexer that looks at the rest of the text for each #include takes four times as long
// for twice the text.
Row includes_row() {
  const auto prepare = []() -> Result<Sides> {
    const auto text = [](std::size_t bytes) {
      std::string hostile = "#if 0\n";
      while (hostile.size() < bytes) hostile += "#include <\n#include X /*\n";
      return hostile;
    };
    const auto side = [](std::string hostile) {
      return [hostile = std::move(hostile)] {
        return timed([&] { return find_directives(hostile); });
      };
    };
    constexpr std::size_t kBytes = std::size_t{1} << 20U;
    return Sides{.measured = side(text(2 * kBytes)), .floor = side(text(kBytes))};
  };
  return {.name = "key/includes",
          .what = "find the includes in 2 MiB of text in which none ends",
          .floor = "the same for 1 MiB",
          .limit = {2.5},
          .prepare = prepare};
}

}  // namespace

std::vector<Row> key_rows(const Settings& settings) {
  return {template_row(settings), source_row(settings), unremembered_row(settings),
          includes_row()};
}

}  // namespace kiln::bench
