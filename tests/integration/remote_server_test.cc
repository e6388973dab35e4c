// A remote cache whose server lies, is broken, or means well: what of its answers is
// believed, and what each says of the server.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>

#include "cache/object_header.h"
#include "codec/private_key.h"
#include "remote/client/server.h"
#include "tests/support/damaged_object.h"
#include "tests/support/fault_server.h"
#include "tests/support/paths.h"
#include "tests/support/sample_object.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"

namespace kiln::remote {
namespace {

using std::chrono::seconds;
using test::Exchange;
using test::FaultServer;

constexpr std::string_view kForAnother = "\177ELF for another device";

cache::StoredObject object_of(int number,
                              const std::string& payload = "\177ELF a cubin",
                              std::string_view target = "sm_90a") {
  test::SampleObject sample(number, payload);
  sample->target = target;
  return cache::StoredObject::make(*sample).value();
}

std::string text_of(const cache::StoredObject& object) {
  return std::string(as_text(object.file()));
}

Result<void> check_payload(const cache::StoredObject& object) {
  if (as_text(object.payload()) == kForAnother)
    return fail(ErrorCode::kCorrupt, "it is for another device");
  return {};
}

class RemoteServerTest : public testing::Test {
 protected:
  RemoteServerTest() { test::replace_keys(keys_, to_text(ours_.public_key())); }

  void set_script(FaultServer::Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  void set_body(std::string body) {
    set_script([body = std::move(body)](const Exchange& exchange) {
      exchange.answer("200 OK", body);
      return true;
    });
  }
  void set_status(const std::string& status, const std::string& headers = {}) {
    set_script([=](const Exchange& exchange) {
      exchange.answer(status, "<html>no</html>", headers);
      return true;
    });
  }

  [[nodiscard]] std::unique_ptr<Server> server(ServerAddress address = {}) {
    if (address.base.empty())
      address.base = server_.url("/kiln");
    return std::make_unique<Server>(
        std::move(address), files_,
        std::make_shared<cache::KeyFile>(
            cache::real_file_system(), cache::TrustPolicy::of_this_process({}), keys_),
        check_payload, transfers_);
  }

  /// Waits for the one answer of what `ask` starts.
  template <typename Ask>
  static Answer answer_of(const Ask& ask) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto answer = promise->get_future();
    ask([promise](Answer got) { promise->set_value(std::move(got)); });
    if (answer.wait_for(seconds(20)) != std::future_status::ready) {
      ADD_FAILURE() << "no answer at all";
      return {};
    }
    return answer.get();
  }
  Answer get(Server& from, const Digest& key, const std::string& target = "sm_90a") {
    return answer_of(
        [&](Server::Done done) { from.get(key, target, std::move(done), limits_); });
  }
  Answer get() { return get(*own_, object_.key()); }
  Answer head() {
    return answer_of([&](Server::Done done) {
      own_->head(object_.key(), std::move(done), limits_);
    });
  }
  Answer put(Server& to, const cache::StoredObject& object,
             std::span<const Signer> signers = {}) {
    return answer_of(
        [&](Server::Done done) { to.put(object, signers, std::move(done), limits_); });
  }
  Answer put() { return put(*own_, object_); }

  [[nodiscard]] static std::string block_of(const cache::StoredObject& object,
                                            const PrivateKey& key) {
    const auto digest = Blake2bHasher::of(object.file()).value();
    const Signer signer = key.signer();
    const Signature signature{signer.key, signer.sign(digest).value()};
    return std::string(as_text(encode_signatures(std::span(&signature, 1))));
  }
  [[nodiscard]] std::string good_body() const {
    return text_of(object_) + block_of(object_, ours_);
  }

  void write_auth(const std::string& text, mode_t mode = 0600) {
    files_.auth = dir_.path() / "auth";
    std::ofstream(files_.auth) << text;
    ::chmod(files_.auth.c_str(), mode);
    own_ = server();
  }

