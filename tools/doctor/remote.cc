// Remote caches: how far each is away, whether it lets this machine in, and whether
// what is sent there is believed when it comes back. Shows no secret.

#include <fmt/format.h>

#include <cstdlib>

#include "build/remote_setup.h"
#include "kiln/version.h"
#include "tools/doctor/doctor.h"
#include "tools/remote/remote_run.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using remote::Server;
using remote::ServerAddress;
using remote::TransferEnd;
using remote::Verdict;
using std::chrono::seconds;

constexpr seconds kClocksDiffer{60};
constexpr seconds kSigningEnds{900};  // S3 refuses requests that are older

/// PTX, which every machine takes, under a key that no request has.
Result<cache::StoredObject> probe_object() {
  constexpr std::string_view kPtx =
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry kiln_doctor() { ret; }\n";
  cache::NewObject object{.kind = cache::Kind::kPtx,
                          .target = "compute_70",
                          .metadata = {},
                          .preimage = {},
                          .payload = as_bytes(kPtx),
                          .log = {},
                          .source = {},
                          .ptx = {}};
  object.metadata.arch = "7.0";
  object.metadata.producer = "kiln doctor";
  object.metadata.entry_points = {{"kiln_doctor", "kiln_doctor"}};
  object.preimage.add("kind", "doctor");
  return cache::StoredObject::make(object);
}

std::string ms(std::chrono::microseconds time) {
  return fmt::format("{:.1f} ms",
                     std::chrono::duration<double, std::milli>(time).count());
}

/// "name 0.4 ms, connected 1.2 ms, TLS 9.1 ms, answer 12.0 ms".
std::string steps(const remote::TransferTimes& times) {
  std::string text;
  const auto add = [&](std::string_view what, std::chrono::microseconds time) {
    if (time.count() > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, ms(time));
  };
  add("name", times.name);
  add("connected", times.connect);
  add("TLS", times.tls);
  add("answer", times.first_byte);
  return text;
}

/// What to do about a server that cannot be asked, or does not let this machine in.
std::string remedy_of(const remote::Answer& answer, const ServerAddress& address,
                      const remote::Proxy& proxy) {
  constexpr std::uint32_t kProxyWantsPassword = 407;
  if (!proxy.url.empty() &&
      (answer.status == kProxyWantsPassword || answer.end == TransferEnd::kConnect))
    return fmt::format(
        "look whether the {} runs and lets this machine in; "
        "\";proxy=\" behind the URL, or NO_PROXY, goes without",
        proxy.text());
  constexpr std::uint32_t kBadRequest = 400;
  if (answer.verdict == Verdict::kDenied && answer.status == kBadRequest)
    return "renew the session's credentials where KILN_REMOTE_AUTH (--auth) has them";
  if (answer.verdict == Verdict::kDenied)
    return answer.status == 0
               ? "mend the variable, or the file that KILN_REMOTE_AUTH (--auth) or "
                 "KILN_REMOTE_CERT names"
               : "give credentials that suffice by KILN_REMOTE_AUTH (--auth); S3 says "
                 "403 for a missing object unless they may list the bucket "
                 "(s3:ListBucket)";
  switch (answer.end) {
    case TransferEnd::kConnect:
      return answer.times.name.count() == 0 ? "look whether the name is right, and "
                                              "whether this machine resolves it: "
                                              "getent hosts NAME"
                                            : "look whether the server runs, on this "
                                              "port, and lets this machine in";
    case TransferEnd::kTls:
      return "look at the server's certificate, at this machine's clock, and whether "
             "KILN_REMOTE_CA names the authority that signed it";
    case TransferEnd::kTimeout:
      return address.base.starts_with("https:")
                 ? "look whether a firewall drops its packets, and whether the server "
                   "speaks TLS"
                 : "look whether a firewall drops its packets, or the server is stuck";
    case TransferEnd::kBodyFile:
      return "free room where TMPDIR points, or point it elsewhere";
    case TransferEnd::kHelper:
      return "install libcurl 7.85 or later, or reinstall Kiln";
    default:
      break;
  }
  if (answer.status == kBadRequest && address.base.starts_with("https:"))
    return fmt::format(
        "name the client's certificate and key by KILN_REMOTE_CERT, if the server asks "
        "for one; else look into the log of {}",
        address.base);
  return fmt::format("look into the log of {}", address.base);
}

class RemoteCheck {
 public:
  RemoteCheck(const RemoteSettings& settings, RemoteRun& run, std::size_t server,
              Diagnosis& diagnosis)
      : settings_(settings),
        run_(run),
        server_(server),
        address_(run.address(server)),
        is_written_(address_.mode == remote::Mode::kReadWrite),
        diagnosis_(diagnosis) {
    facts_.url = address_.base;
    facts_.mode = is_written_ ? "rw" : "r";
    if (auto found = remote::find_proxy(address_, remote::read_variables()))
      proxy_ = *std::move(found);
    facts_.proxy = proxy_.url;
  }

  void run() {
    const bool is_usable = ask_for_nothing();
    if (const std::string who = run_.server(server_).open_to(); !who.empty())
      add(", password", CheckVerdict::kWarn,
          fmt::format("a password or token is sent to {} without encryption", who),
          "use https");
    if (is_usable) {
      if (is_written_)
        send_and_ask();
      compare_clocks();
    }
    diagnosis_.remotes.push_back(facts_);
  }

 private:
  void add(const std::string& what, CheckVerdict verdict, std::string detail,
           std::string remedy = "") {
    diagnosis_.add({fmt::format("remote {}{}", address_.base, what), verdict,
                    std::move(detail), std::move(remedy)});
  }

