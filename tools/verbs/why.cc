// kiln why: which fields make two keys differ, or why requests miss.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "build/build_service.h"
#include "build/nearest_entry.h"
#include "build/stored_source.h"
#include "cudnn/plan_service.h"
#include "request/selection.h"
#include "tools/architectures.h"
#include "tools/build_run.h"
#include "tools/catalog.h"
#include "tools/open_cache.h"
#include "tools/selection.h"
#include "tools/source_options.h"
#include "tools/verbs.h"
#include "tools/why_answer.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct WhyOptions {
  std::vector<std::string> words;  // keys or sources
  std::string template_text;
  std::string manifest;
  SourceFileOptions source;
  ArchitectureOptions architectures;
  CatalogOptions catalog;
};

/// A stored object, as it is compared. Errors: kNotFound, kCorrupt, kIo.
Result<Compared> compared(cache::Cache& cache, const Digest& key) {
  const auto object = KILN_TRY(cache.inspect(key));
  if (!object)
    return fail(ErrorCode::kNotFound, key.hex() + " has just been removed");
  return Compared{KILN_TRY(object->preimage()), {}, texts_of(*object)};
}

Result<WhyAnswer> compare_keys(const Config& config,
                               const std::vector<std::string>& texts) {
  const auto cache = KILN_TRY(open_cache(config));
  const auto keys = KILN_TRY(resolve_keys(*cache, texts));
  WhyAnswer answer;
  answer.key = keys[0];
  answer.nearest = keys[1];
  answer.same = keys[0] == keys[1];
  Compared a = KILN_TRY(compared(*cache, keys[0]));
  Compared b = KILN_TRY(compared(*cache, keys[1]));
  a.texts.merge(b.texts);
  answer.differences = key::differences(a.preimage, b.preimage, a.texts);
  for (const Digest& key : keys) {
    if (auto entry = KILN_TRY(cache->describe(key)))
      answer.entries.push_back(*std::move(entry));
  }
  return answer;
}

/// The kernels that the words stand for, as `kiln warm` and `kiln compile` build them.
Result<BuildReport> list_requests(Context& context, const WhyOptions& options,
                                  BuildService& service) {
  if (!options.words.empty()) {
    const Request request = KILN_TRY(make_request(context, options.source));
    KILN_TRY(from_input(service.prepare(request)));
    const auto architectures =
        KILN_TRY(select_architectures(service, options.architectures));
    BuildReport report;
    add_items(service, request, architectures, report, context.stop->token());
    return report;
  }
  SelectionOptions selection;
  selection.architectures = options.architectures;
  selection.catalog = options.catalog;
  if (!options.manifest.empty()) {
    selection.manifests = {options.manifest};
  } else {
    const auto text = KILN_TRY(request::parse_template_pattern(options.template_text));
    if (text.name.starts_with("cudnn_attention_"))
      return refuse(
          "{} is an execution plan of cuDNN: ask `kiln attention why`, with its "
          "problem as flags",
          text.name);
    selection.templates = {options.template_text};
  }
  PlanService plans(service, context.stop->token());
  return list_items(context, service, plans, selection);
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

std::string_view what_is_asked(const WhyOptions& options) {
  return !options.words.empty()      ? options.words.front()
         : !options.manifest.empty() ? options.manifest
                                     : options.template_text;
}

Result<int> explain_requests(Context& context, const WhyOptions& options) {
  Config config = context.config;
  config.template_dirs = template_folders(config, options.catalog);
  const auto service = KILN_TRY(open_to_look(context, config));
  const BuildReport report = KILN_TRY(list_requests(context, options, *service));
  KILN_TRY(check_skipped(context, report));
  MissExplainer explainer(service->cache());
  std::vector<WhyAnswer> answers;
  for (const BuildItem& item : report.items) {
    if (const auto* const error = std::get_if<Error>(&item.keyed))
      return tl::unexpected(*error);
    const auto& asked = std::get<KeyedRequest>(item.keyed);
    const auto built = service->inspect(asked);
    const KeyedRequest& keyed = built ? built->first : asked;
    const device::ToolchainChoice& choice = *keyed.toolchain;
    const auto note = fmt::format("{} ({}){}{}", choice.toolchain.name(), choice.reason,
                                  choice.warning.empty() ? "" : "; ", choice.warning);
    const Compared wanted{service->preimage(keyed), likeness_of(keyed.request),
                          texts_of(keyed.request)};
    answers.push_back(KILN_TRY(explainer.explain(keyed.key, wanted, note)));
    answers.back().label = item.label;
    answers.back().arch = item.arch;
  }
  if (answers.size() == 1)
    print_answer(answers.front(), context.json, context.out);
  else
    print_answers(what_is_asked(options), answers, shown(*service, options, answers),
                  context.json, context.out);
  const bool all_hit = std::ranges::all_of(answers, &WhyAnswer::same);
  return all_hit ? kAllDone : kSomeFailed;
}

/// Of a file's name; what is no such name is a key. A file "abc" is "./abc".
bool is_source(const std::string& word) {
  return word == "-" || word.find_first_of("./") != std::string::npos;
}

Result<int> run(Context& context, const WhyOptions& options) {
  const auto sources = std::ranges::count_if(options.words, is_source);
  const bool has_keys = !options.words.empty() && sources == 0;
  const int choices = (options.words.empty() ? 0 : 1) +
                      (options.template_text.empty() ? 0 : 1) +
                      (options.manifest.empty() ? 0 : 1);
  const bool is_mixed = sources > 0 && std::cmp_less(sources, options.words.size());
  if (choices != 1 || is_mixed || (has_keys && options.words.size() != 2)) {
    return refuse(
        "give two keys, or the kernel that misses: FILE.cu, --template NAME:p=v,... or "
        "--manifest FILE, with --arch A");
  }
  if (!has_keys)
    return explain_requests(context, options);
  print_answer(KILN_TRY(compare_keys(context.config, options.words)), context.json,
               context.out);
  return 0;
}

}  // namespace

Run add_why(OptionSet& cli) {
  auto options = std::make_shared<WhyOptions>();
  cli.argument("KEY", options->words,
               "Two keys, or unique prefixes of 6 digits or more; or FILE.cu, a source "
               "as for `kiln compile`");
  cli.option("--template", options->template_text, "NAME:p=v,...",
             "Explain the kernels that `kiln warm` builds for the same words instead: "
             "the nearest entry, and the differences");
  cli.option("--manifest", options->manifest, "FILE",
             "Explain each request of a manifest, as KILN_RECORD writes it");
  add_arch_option(cli, options->architectures);
  add_catalog_options(cli, options->catalog);
  cli.group(kBuildGroup);
  add_source_options(cli, options->source);
  cli.footer(
      "Exit status: 0 if two keys were compared, or if all requested kernels are in "
      "the\n"
      "cache; 1 if a request misses.\n"
      "\n"
      "Examples:\n"
      "  kiln why 3f9c21 8e01b7                 the differences of two entries\n"
      "  kiln why scale.cu --arch 9.0           why a source misses\n"
      "  kiln why --template scaled_softmax_fwd:dtype=bf16 --arch 9.0\n");
  return [options](Context& context) {
    options->source.files = options->words;
    const Result<int> result = run(context, *options);
    // A request has no KEY argument that could be unknown.
    return std::ranges::any_of(options->words, is_source) || options->words.empty()
               ? result
               : finish_lookup(context, result);
  };
}

}  // namespace kiln::tools