  const test::TempDir dir_;
  const fs::path keys_ = dir_.path() / "trusted.pub";
  const PrivateKey ours_ = PrivateKey::generate().value();
  const PrivateKey theirs_ = PrivateKey::generate().value();
  const cache::StoredObject object_ = object_of(1);
  TransferLimits limits_{.whole = seconds(5), .slow_for = seconds(1)};
  ServerFiles files_;
  std::mutex mutex_;
  FaultServer::Script script_ = [](const Exchange&) { return false; };
  const FaultServer server_{[this](Exchange& exchange) {
    FaultServer::Script script;
    {
      const std::lock_guard lock(mutex_);
      script = script_;
    }
    return script(exchange);
  }};
  Transfers transfers_{
      {.path = test::paths::built("bin/kiln-remote"), .name = "remote helper"}};
  std::unique_ptr<Server> own_ = server();
};

TEST_F(RemoteServerTest, ASignedObjectArrivesWithoutItsSignatures) {
  set_body(good_body());
  const Answer answer = get();
  EXPECT_EQ(answer.verdict, Verdict::kGood);
  ASSERT_TRUE(answer.object) << answer.why;
  EXPECT_EQ(text_of(*answer.object), text_of(object_));
  EXPECT_EQ(answer.bytes, good_body().size());
  EXPECT_EQ(answer.why, "");
  EXPECT_THAT(server_.heads(),
              ElementsAre(HasSubstr(fmt::format("GET /kiln/objects/v1/{}/{} HTTP/1.1",
                                                object_.key().hex().substr(0, 2),
                                                object_.key().hex().substr(2)))));
}

TEST_F(RemoteServerTest, OneTrustedSignatureAmongOthersIsEnough) {
  const auto digest = Blake2bHasher::of(object_.file()).value();
  std::vector<Signature> signatures;
  for (const PrivateKey* key : {&theirs_, &ours_})
    signatures.push_back({key->signer().key, key->signer().sign(digest).value()});
  set_body(text_of(object_) + std::string(as_text(encode_signatures(signatures))));
  EXPECT_TRUE(get().object);
}

TEST_F(RemoteServerTest, EachTruncationIsRefused) {
  const std::string body = good_body();
  std::size_t size = 0;
  set_script([&](const Exchange& exchange) {
    exchange.answer("200 OK", body.substr(0, size));
    return true;
  });
  for (size = 0; size < body.size(); ++size) {
    const Answer answer = get();
    EXPECT_FALSE(answer.object) << size;
    EXPECT_EQ(answer.verdict, Verdict::kFailed) << size;
    EXPECT_TRUE(answer.rejected) << size;
  }
}

TEST_F(RemoteServerTest, EachFlippedBitOfHeaderAndSignaturesIsRefused) {
  const std::string body = good_body();
  const std::size_t block = object_.file().size();
  std::string changed;
  set_script([&](const Exchange& exchange) {
    exchange.answer("200 OK", changed);
    return true;
  });
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (i >= cache::header::kBytes && i < block)
      continue;
    for (unsigned bit = 0; bit < 8; ++bit) {
      changed = body;
      changed[i] =
          static_cast<char>(static_cast<unsigned char>(changed[i]) ^ 1U << bit);
      const Answer answer = get();
      EXPECT_FALSE(answer.object) << i << ' ' << bit;
      EXPECT_TRUE(answer.rejected) << i << ' ' << bit << ' ' << answer.why;
    }
  }
}

TEST_F(RemoteServerTest, EachKindOfLieIsRefusedForItsOwnReason) {
  const auto refused_for = [&](const std::string& body) {
    set_body(body);
    const Answer answer = get();
    EXPECT_FALSE(answer.object);
    EXPECT_EQ(answer.verdict, Verdict::kFailed);
    EXPECT_THAT(answer.why, HasSubstr(server_.url("/kiln")));
    return answer.rejected;
  };
  const auto other = object_of(2);
  EXPECT_EQ(refused_for(text_of(other) + block_of(other, ours_)), Rejected::kChecksum)
      << "another object, sound and signed";
  const auto elsewhere = object_of(1, "\177ELF a cubin", "sm_80");
  EXPECT_EQ(refused_for(text_of(elsewhere) + block_of(elsewhere, ours_)),
            Rejected::kTarget);
  const auto payload = object_of(1, std::string(kForAnother));
  EXPECT_EQ(refused_for(text_of(payload) + block_of(payload, ours_)),
            Rejected::kTarget);
  EXPECT_EQ(refused_for(text_of(object_)), Rejected::kSignature) << "unsigned";
  EXPECT_EQ(refused_for(text_of(object_) + block_of(object_, theirs_)),
            Rejected::kSignature)
      << "an unknown key";
  EXPECT_EQ(refused_for(text_of(object_) + block_of(other, ours_)),
            Rejected::kSignature)
      << "the signature of another object";
  EXPECT_EQ(refused_for(good_body() + "x"), Rejected::kSize);
  EXPECT_EQ(refused_for(good_body() + block_of(object_, ours_)), Rejected::kSize);
  EXPECT_EQ(refused_for(""), Rejected::kSize);
  EXPECT_EQ(refused_for("<html><title>Log in</title></html>"), Rejected::kSize)
      << "a captive portal";
  EXPECT_EQ(refused_for("<html>" + std::string(5000, ' ') + "</html>"),
            Rejected::kFormat);
  Bytes newer(object_.file().begin(), object_.file().end());
  test::store_le(newer, cache::header::kVersion, std::uint32_t{2});
  test::repair_checksum(newer);
  EXPECT_EQ(refused_for(std::string(as_text(newer))), Rejected::kFormat);
}

TEST_F(RemoteServerTest,
       APoisonedPayloadWithAllHashesRemadeIsRefusedByTheSignatureAlone) {
  const auto poisoned = object_of(1, "\177ELF planted");
  ASSERT_EQ(poisoned.key(), object_.key());
  ASSERT_TRUE(poisoned.verify_fully());
  for (const std::string& block :
       {std::string(), block_of(poisoned, theirs_), block_of(object_, ours_)}) {
    set_body(text_of(poisoned) + block);
    const Answer answer = get();
    EXPECT_FALSE(answer.object);
    EXPECT_EQ(answer.rejected, Rejected::kSignature);
  }
  // Nothing else would have told.
  const auto careless = server({.base = server_.url("/kiln"), .takes_unsigned = true});
  EXPECT_TRUE(get(*careless, object_.key()).object);
}

TEST_F(RemoteServerTest, WithoutSignaturesAllOtherChecksStay) {
  const auto from = server({.base = server_.url("/kiln"), .takes_unsigned = true});
  const auto asked = [&](const std::string& body) {
    set_body(body);
    return get(*from, object_.key());
  };
  EXPECT_TRUE(asked(text_of(object_)).object);
  EXPECT_TRUE(asked(good_body()).object);
  EXPECT_TRUE(asked(text_of(object_) + block_of(object_, theirs_)).object);
  EXPECT_EQ(asked(text_of(object_) + "x").rejected, Rejected::kSize);
  EXPECT_EQ(asked(text_of(object_of(2))).rejected, Rejected::kChecksum);
  std::string flipped = text_of(object_);
  flipped[cache::header::kBytes + 3] ^= 1;
  EXPECT_EQ(asked(flipped).rejected, Rejected::kChecksum);
  Bytes remade(object_.file().begin(), object_.file().end());
  remade[cache::header::kBytes + 3] ^= std::byte{1};
  test::repair_checksum(remade);
  EXPECT_EQ(asked(std::string(as_text(remade))).rejected, Rejected::kChecksum)
      << "SHA-256 of the payload";
}

TEST_F(RemoteServerTest, WhateverTheLengthSaysTheObjectIsWholeOrNone) {
  const std::string body = good_body();
  const auto asked = [&](const std::string& headers, const std::string& content) {
    set_script([=](const Exchange& exchange) {
      exchange.send("HTTP/1.1 200 OK\r\n" + headers + "\r\n" + content);
      return false;
    });
    return get();
  };
  EXPECT_TRUE(asked("", body).object) << "none: the end of the connection";
  EXPECT_EQ(asked("", body.substr(0, 500)).rejected, Rejected::kSize);
  EXPECT_TRUE(asked("Transfer-Encoding: chunked\r\n",
                    fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body))
                  .object);
  const auto length = [&](std::size_t n) {
    return fmt::format("Content-Length: {}\r\n", n);
  };
  EXPECT_EQ(asked(length(body.size() + 1), body).end, TransferEnd::kBroken);
  EXPECT_EQ(asked(length(300), body).rejected, Rejected::kSize) << "too short";
  EXPECT_FALSE(asked("Content-Length: x\r\n", body).object);
  const Answer huge = asked(length(1ULL << 40U), body);
  EXPECT_EQ(huge.end, TransferEnd::kTooLarge);
  EXPECT_EQ(huge.rejected, Rejected::kSize);
}

