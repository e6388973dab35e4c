// kiln why: which fields make two keys differ, or why requests miss.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

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

/// What `kiln warm` builds for the same words, for the one architecture that is asked
/// for. Kernels that are not built for it are left out.
Result<std::vector<KeyedRequest>> key_requests(BuildService& service,
                                               const WhyOptions& options,
                                               const std::stop_token& stop) {
  const auto text = KILN_TRY(request::parse_template_pattern(options.template_text));
  if (text.name.starts_with("cudnn_attention_"))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is an execution plan of cuDNN: ask `kiln attention why`, "
                    "with its problem as flags",
                    text.name));
  request::Selection selection(service.catalog());
  KILN_TRY(selection.add_template(options.template_text));
  const auto architectures =
      KILN_TRY(select_architectures(service, options.architectures));
  if (architectures.size() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                "why explains one architecture at a time: --arch 9.0");
  }
  std::vector<KeyedRequest> found;
  std::string why_none;
  for (const request::TemplateRequest& each : selection.requests()) {
    const auto prepared =
        KILN_TRY(service.prepare(Request(each.kernel->name(), each.params.values())));
    auto keyed = KILN_TRY(service.key(prepared, architectures[0], stop));
    if (const auto* skipped = std::get_if<device::TargetSkipped>(&keyed))
      why_none = fmt::format("{} is not built for {}: {}", prepared.label(),
                             to_string(architectures[0]), skipped->reason);
    else
      found.push_back(std::get<KeyedRequest>(std::move(keyed)));
  }
  if (found.empty())
    return fail(ErrorCode::kInvalidArgument, why_none);
  return found;
}

/// What a program gets by these words, in which a parameter left out has its default;
/// or the first that misses, or the first.
std::size_t shown(BuildService& service, const WhyOptions& options,
                  const std::vector<WhyAnswer>& answers) {
  if (const auto text = request::parse_template_pattern(options.template_text)) {
    if (const auto asked = service.prepare(Request(text->name, text->params))) {
      const auto same = std::ranges::find(answers, asked->label(), &WhyAnswer::label);
      if (same != answers.end())
        return static_cast<std::size_t>(same - answers.begin());
    }
  }
  const auto miss = std::ranges::find(answers, false, &WhyAnswer::same);
  return miss == answers.end() ? 0 : static_cast<std::size_t>(miss - answers.begin());
}

Result<int> explain_requests(const Context& context, const WhyOptions& options) {
  Config config = context.config;
  config.template_dirs = template_folders(config, options.catalog);
  const auto service = KILN_TRY(open_to_look(context, config));
  MissExplainer explainer(service->cache());
  std::vector<WhyAnswer> answers;
  for (const KeyedRequest& keyed :
       KILN_TRY(key_requests(*service, options, context.stop->token()))) {
    const device::ToolchainChoice& choice = *keyed.toolchain;
    const auto note = fmt::format("{} ({}){}{}", choice.toolchain.name(), choice.reason,
                                  choice.warning.empty() ? "" : "; ", choice.warning);
    answers.push_back(
        KILN_TRY(explainer.explain(keyed.key, service->preimage(keyed),
                                   keyed.request.as_template()->kernel->name(), note)));
    answers.back().label = keyed.request.label();
  }
  if (answers.size() == 1)
    print_answer(answers.front(), context.json, context.out);
  else
    print_answers(options.template_text, answers, shown(*service, options, answers),
                  context.json, context.out);
  return 0;
}

Result<int> run(Context& context, const WhyOptions& options) {
  const bool is_request = !options.template_text.empty();
  if (is_request == !options.keys.empty() ||
      (!is_request && options.keys.size() != 2)) {
    return fail(ErrorCode::kInvalidArgument,
                "give two keys, or --template NAME:p=v,... and --arch A");
  }
  if (is_request)
    return explain_requests(context, options);
  print_answer(KILN_TRY(compare_keys(context.config, options.keys)), context.json,
               context.out);
  return 0;
}

}  // namespace

Run add_why(OptionSet& cli) {
  auto options = std::make_shared<WhyOptions>();
  cli.argument("KEY", options->keys,
               "Two keys, or unique prefixes of 6 digits or more");
  cli.option("--template", options->template_text, "NAME:p=v,...",
             "Explain what `kiln warm` builds for the same words instead: which entry "
             "comes nearest, and what differs");
  add_arch_option(cli, options->architectures);
  add_catalog_options(cli, options->catalog);
  return [options](Context& context) {
    const Result<int> result = run(context, *options);
    // A request has no KEY argument that could be unknown.
    return options->keys.empty() ? result : finish_lookup(context, result);
  };
}

}  // namespace kiln::tools
