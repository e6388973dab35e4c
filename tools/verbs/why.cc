// kiln why: which fields make two keys differ, or why a request misses.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "build_service.h"
#include "request/selection.h"
#include "tools/architectures.h"
#include "tools/catalog.h"
#include "tools/open_cache.h"
#include "tools/preimage_output.h"
#include "tools/verbs.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> keys;
  std::string template_text;
  ArchitectureOptions architectures;
  CatalogOptions catalog;
};

/// What both questions come to.
struct Answer {
  bool same = false;
  cache::Digest key;                     // the first one, or the request's
  std::optional<cache::Digest> nearest;  // the second one, or the nearest entry
  std::vector<key::FieldDifference> differences;
  std::string toolchain_note;  // of a request: which NVRTC was chosen, and why
};

Result<cache::Fields> preimage_of(cache::Cache& cache, const cache::Digest& key) {
  const auto object = KILN_TRY(cache.inspect(key));
  if (!object)
    return fail(ErrorCode::kNotFound, key.hex() + " has just been removed");
  return object->preimage();
}

Result<Answer> compare_keys(const Config& config,
                            const std::vector<std::string>& texts) {
  const auto cache = KILN_TRY(open_cache(config));
  const auto keys = KILN_TRY(resolve_keys(*cache, texts));
  Answer answer;
  answer.key = keys[0];
  answer.nearest = keys[1];
  answer.same = keys[0] == keys[1];
  answer.differences = key::differences(KILN_TRY(preimage_of(*cache, keys[0])),
                                        KILN_TRY(preimage_of(*cache, keys[1])));
  return answer;
}

/// Preimages of entries worth comparing with: those of the same kernel first, of any
/// kernel where there are none.
Result<std::vector<cache::Entry>> candidates(cache::Cache& cache,
                                             const std::string& kernel) {
  constexpr std::size_t kMostCandidates = 2000;
  cache::ListQuery query;
  query.templates = {kernel};
  query.limit = kMostCandidates;
  auto entries = KILN_TRY(cache.list(query));
  if (entries.empty()) {
    query.templates.clear();
    entries = KILN_TRY(cache.list(query));
  }
  return entries;
}

Result<KeyedRequest> key_request(BuildService& service, const Options& options) {
  const auto text = KILN_TRY(request::parse_template_pattern(options.template_text));
  const auto prepared = KILN_TRY(service.prepare(Request(text.name, text.params)));
  const auto architectures =
      KILN_TRY(select_architectures(service, options.architectures));
  if (architectures.size() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                "why explains one architecture at a time: --arch 9.0");
  }
  auto keyed = KILN_TRY(service.key(prepared, architectures[0]));
  if (const auto* skipped = std::get_if<device::TargetSkipped>(&keyed)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not built for {}: {}", prepared.label(),
                            to_string(architectures[0]), skipped->reason));
  }
  return std::get<KeyedRequest>(std::move(keyed));
}

Result<Answer> explain_request(const Context& context, const Options& options) {
  Config config = context.config;
  config.template_dirs = template_folders(config, options.catalog);
  const auto service = KILN_TRY(
      BuildService::open(config, {.stop = context.stop->token(), .make_root = false}));
  const KeyedRequest keyed = KILN_TRY(key_request(*service, options));
  const device::ToolchainChoice& choice = *keyed.toolchain;
  Answer answer;
  answer.key = keyed.key;
  answer.toolchain_note =
      fmt::format("{} ({}){}{}", choice.toolchain.name(), choice.reason,
                  choice.warning.empty() ? "" : "; ", choice.warning);
  if (const auto there = service->cache().inspect(keyed.key); there && *there) {
    answer.same = true;
    answer.nearest = keyed.key;
    return answer;
  }
  std::vector<cache::Fields> preimages;
  std::vector<cache::Digest> keys;
  for (const cache::Entry& entry : KILN_TRY(
           candidates(service->cache(), keyed.request.as_template()->kernel->name()))) {
    // One that went away or is damaged is no candidate.
    if (auto preimage = preimage_of(service->cache(), entry.key)) {
      preimages.push_back(*std::move(preimage));
      keys.push_back(entry.key);
    }
  }
  if (auto nearest = key::nearest_preimage(service->preimage(keyed), preimages)) {
    answer.nearest = keys[nearest->index];
    answer.differences = std::move(nearest->differences);
  }
  return answer;
}

void print_answer(const Answer& answer, const Options& options, const Terminal& out) {
  const bool is_request = !options.template_text.empty();
  if (is_request)
    print(fmt::format("request {}\ntoolchain {}\n", answer.key.hex(),
                      answer.toolchain_note));
  if (answer.same) {
    print(is_request ? "a hit: the cache holds exactly this\n"
                     : "the same key: nothing differs\n");
    return;
  }
  if (!answer.nearest) {
    print("a miss: the cache holds no entry to compare with\n");
    return;
  }
  if (is_request)
    print(fmt::format("a miss; the nearest entry is {}\n", answer.nearest->hex()));
  std::vector<std::vector<std::string>> rows;
  for (const key::FieldDifference& difference : answer.differences)
    rows.push_back({difference.field, difference.a, difference.b});
  print(format_table({{"FIELD"},
                      {is_request ? "REQUEST" : answer.key.hex().substr(0, 12)},
                      {is_request ? "NEAREST" : answer.nearest->hex().substr(0, 12)}},
                     rows, out));
}

Result<int> run(Context& context, const Options& options) {
  const bool is_request = !options.template_text.empty();
  if (is_request == !options.keys.empty() ||
      (!is_request && options.keys.size() != 2)) {
    return fail(ErrorCode::kInvalidArgument,
                "give two keys, or --template NAME:p=v,... and --arch A");
  }
  const Answer answer =
      KILN_TRY(is_request ? explain_request(context, options)
                          : compare_keys(context.config, options.keys));
  if (context.json) {
    ordered_json json = {
        {"same", answer.same},
        {"key", answer.key.hex()},
        {"nearest",
         answer.nearest ? ordered_json(answer.nearest->hex()) : ordered_json(nullptr)},
        {"differences", differences_json(answer.differences)}};
    if (is_request)
      json["toolchain"] = answer.toolchain_note;
    print_json(json);
  } else {
    print_answer(answer, options, context.out);
  }
  return 0;
}

}  // namespace

Run add_why(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("KEY", options->keys,
                 "Two keys, or unique prefixes of 6 digits or more");
  app.add_option("--template", options->template_text,
                 "Explain this request instead: which entry comes nearest, and what "
                 "differs")
      ->type_name("NAME:p=v,...");
  add_arch_option(app, options->architectures);
  add_catalog_options(app, options->catalog);
  return [options](Context& context) {
    const Result<int> result = run(context, *options);
    // Of a request nothing but the key of its own is looked up.
    return options->keys.empty() ? finish(context, result)
                                 : finish_lookup(context, result);
  };
}

}  // namespace kiln::tools
