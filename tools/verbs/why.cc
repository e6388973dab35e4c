// kiln why: which fields make two keys differ, or why a request misses.

#include <fmt/format.h>

#include <memory>

#include "build/build_service.h"
#include "request/selection.h"
#include "tools/architectures.h"
#include "tools/catalog.h"
#include "tools/open_cache.h"
#include "tools/verbs.h"
#include "tools/why_answer.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct WhyOptions {
  std::vector<std::string> keys;
  std::string template_text;
  ArchitectureOptions architectures;
  CatalogOptions catalog;
};

Result<WhyAnswer> compare_keys(const Config& config,
                               const std::vector<std::string>& texts) {
  const auto cache = KILN_TRY(open_cache(config));
  const auto keys = KILN_TRY(resolve_keys(*cache, texts));
  WhyAnswer answer;
  answer.key = keys[0];
  answer.nearest = keys[1];
  answer.same = keys[0] == keys[1];
  answer.differences = key::differences(KILN_TRY(preimage_of(*cache, keys[0])),
                                        KILN_TRY(preimage_of(*cache, keys[1])));
  return answer;
}

Result<KeyedRequest> key_request(BuildService& service, const WhyOptions& options,
                                 const std::stop_token& stop) {
  const auto text = KILN_TRY(request::parse_template_pattern(options.template_text));
  if (text.name.starts_with("cudnn_attention_"))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is an execution plan of cuDNN: ask `kiln attention why`, "
                    "with its problem as flags",
                    text.name));
  const auto prepared = KILN_TRY(service.prepare(Request(text.name, text.params)));
  const auto architectures =
      KILN_TRY(select_architectures(service, options.architectures));
  if (architectures.size() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                "why explains one architecture at a time: --arch 9.0");
  }
  auto keyed = KILN_TRY(service.key(prepared, architectures[0], stop));
  if (const auto* skipped = std::get_if<device::TargetSkipped>(&keyed)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not built for {}: {}", prepared.label(),
                            to_string(architectures[0]), skipped->reason));
  }
  return std::get<KeyedRequest>(std::move(keyed));
}

Result<WhyAnswer> explain_request(const Context& context, const WhyOptions& options) {
  Config config = context.config;
  config.template_dirs = template_folders(config, options.catalog);
  const auto service = KILN_TRY(
      BuildService::open(config, {.stop = context.stop->token(), .make_root = false}));
  const KeyedRequest keyed =
      KILN_TRY(key_request(*service, options, context.stop->token()));
  const device::ToolchainChoice& choice = *keyed.toolchain;
  const auto note = fmt::format("{} ({}){}{}", choice.toolchain.name(), choice.reason,
                                choice.warning.empty() ? "" : "; ", choice.warning);
  return explain_miss(service->cache(), keyed.key, service->preimage(keyed),
                      keyed.request.as_template()->kernel->name(), note);
}

Result<int> run(Context& context, const WhyOptions& options) {
  const bool is_request = !options.template_text.empty();
  if (is_request == !options.keys.empty() ||
      (!is_request && options.keys.size() != 2)) {
    return fail(ErrorCode::kInvalidArgument,
                "give two keys, or --template NAME:p=v,... and --arch A");
  }
  print_answer(KILN_TRY(is_request ? explain_request(context, options)
                                   : compare_keys(context.config, options.keys)),
               context.json, context.out);
  return 0;
}

}  // namespace

Run add_why(OptionSet& cli) {
  auto options = std::make_shared<WhyOptions>();
  cli.argument("KEY", options->keys,
               "Two keys, or unique prefixes of 6 digits or more");
  cli.option("--template", options->template_text, "NAME:p=v,...",
             "Explain this request instead: which entry comes nearest, and what "
             "differs");
  add_arch_option(cli, options->architectures);
  add_catalog_options(cli, options->catalog);
  return [options](Context& context) {
    const Result<int> result = run(context, *options);
    // A request has no KEY argument that could be unknown.
    return options->keys.empty() ? finish(context, result)
                                 : finish_lookup(context, result);
  };
}

}  // namespace kiln::tools
