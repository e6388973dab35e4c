// kiln unpack: puts the objects of a pack into the cache.

#include <memory>

#include "tools/pack_file.h"
#include "tools/signing.h"
#include "tools/unpacking.h"
#include "tools/verbs.h"
#include "util/absolute_path.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct UnpackOptions {
  std::string file;
  Taking taking;
  SigningOptions signing;
};

Result<int> run(Context& context, const UnpackOptions& options) {
  const auto path = absolute_path(options.file);
  Taking taking = options.taking;
  if (taking.name.empty())
    taking.name = path.filename();
  KILN_TRY(taking.parse());
  const auto keys = KILN_TRY(trusted_keys(context.config, options.signing.keys));
  taking.keys = keys.get();
  const auto pack = KILN_TRY(
      open_pack_file(path,
                     cache::TrustPolicy::of_this_process(context.config.trusted_uids,
                                                         context.config.trusted_gids),
                     {.keys = keys.get(),
                      .is_needed = keys != nullptr,
                      .name = taking.name,
                      .takes_nameless = taking.older}));
  KILN_TRY(taking.check(pack->header(), nullptr));  // before a cache is made
  const auto cache = KILN_TRY(open_to_unpack(context));
  KILN_TRY(taking.check(pack->header(), cache.get()));
  return unpack_into_cache(context, *pack, options.file, taking, *cache);
}

}  // namespace

Run add_unpack(OptionSet& cli) {
  auto options = std::make_shared<UnpackOptions>();
  cli.argument("FILE", options->file, "A pack of `kiln pack`, compressed or not",
               Presence::kRequired);
  cli.group(kFleetGroup);
  cli.option("--keys", options->signing.keys, "FILE",
             "Public keys; a key of them must have signed the pack, or "
             "FILE.minisig (default: $KILN_REMOTE_KEYS)");
  cli.option("--name", options->taking.name, "NAME",
             "The name that the pack must have, if keys are given (default: that of "
             "FILE)");
  options->taking.add_options(cli);
  cli.footer(
      "Every object is checked as `kiln verify` does. Objects that the cache\n"
      "has already stay. The NVRTC that built the pack is recorded, as by `kiln "
      "warm`.\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