TEST_F(RemoteServerTest, EachStatusSaysWhatItShould) {
  struct Row {
    const char* status;
    Verdict get, head, put;
    bool is_there;  // of the PUT
  };
  using enum Verdict;
  for (const auto& [status, of_get, of_head, of_put, is_there] : {
           Row{"201 Created", kFailed, kGood, kGood, true},
           Row{"204 No Content", kFailed, kGood, kGood, true},
           Row{"301 Moved", kFailed, kFailed, kFailed, false},
           Row{"400 Bad Request", kFailed, kFailed, kFailed, false},
           Row{"401 Unauthorized", kDenied, kDenied, kDenied, false},
           Row{"403 Forbidden", kDenied, kDenied, kDenied, false},
           Row{"404 Not Found", kGood, kGood, kFailed, false},
           Row{"405 Not Allowed", kFailed, kFailed, kDenied, false},
           Row{"408 Request Timeout", kFailed, kFailed, kFailed, false},
           Row{"409 Conflict", kFailed, kFailed, kFailed, false},
           Row{"410 Gone", kGood, kGood, kFailed, false},
           Row{"412 Precondition Failed", kFailed, kFailed, kGood, true},
           Row{"413 Too Large", kFailed, kFailed, kGood, false},
           Row{"429 Too Many Requests", kFailed, kFailed, kFailed, false},
           Row{"500 Internal Error", kFailed, kFailed, kFailed, false},
           Row{"502 Bad Gateway", kFailed, kFailed, kFailed, false},
           Row{"503 Unavailable", kFailed, kFailed, kFailed, false},
           Row{"507 Insufficient Storage", kFailed, kFailed, kFailed, false},
       }) {
    SCOPED_TRACE(status);
    set_script([status = status](const Exchange& exchange) {
      exchange.answer(status, "");
      return false;
    });
    const Answer got = get();
    EXPECT_EQ(got.verdict, of_get);
    EXPECT_FALSE(got.object);
    EXPECT_EQ(got.why.empty(), of_get == kGood);
    EXPECT_EQ(head().verdict, of_head);
    const Answer stored = put();
    EXPECT_EQ(stored.verdict, of_put);
    EXPECT_EQ(stored.is_there, is_there);
    EXPECT_EQ(stored.status, std::stoul(status));
    EXPECT_EQ(stored.why.empty(), is_there) << stored.why;
  }
}