  remote::Answer get(const Digest& key) {
    return run_.ask_once(server_, [&](Server& asked, Server::Done done) {
      return asked.get(key, {}, std::move(done));
    });
  }

  /// True if the server can be asked for objects.
  bool ask_for_nothing() {
    const remote::Answer answer = get(random_key());
    facts_.times = answer.times;
    facts_.status = answer.status;
    if (answer.server_time > 0)
      facts_.clock_offset = seconds(answer.server_time) -
                            std::chrono::duration_cast<seconds>(
                                std::chrono::system_clock::now().time_since_epoch());
    if (answer.rejected || answer.object) {
      add("", CheckVerdict::kFail,
          fmt::format("it has an object for a key that nobody made: {}", answer.why),
          "another service answers at this URL, such as a page to log in, or the URL "
          "is wrong");
      return false;
    }
    if (answer.verdict != Verdict::kGood) {
      add("", CheckVerdict::kFail, answer.why + with_credentials() + through_proxy(),
          remedy_of(answer, address_, proxy_));
      return false;
    }
    const std::string times = steps(answer.times);  // none for a folder
    const std::string detail = fmt::format(
        "mode {}{}{}{}{}{}", facts_.mode, address_.takes_unsigned ? ", unsigned" : "",
        with_credentials(), through_proxy(), times.empty() ? "" : ": ", times);
    const bool is_open = remote::is_open_way(address_.base);
    if (answer.times.whole > settings_.wait)
      add("", CheckVerdict::kWarn, detail,
          fmt::format(
              "the first request takes longer than a get waits, {} ms: the kernel is "
              "built here meanwhile; raise KILN_REMOTE_WAIT, or take a nearer server",
              settings_.wait.count()));
    else if (is_open && address_.takes_unsigned)
      add("", CheckVerdict::kWarn, detail,
          "a machine on the way can plant code, since nothing is signed or encrypted: "
          "sign (`kiln key new`), or use https");
    else
      add("", CheckVerdict::kOk, detail);
    return true;
  }

  /// ", credentials of profile kernels".
  [[nodiscard]] std::string with_credentials() const {
    const std::string source = run_.server(server_).credentials_source();
    return source.empty() ? "" : fmt::format(", credentials of {}", source);
  }

  /// ", proxy http://p:3128 (https_proxy)".
  [[nodiscard]] std::string through_proxy() const {
    const std::string text = proxy_.text();
    return text.empty() ? "" : fmt::format(", {}", text);
  }

  void send_and_ask() {
    const auto object = probe_object();
    if (!object)
      return add(", PUT", CheckVerdict::kFail, object.error().message, "report this");
    const remote::Answer put =
        run_.ask_once(server_, [&](Server& asked, Server::Done done) {
          return asked.put(*object, run_.signers(), std::move(done), {},
                           remote::Existing::kIsReplaced);
        });
    if (!put.is_there)
      return add(
          ", PUT", CheckVerdict::kFail, put.why,
          put.verdict == Verdict::kDenied
              ? "give credentials that may write by KILN_REMOTE_AUTH (--auth), or "
                "say mode=r"
              : remedy_of(put, address_, proxy_));
    facts_.put = put.times.whole;
    const remote::Answer back = get(object->key());
    if (back.object)
      return add(", PUT", CheckVerdict::kOk,
                 fmt::format("sent in {}, and believed when it comes back",
                             ms(put.times.whole)));
    const bool is_unsigned = run_.signers().empty();
    add(", PUT", CheckVerdict::kFail,
        fmt::format(
            "sent, and not believed when it comes back: {}",
            back.why.empty() ? "the server does not have the object" : back.why),
        back.rejected != remote::Rejected::kSignature
            ? remedy_of(back, address_, proxy_)
        : is_unsigned
            ? "sign the objects that this machine sends: KILN_REMOTE_SIGN names a "
              "private key"
            : "add the public key of KILN_REMOTE_SIGN to the file of KILN_REMOTE_KEYS");
  }

  void compare_clocks() {
    if (!facts_.clock_offset)
      return;
    const seconds offset = *facts_.clock_offset;
    const std::string detail =
        fmt::format("the server's clock is {} s {}", std::abs(offset.count()),
                    offset.count() < 0 ? "behind" : "ahead");
    if (std::chrono::abs(offset) < kClocksDiffer)
      return add(", clock", CheckVerdict::kOk, detail);
    add(", clock", CheckVerdict::kWarn, detail,
        fmt::format("set both clocks by NTP: {}",
                    std::chrono::abs(offset) < kSigningEnds
                        ? "certificates may seem invalid"
                        : "S3 refuses requests whose time is off, and certificates may "
                          "seem invalid"));
  }

  const RemoteSettings& settings_;
  RemoteRun& run_;
  const std::size_t server_;
  const ServerAddress& address_;
  const bool is_written_;
  Diagnosis& diagnosis_;
  remote::Proxy proxy_;
  RemoteFacts facts_;
};

}  // namespace

void check_remotes(const Context& context, Diagnosis& diagnosis) {
  if (context.config.remote.servers.empty())
    return;
  if (const auto setup = remote_setup(context.config); setup && setup->servers.empty())
    return diagnosis.add({"remote", CheckVerdict::kOk, "switched off"});
  const auto run = RemoteRun::open(context, RemoteUse::kService);
  if (!run)
    return diagnosis.add({"remote", CheckVerdict::kFail, run.error().message,
                          run.error().code == ErrorCode::kUnavailable
                              ? "install kiln-remote beside kiln-worker, and libcurl"
                              : "mend the setting, or take it away"});
  for (std::size_t i = 0; i < (*run)->server_count(); ++i)
    RemoteCheck(context.config.remote, **run, i, diagnosis).run();
}

}  // namespace kiln::tools
