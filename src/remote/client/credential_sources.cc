#include "remote/client/credential_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "process/run_command.h"
#include "remote/client/auth_file.h"
#include "remote/client/aws_profile.h"
#include "remote/client/credentials.h"
#include "remote/proxy.h"
#include "remote/server_address.h"
#include "util/ascii.h"
#include "util/printable.h"
#include "util/read_file.h"
#include "util/text.h"
#include "util/try.h"

namespace kiln::remote {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr std::uint64_t kLargest = 65536;
constexpr seconds kCommandLimit{10};
constexpr const char* kTokenFileVariable = "AWS_WEB_IDENTITY_TOKEN_FILE";

/// RFC 3339: "2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00+00:00".
Result<std::optional<WallTime>> time_of(const std::string& text) {
  if (text.empty())
    return std::nullopt;
  std::tm time{};
  std::tm zone{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest != nullptr && *rest == '.')
    for (++rest; is_digit(*rest);) ++rest;
  if (rest != nullptr)
    rest = ::strptime(rest, "%z", &zone);
  if (rest == nullptr || *rest != '\0')
    return refuse("its time of expiry is no time such as 2026-01-31T12:00:00Z");
  constexpr std::time_t kFarAhead = 8'000'000'000;  // a clock's end is in 2262
  return std::chrono::system_clock::from_time_t(
      std::clamp<std::time_t>(::timegm(&time) - zone.tm_gmtoff, 0, kFarAhead));
}

/// The text of the first element <name>, which has no other in it; "": there is none.
std::string_view element_of(std::string_view xml, std::string_view name) {
  const std::string begin = fmt::format("<{}>", name);
  const std::size_t found = xml.find(begin);
  if (found == std::string_view::npos)
    return {};
  xml.remove_prefix(found + begin.size());
  return xml.substr(0, xml.find('<'));
}

/// Keys of AWS; `text_of` gives a member by its name, or "".
template <typename TextOf>
Result<FoundCredentials> keys_of(const TextOf& text_of) {
  const std::string key(text_of("AccessKeyId"));
  const std::string secret(text_of("SecretAccessKey"));
  FoundCredentials found;
  found.who.user = fmt::format("{}:{}", key, secret);
  found.who.aws_token = text_of("SessionToken");
  if (found.who.aws_token.empty())
    found.who.aws_token = text_of("Token");
  if (!is_word(key) || !is_word(secret) || !is_word(found.who.aws_token + "-"))
    return refuse("it has no AccessKeyId and SecretAccessKey");
  found.ends = KILN_TRY(time_of(std::string(text_of("Expiration"))));
  return found;
}

/// Keys as AWS gives them, or a header as Bazel's helpers do.
Result<FoundCredentials> parse_json_credentials(std::string_view text) {
  const json answer = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&](const char* place) {
    const json::json_pointer pointer(fmt::format("/{}", place));
    return answer.contains(pointer) && answer[pointer].is_string()
               ? answer[pointer].get<std::string>()
               : "";
  };
  if (!answer.is_object())
    return refuse("it is no JSON object");
  if (!answer.contains("headers"))
    return keys_of(text_of);
  FoundCredentials found;
  found.who.authorization = text_of("headers/Authorization/0");
  if (found.who.authorization.empty() ||
      std::ranges::any_of(found.who.authorization,
                          [](unsigned char c) { return c < ' ' || c == 0x7F; }))
    return refuse("its headers have no Authorization");
  found.ends = KILN_TRY(time_of(text_of("expires")));
  return found;
}

TransferRequest request_of(std::string url, seconds limit) {
  return {.url = std::move(url),
          .limits = {.connect = seconds(1),
                     .whole = limit,
                     .slow_for = limit,
                     .most_bytes = kLargest},
          .replaces = true,
          .headers = {"Accept: */*"}};
}

Result<std::string> token_in(const std::string& path, const char* name) {
  const std::string text = KILN_TRY(about(name, read_text_file(path, kLargest)));
  const std::string_view token = trimmed(text);
  if (!is_word(token) && token.find(' ') == std::string_view::npos)
    return refuse("{}: it has no token", name);
  return std::string(token);
}