TEST_F(RemoteServerTest, APutArrivesAlsoWhereTheConnectionIsClosedMeanwhile) {
  set_script([](const Exchange& exchange) {
    exchange.answer("201 Created", "");
    return false;  // right after the client has kept the connection
  });
  for (int i = 0; i < 100; ++i) {
    const Answer stored = put();
    EXPECT_TRUE(stored.is_there) << i << ": " << stored.why;
  }
}

TEST_F(RemoteServerTest, ARestThatIsAskedForIsPassedOn) {
  set_status("429 Too Many Requests", "Retry-After: 17\r\n");
  EXPECT_EQ(get().retry_after, seconds(17));
  set_status("503 Unavailable");
  EXPECT_FALSE(get().retry_after);
}

TEST_F(RemoteServerTest, AHeadSaysWhetherItIsThere) {
  set_script([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
    return true;
  });
  EXPECT_TRUE(head().is_there);
  set_script([](const Exchange& exchange) {
    exchange.send("HTTP/1.1 404 Not Found\r\nContent-Length: 12\r\n\r\n");
    return true;
  });
  const Answer missing = head();
  EXPECT_FALSE(missing.is_there);
  EXPECT_EQ(missing.verdict, Verdict::kGood);
}

TEST_F(RemoteServerTest, WhatIsPutIsWhatAGetBelieves) {
  std::string received;
  set_script([&](const Exchange& exchange) {
    received = exchange.body;
    exchange.answer("201 Created", "");
    return true;
  });
  const std::array signers{theirs_.signer(), ours_.signer()};
  EXPECT_TRUE(put(*own_, object_, signers).is_there);
  EXPECT_THAT(server_.heads().back(), HasSubstr("If-None-Match: *\r\n"));
  EXPECT_TRUE(received.starts_with(text_of(object_)));
  set_body(received);
  EXPECT_TRUE(get().object);
}

