// kiln key: makes keys that sign packs, and shows them.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "codec/private_key.h"
#include "codec/trusted_keys.h"
#include "tools/output/file_output.h"
#include "tools/verbs.h"
#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"
#include "util/write_file.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kLargestFile = 4U << 20U;
constexpr mode_t kPrivate = 0600;
constexpr mode_t kPublic = 0644;

struct KeyOptions {
  std::string action;
  std::string file;
};

void print_keys(const Context& context, const std::vector<PublicKey>& keys) {
  if (!context.json) {
    for (const PublicKey& key : keys) print(to_text(key));
    return;
  }
  ordered_json list = ordered_json::array();
  for (const PublicKey& key : keys) {
    const std::string text = to_text(key);
    const std::string line = text.substr(text.find('\n') + 1);
    list.push_back(
        {{"id", key_name(key.id)}, {"public_key", line.substr(0, line.find('\n'))}});
  }
  print_json({{"keys", list}});
}

Result<int> make_key(const Context& context, const std::string& file) {
  KILN_TRY(check_output_path("key new", file));
  std::error_code unknown;
  for (const std::string& path : {file, file + ".pub"}) {
    if (std::filesystem::exists(std::filesystem::symlink_status(path, unknown)))
      return refuse("key new: {} exists already, and a key is never overwritten", path);
  }
  const PrivateKey key = KILN_TRY(PrivateKey::generate());
  KILN_TRY(create_file(file, as_bytes(KILN_TRY(key.to_pem())), kPrivate));
  KILN_TRY(create_file(file + ".pub", as_bytes(to_text(key.public_key())), kPublic));
  print_keys(context, {key.public_key()});
  if (!context.json)
    print_note(
        fmt::format("{} is the private key, {}.pub the public one\n", file, file));
  return 0;
}

Result<int> show_key(const Context& context, const std::string& file) {
  const std::string text = KILN_TRY(from_input(read_text_file(file, kLargestFile)));
  if (text.find("PRIVATE KEY") != std::string::npos) {
    print_keys(context, {KILN_TRY(PrivateKey::read(file)).public_key()});
    return 0;
  }
  std::vector<PublicKey> keys;
  for (const TrustedKey& each : KILN_TRY(about(file, parse_trusted_keys(text))).keys)
    keys.push_back(each.key);
  print_keys(context, keys);
  return 0;
}

Result<int> run(const Context& context, const KeyOptions& options) {
  if (options.action != "new" && options.action != "show")
    return refuse(
        options.action.empty()
            ? "key: name an action: kiln key new FILE or kiln key show FILE"
            : fmt::format("key: there is no `key {}`{}", options.action,
                          did_you_mean(options.action,
                                       std::vector<std::string>{"new", "show"})));
  if (options.file.empty())
    return refuse("key: name the file: kiln key {} FILE", options.action);
  return options.action == "new" ? make_key(context, options.file)
                                 : show_key(context, options.file);
}

}  // namespace

Run add_key(OptionSet& cli) {
  auto options = std::make_shared<KeyOptions>();
  cli.argument(
      "ACTION", options->action,
      "new: makes a key pair, FILE (the private key, which only you can read) and "
      "FILE.pub. show: prints the public key of FILE, a private key or public keys");
  cli.argument("FILE", options->file, "The key");
  cli.footer(
      "Private keys are Ed25519 in PEM (PKCS#8), as of `openssl genpkey -algorithm\n"
      "ed25519`; public keys have the form of minisign, which can check signatures:\n"
      "  minisign -Vm job.kpack -p signing.key.pub\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