/// STS gives keys of a role, for a token of a cluster, as a pod of EKS has it (IRSA),
/// or to `signer`.
Result<FoundCredentials> of_role(AwsProfile role, const Credentials& signer,
                                 const std::string& region, const Asking& ask) {
  if (!is_region(region))
    return refuse("the region '{}' is no name such as us-east-1", printable(region));
  std::string endpoint =
      first_of({"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"}, ask.variable).second;
  if (endpoint.empty())
    endpoint = fmt::format("https://sts.{}.amazonaws.com{}", region,
                           region.starts_with("cn-") ? ".cn" : "");
  if (is_open_way(endpoint) || host_of(endpoint).host.empty())
    return refuse("the URL of STS is not https, and what it is sent is a secret");
  const Proxy proxy = KILN_TRY(find_proxy({.base = endpoint}, ask.variable));
  TransferRequest request = request_of(std::move(endpoint), seconds(5));
  request.form = "Version=2011-06-15";
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty())
      request.form += fmt::format("&{}={}", name, escaped(value));
  };
  if (const std::string& file = role["web_identity_token_file"]; !file.empty()) {
    add("Action", "AssumeRoleWithWebIdentity");
    add("WebIdentityToken", KILN_TRY(token_in(file, kTokenFileVariable)));
  } else {
    add("Action", "AssumeRole");
    add("ExternalId", role["external_id"]);
    request.credentials = signer;
    request.credentials.aws_region = region;
  }
  std::string session = role["role_session_name"];
  if (session.empty())
    session = ask.variable("AWS_ROLE_SESSION_NAME");
  add("RoleArn", role["role_arn"]);
  add("RoleSessionName", session.empty() ? "kiln" : session);
  add("DurationSeconds", role["duration_seconds"]);
  request.credentials.proxy = proxy.url;
  request.credentials.proxy_user = proxy.user;
  request.credentials.ca_bundle = ask.variable("AWS_CA_BUNDLE");
  const std::string what = fmt::format("STS, for {}", printable(role["role_arn"]));
  const std::string text = KILN_TRY(about(what, ask.fetch(std::move(request))));
  auto found = KILN_TRY(about(
      what, keys_of([&](std::string_view name) { return element_of(text, name); })));
  found.source = fmt::format("web identity {}", role["role_arn"]);
  return found;
}

/// Of a task of ECS or a pod of EKS (Pod Identity). Only these hosts are asked, as by
/// AWS's own programs: a URL from elsewhere would get the token.
Result<FoundCredentials> of_container(const Asking& ask) {
  constexpr std::string_view kHosts = "169.254.170.2,169.254.170.23,fd00:ec2::23";
  const std::string relative = ask.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url = relative.empty()
                              ? ask.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                              : fmt::format("http://169.254.170.2{}", relative);
  const bool is_http = url.starts_with("http://");
  if ((!is_http && !url.starts_with("https://")) || !is_word(url) ||
      url.find_first_of("@\\#") != std::string::npos ||
      (is_http && !is_loopback(url) && !is_without_proxy(url, kHosts)))
    return refuse(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI is neither https "
        "nor of a host that gives containers credentials");
  TransferRequest request = request_of(url, seconds(2));
  std::string token = ask.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = ask.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty())
    token = KILN_TRY(token_in(file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
  request.credentials.authorization = std::move(token);
  constexpr const char* kWhat = "the credentials of the container";
  const std::string text = KILN_TRY(about(kWhat, ask.fetch(std::move(request))));
  auto found = KILN_TRY(about(kWhat, parse_json_credentials(text)));
  found.source = "the container's role";
  return found;
}

/// Of an instance of EC2, by version 2 of its metadata.
Result<FoundCredentials> of_instance(const Asking& ask) {
  constexpr seconds kLimit{2};
  if (lower_case(ask.variable("AWS_EC2_METADATA_DISABLED")) == "true")
    return refuse("AWS_EC2_METADATA_DISABLED is true");
  std::string base = ask.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  while (base.ends_with('/')) base.pop_back();
  if (base.empty())
    base = "http://169.254.169.254";
  TransferRequest put = request_of(base + "/latest/api/token", kLimit);
  put.method = Method::kPut;
  put.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 60"};
  const std::string token = KILN_TRY(ask.fetch(std::move(put)));
  if (!is_word(token))
    return refuse("it gives no token");
  std::string url = base + "/latest/meta-data/iam/security-credentials/";
  const auto get = [&] {
    TransferRequest request = request_of(url, kLimit);
    request.headers = {"X-aws-ec2-metadata-token: " + token};
    return ask.fetch(std::move(request));
  };
  const std::string roles = KILN_TRY(get());
  std::string_view rest = roles;
  const std::string role(trimmed(next_part(rest, "\n")));
  if (!is_word(role) || role.find_first_of("/?#") != std::string::npos)
    return refuse("the instance has no role");
  url += role;
  const std::string text = KILN_TRY(get());
  auto found = KILN_TRY(parse_json_credentials(text));
  found.source = fmt::format("the instance's role {}", role);
  return found;
}

Result<FoundCredentials> of_environment(const Asking& ask) {
  const std::string key = ask.variable("AWS_ACCESS_KEY_ID");
  const std::string secret = ask.variable("AWS_SECRET_ACCESS_KEY");
  if (key.empty() || secret.empty())
    return refuse("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set");
  FoundCredentials found{.source = "AWS_ACCESS_KEY_ID"};
  found.who.user = fmt::format("{}:{}", key, secret);
  found.who.aws_token = ask.variable("AWS_SESSION_TOKEN");
  return found;
}

/// What the last profile of a chain has beside a role.
Result<FoundCredentials> of_last_profile(AwsProfile& profile, const Asking& ask) {
  const std::string& source = profile["credential_source"];
  if (source == "Environment")
    return of_environment(ask);
  if (source == "EcsContainer")
    return of_container(ask);
  if (source == "Ec2InstanceMetadata")
    return of_instance(ask);
  if (!source.empty())
    return refuse("credential_source is '{}', which Kiln does not know",
                  printable(source));
  FoundCredentials found;
  if (!profile["role_arn"].empty())
    return found;  // its token is enough
  if (const std::string& key = profile["aws_access_key_id"]; !key.empty()) {
    found.who.user = fmt::format("{}:{}", key, profile["aws_secret_access_key"]);
    found.who.aws_token = profile["aws_session_token"];
    return found;
  }
  found = KILN_TRY(ask_command(profile["credential_process"], {}));
  if (found.who.user.empty())
    return refuse("credential_process gives no keys");
  return found;
}

/// `chain`: of read_aws_profiles(name).
Result<FoundCredentials> of_profiles(std::vector<AwsProfile> chain,
                                     const std::string& name, std::string region,
                                     const Asking& ask) {
  if (region.empty())
    region = chain.front()["region"];
  FoundCredentials found = KILN_TRY(of_last_profile(chain.back(), ask));
  for (; !chain.empty(); chain.pop_back()) {
    if (!chain.back()["role_arn"].empty())
      found = KILN_TRY(
          of_role(std::move(chain.back()), found.who, region_for(region, ask), ask));
  }
  found.who.aws_region = std::move(region);
  found.source = fmt::format("profile {}", name);
  return found;
}

Result<FoundCredentials> of_profile(const std::string& name, const std::string& region,
                                    const Asking& ask) {
  return of_profiles(KILN_TRY(read_aws_profiles(name, ask.variable)), name, region,
                     ask);
}

/// The first of AWS's sources that is there, and no other if that one fails.
Result<FoundCredentials> of_any(const std::string& region, const Asking& ask) {
  if (auto keys = of_environment(ask))
    return keys;
  if (const std::string name = ask.variable("AWS_PROFILE"); !name.empty())
    return of_profile(name, region, ask);
  const std::string role = ask.variable("AWS_ROLE_ARN");
  const std::string token_file = ask.variable(kTokenFileVariable);
  if (!role.empty() && !token_file.empty())
    return of_role({{"role_arn", role}, {"web_identity_token_file", token_file}}, {},
                   region_for(region, ask), ask);
  constexpr const char* kDefault = "default";
  if (auto by_default = read_aws_profiles(kDefault, ask.variable);
      by_default || by_default.error().code != ErrorCode::kNotFound)
    return of_profiles(KILN_TRY(std::move(by_default)), kDefault, region, ask);
  if (!ask.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
      !ask.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty())
    return of_container(ask);
  return about(
      "'aws' alone needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a web "
      "identity, or the role of a container or an instance; the metadata of the "
      "instance",
      of_instance(ask));
}

std::string named_region(const std::string& region, const Asking& ask) {
  return region.empty()
             ? first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, ask.variable).second
             : region;
}

}  // namespace