TEST_F(RemoteServerTest, ASignerThatFailsSendsNothing) {
  const Signer broken{{}, [](ByteView) -> Result<Ed25519Signature> {
                        return fail(ErrorCode::kUnavailable, "the module is locked");
                      }};
  const Answer answer = put(*own_, object_, std::span(&broken, 1));
  EXPECT_EQ(answer.verdict, Verdict::kAbandoned);
  EXPECT_THAT(answer.why, HasSubstr("the module is locked"));
  EXPECT_THAT(server_.heads(), SizeIs(0));
}

TEST_F(RemoteServerTest, AFolderIsAServerToo) {
  const auto folder =
      server({.base = "file://" + (dir_.path() / "far%20away").native()});
  EXPECT_EQ(get(*folder, object_.key()).verdict, Verdict::kGood);
  EXPECT_FALSE(get(*folder, object_.key()).object);
  const std::array signers{ours_.signer()};
  EXPECT_TRUE(put(*folder, object_, signers).is_there);
  EXPECT_TRUE(get(*folder, object_.key()).object);
  EXPECT_TRUE(answer_of([&](Server::Done done) {
                folder->head(object_.key(), std::move(done));
              }).is_there);
  // As a root has it.
  EXPECT_TRUE(fs::exists(dir_.path() / "far away/objects/v1" /
                         object_.key().hex().substr(0, 2) /
                         object_.key().hex().substr(2)));
}

TEST_F(RemoteServerTest, AnotherFileIsSentAndFetchedAsItIs) {
  std::string received;
  set_script([&](const Exchange& exchange) {
    received = exchange.body;
    exchange.answer("204 No Content", "");
    return true;
  });
  const std::string url = own_->address().pack_url("job");
  const auto file = BodyFile::make().value();
  ASSERT_TRUE(file.append(as_bytes("a pack that grows")));
  EXPECT_TRUE(answer_of([&](Server::Done done) {
                own_->put_file(url, file, 6, std::move(done));
              }).is_there);
  EXPECT_EQ(received, "a pack");
  EXPECT_THAT(server_.heads().back(), AllOf(HasSubstr("PUT /kiln/packs/job.kpack "),
                                            Not(HasSubstr("If-None-Match"))));
  set_body("another pack");
  const auto into = BodyFile::make().value();
  const Answer answer = answer_of(
      [&](Server::Done done) { own_->get_file(url, into, {}, std::move(done)); });
  ASSERT_EQ(answer.file_bytes, 12U);
  EXPECT_EQ(into.size(), 12U);
  EXPECT_EQ(as_text(into.read(0, 12).value()), "another pack");
}

TEST_F(RemoteServerTest, AFileGoesOnWhereItWasCutUnlessTheServerHasNoSuchPart) {
  const auto resume_after = [&](const std::string& status) {
    set_status(status);
    return answer_of([&](Server::Done done) {
             own_->get_file(server_.url("/kiln/file"), BodyFile::make().value(),
                            {4, "\"a1\""}, std::move(done));
           })
        .resume;
  };
  EXPECT_EQ(resume_after("503 Service Unavailable").bytes, 4U);
  EXPECT_EQ(resume_after("416 Range Not Satisfiable").bytes, 0U);
}

TEST_F(RemoteServerTest, TheEndOfAFileHasNoBytesOfAnOlderBody) {
  const auto end_from = [&](std::uint64_t begin, const std::string& status,
                            const std::string& headers, const std::string& body) {
    set_script([=](const Exchange& exchange) {
      exchange.answer(status, body, headers);
      return true;
    });
    return answer_of([&](Server::Done done) {
      own_->get_end(server_.url("/kiln/file"), begin, std::move(done),
                    {.most_bytes = 20});
    });
  };
  const auto text = [](const Answer& answer) {
    return std::string(as_text(answer.end_bytes));
  };
  const std::string part = "206 Partial Content";
  const Answer whole = end_from(0, "200 OK", "", "0123456789abcdef");
  EXPECT_EQ(text(whole), "0123456789abcdef");
  EXPECT_EQ(whole.whole_bytes, 16U);
  EXPECT_THAT(server_.heads().back(), Not(HasSubstr("Range:")));
  const Answer end = end_from(10, part, "Content-Range: bytes 10-12/13\r\n", "xyz");
  EXPECT_EQ(text(end), "xyz");
  EXPECT_EQ(end.whole_bytes, 13U);
  EXPECT_THAT(server_.heads().back(),
              AllOf(HasSubstr("Range: bytes=10-\r\n"), Not(HasSubstr("If-Range"))));
  const Answer unknown = end_from(10, "200 OK", "", "0123456789XY");
  EXPECT_EQ(text(unknown), "XY") << "a server that knows no ranges gives the whole";
  const Answer shorter = end_from(10, "200 OK", "", "012");
  EXPECT_TRUE(shorter.is_there);
  EXPECT_EQ(text(shorter), "");
  EXPECT_EQ(shorter.whole_bytes, 3U);
  for (const Answer& none :
       {end_from(10, "200 OK", "", ""), end_from(10, "416 No", "", "an error page"),
        end_from(10, part, "", "no range"),
        end_from(10, part, "Content-Range: bytes 9-12/13\r\n", "wxyz")}) {
    EXPECT_TRUE(none.is_there);
    EXPECT_EQ(text(none), "");
  }
  EXPECT_EQ(end_from(10, "404 Not Found", "", "an error page").is_there, false);
  EXPECT_EQ(end_from(10, "200 OK", "", std::string(21, 'x')).rejected, Rejected::kSize);
}

// Who asks.

TEST_F(RemoteServerTest, EachKindOfCredentialsIsSent) {
  const auto sent = [&](const std::string& text) {
    write_auth(text);
    set_body("");
    get();
    return server_.heads().back();
  };
  EXPECT_THAT(sent("bearer abc.def\n"), HasSubstr("Authorization: Bearer abc.def\r\n"));
  EXPECT_THAT(sent("basic me:a pass\n"),
              HasSubstr("Authorization: Basic bWU6YSBwYXNz\r\n"));
  EXPECT_THAT(
      sent("aws AKID:SECRETKEY\n"),
      AllOf(HasSubstr("Authorization: AWS4-HMAC-SHA256 Credential=AKID/"),
            HasSubstr("/us-east-1/s3/aws4_request"), Not(HasSubstr("SECRETKEY"))));
  EXPECT_THAT(sent("aws AKID:SECRET:KEY  SESSION/+=\n"),
              AllOf(HasSubstr("Credential=AKID/"),
                    HasSubstr("x-amz-security-token: SESSION/+=\r\n"),
                    Not(HasSubstr("SECRET:KEY"))));
}