std::string region_for(const std::string& region, const Asking& ask) {
  const std::string named = named_region(region, ask);
  return named.empty() ? "us-east-1" : named;
}

Result<FoundCredentials> find_aws_keys(std::string_view value,
                                       const std::string& region, const Asking& ask) {
  const std::string asked = named_region(region, ask);
  const std::string_view first = next_word(value);
  if (first == "profile")
    return of_profile(std::string(value), asked, ask);
  if (first.empty())
    return of_any(asked, ask);
  FoundCredentials found;
  found.who.user = first;
  found.who.aws_token = value;
  return found;
}

Result<FoundCredentials> ask_command(std::string_view command, std::string_view url) {
  std::vector<std::string> words;
  bool is_quoted = false;
  bool is_in_word = false;
  for (const char each : command) {
    if (!is_quoted && (each == ' ' || each == '\t')) {
      is_in_word = false;
      continue;
    }
    if (!std::exchange(is_in_word, true))
      words.emplace_back();
    if (each == '"')
      is_quoted = !is_quoted;
    else
      words.back() += each;
  }
  if (words.empty() || is_quoted)
    return refuse("it names no command, or '\"' has no end");
  const std::string name = words.front();
  const std::string input = fmt::format("{{\"uri\":\"{}\"}}\n", url);
  const std::string text = KILN_TRY(run_command({.name = name,
                                                 .words = std::move(words),
                                                 .input = as_bytes(input),
                                                 .limit = kCommandLimit,
                                                 .most_bytes = kLargest,
                                                 .quotes_errors = true}));
  auto found = KILN_TRY(about(name, parse_json_credentials(text)));
  found.source = fmt::format("command {}", name);
  return found;
}

std::string escaped(std::string_view text) {
  std::string url;
  for (const char each : text) {
    const auto c = static_cast<unsigned char>(each);
    url += std::isalnum(c) != 0 ? std::string(1, each) : fmt::format("%{:02X}", c);
  }
  return url;
}

std::string_view error_code_of(std::string_view body) {
  constexpr std::size_t kLongest = 64;
  const std::string_view code = element_of(body, "Code").substr(0, kLongest);
  return std::ranges::all_of(code, is_name_char) ? code : std::string_view();
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return c > ' ' && c != 0x7F;
  });
}

}  // namespace kiln::remote