TEST_F(RemoteServerTest, EachServerHasTheLineWithTheLongestPrefixOfItsUrl) {
  set_body("");
  const auto sent = [&](const std::string& base) {
    own_ = server({.base = base});
    get();
    const std::string head = server_.heads().back();
    const std::size_t at = head.find("Bearer ");
    return at == std::string::npos ? ""
                                   : head.substr(at + 7, head.find('\r', at) - at - 7);
  };
  const std::string host = server_.url("");
  write_auth(
      fmt::format("bearer rest\n\n  # by host\n{}/ bearer host\n"
                  "{}/kiln bearer path\r\n{}/kiln/open none\n",
                  "HTTP" + host.substr(4), host, host));
  EXPECT_EQ(sent(host), "host");
  EXPECT_EQ(sent(host + "/other"), "host");
  EXPECT_EQ(sent(host + "/kilns"), "host") << "no prefix ends within a name";
  EXPECT_EQ(sent(host + "/KILN"), "host");
  EXPECT_EQ(sent(host + "/kiln"), "path");
  EXPECT_EQ(sent(host + "/kiln/x"), "path");
  EXPECT_EQ(sent(host + "/kiln/open/x"), "");
  EXPECT_EQ(sent(server_.url("", "localhost")), "rest");
  // A host that begins so, and another port, are others.
  write_auth(fmt::format("{} bearer one\n{}9 bearer other", host, host));
  EXPECT_EQ(sent(host), "one");
  const std::string without_port = host.substr(0, host.rfind(':'));
  write_auth(fmt::format("{} bearer one\n{} bearer two", without_port,
                         host.substr(0, host.size() - 1)));
  EXPECT_EQ(sent(host), "");
}

TEST_F(RemoteServerTest, CredentialsOfTheEnvironmentGoWithTheirSession) {
  ::setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "SECRETKEY", 1);
  ::setenv("AWS_SESSION_TOKEN", "SESSION", 1);
  ::setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
  write_auth("aws");
  set_body("");
  get();
  EXPECT_THAT(server_.heads().back(),
              AllOf(HasSubstr("Credential=AKENV/"), HasSubstr("/eu-west-1/s3/"),
                    HasSubstr("x-amz-security-token: SESSION\r\n"),
                    HasSubstr("x-amz-security-token,"), Not(HasSubstr("SECRETKEY"))))
      << "the token is among the signed headers";
  own_ = server({.base = server_.url("/kiln"), .region = "us-gov-1"});
  get();
  EXPECT_THAT(server_.heads().back(), HasSubstr("/us-gov-1/s3/"));
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                           "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"})
    ::unsetenv(name);
  for (const char* name : {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"})
    ::setenv(name, "/nothing/here", 1);
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  own_ = server();
  EXPECT_EQ(get().verdict, Verdict::kDenied) << "'aws' alone, without the variables";
}

TEST_F(RemoteServerTest, BadCredentialsAreNotSentNorShown) {
  const auto refused = [&](const std::string& text, mode_t mode = 0600) {
    write_auth(text, mode);
    const Answer answer = get();
    EXPECT_EQ(answer.verdict, Verdict::kDenied) << text;
    EXPECT_THAT(answer.why,
                AllOf(HasSubstr("KILN_REMOTE_AUTH"), Not(HasSubstr("secret"))));
    return answer.why;
  };
  EXPECT_THAT(refused("bearer secret", 0640), HasSubstr("chmod 600"));
  EXPECT_THAT(refused("bearer secret", 0604), HasSubstr("chmod 600"));
  refused("secret");
  refused("");
  refused("bearer");
  refused("bearer secret secret");
  refused("bearer secret\nbearer secret2");
  refused("bearer secret\rX-Other: 1");
  refused("basic secret");
  refused("basic :secret");
  refused("aws secret");
  refused("aws secret:");
  refused("aws KEY:secret TOKEN more");
  refused("aws profile");
  refused("aws profile one secret");
  refused("none secret");
  refused("query secret");
  refused("command");
  const std::string url = server_.url("/kiln");
  refused(url + " query secret#");
  EXPECT_THAT(refused("bearer fine\n\n# a comment\n" + url + " baerer secret\n"),
              HasSubstr("line 4: it is none of 'bearer TOKEN'"));
  EXPECT_THAT(refused("bearer secret\nhttps://c none\nbasic a:secret"),
              HasSubstr("lines 1 and 3 are for the same servers"));
  EXPECT_THAT(refused(url + "/ none\nHTTP" + url.substr(4) + " none"),
              HasSubstr("lines 1 and 2"));
  EXPECT_THAT(refused(" \n# bearer secret\n"), HasSubstr("has no line"));
  files_.auth = dir_.path() / "missing";
  own_ = server();
  EXPECT_THAT(get().why, HasSubstr("KILN_REMOTE_AUTH"));
  EXPECT_THAT(server_.heads(), SizeIs(0));
}

TEST_F(RemoteServerTest, AWrongLineStopsItsOwnServersAlone) {
  write_auth(
      "https://c baerer x\nhttps://d none\nhttps://d none\nhttps://me:x@e none\n"
      "https:// none\nbearer fine\n");
  set_body("");
  get();
  EXPECT_THAT(server_.heads().back(), HasSubstr("Bearer fine\r\n"));
}

TEST_F(RemoteServerTest, CredentialsAreReadAgainWhenTheyAreAskedFor) {
  write_auth("bearer old");
  set_status("401 Unauthorized");
  EXPECT_EQ(get().verdict, Verdict::kDenied);
  write_auth("bearer new");
  own_->read_credentials_again();
  get();
  EXPECT_THAT(server_.heads().back(), HasSubstr("Bearer new\r\n"));
}

TEST_F(RemoteServerTest, TheCertificatesKeyIsASecret) {
  files_.certificate = dir_.path() / "client.pem";
  std::ofstream(files_.certificate) << "x";
  ::chmod(files_.certificate.c_str(), 0644);
  own_ = server();
  EXPECT_THAT(get().why, AllOf(HasSubstr("KILN_REMOTE_CERT"), HasSubstr("chmod 600")));
}

TEST_F(RemoteServerTest, NoErrorHasASecret) {
  write_auth("bearer secret");
  for (const char* status : {"401 Unauthorized", "500 Error", "302 Found"}) {
    set_status(status);
    EXPECT_THAT(get().why, Not(HasSubstr("secret")));
    EXPECT_THAT(put().why, Not(HasSubstr("secret")));
  }
  own_ = server({.base = "http://127.0.0.1:1/kiln"});
  const Answer gone = get();
  EXPECT_EQ(gone.end, TransferEnd::kConnect);
  EXPECT_EQ(gone.verdict, Verdict::kFailed);
  EXPECT_THAT(gone.why, AllOf(HasSubstr("GET http://127.0.0.1:1/kiln/objects/v1/"),
                              Not(HasSubstr("secret"))));
}

// Its life.

TEST_F(RemoteServerTest, WhatIsCancelledIsNotReported) {
  std::promise<void> is_asked;
  set_script([&](const Exchange& exchange) {
    is_asked.set_value();
    exchange.wait_for_its_end();
    return false;
  });
  std::atomic<bool> is_reported = false;
  const auto id =
      own_->get(object_.key(), "", [&](const Answer&) { is_reported = true; });
  is_asked.get_future().wait();
  own_->cancel(id);
  set_body(good_body());
  EXPECT_TRUE(get().object);
  EXPECT_FALSE(is_reported);
}

TEST_F(RemoteServerTest, WhatRunsOutlivesItsServer) {
  set_body(good_body());
  const Answer answer = answer_of([&](Server::Done done) {
    own_->get(object_.key(), "sm_90a", std::move(done));
    own_.reset();
  });
  EXPECT_TRUE(answer.object);
}

TEST_F(RemoteServerTest, WithoutItsHelperAServerFailsAndSaysSo) {
  Transfers none({.path = dir_.path() / "kiln-remote", .name = "remote helper"});
  Server from({.base = server_.url()}, {}, {}, {}, none);
  const Answer answer = get(from, object_.key());
  EXPECT_EQ(answer.end, TransferEnd::kHelper);
  EXPECT_EQ(answer.verdict, Verdict::kFailed);
  EXPECT_THAT(answer.why, HasSubstr("kiln-remote"));
}

}  // namespace
}  // namespace kiln::remote
