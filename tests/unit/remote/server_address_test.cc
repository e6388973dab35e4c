#include "remote/server_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln::remote {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

std::string why(const std::string& text) {
  const auto parsed = parse_servers(text);
  EXPECT_FALSE(parsed) << text;
  return parsed ? "" : parsed.error().message;
}

TEST(ServerAddressTest, ServersAndTheirOptionsAreRead) {
  const auto servers = parse_servers(
      "  https://cache.example:8443/kiln/;layout=bazel;unsigned=1;mode=rw;"
      "region=eu-north-1 http://[::1]:80\tfile:///srv/kiln/;mode=off; ");
  ASSERT_TRUE(servers) << servers.error().message;
  ASSERT_THAT(*servers, SizeIs(3));
  EXPECT_EQ((*servers)[0], (ServerAddress{.base = "https://cache.example:8443/kiln",
                                          .layout = Layout::kBazel,
                                          .mode = Mode::kReadWrite,
                                          .takes_unsigned = true,
                                          .region = "eu-north-1"}));
  EXPECT_EQ((*servers)[1], (ServerAddress{.base = "http://[::1]:80"}));
  EXPECT_EQ((*servers)[2],
            (ServerAddress{.base = "file:///srv/kiln", .mode = Mode::kOff}));
  EXPECT_THAT(*parse_servers(""), SizeIs(0));
}

TEST(ServerAddressTest, AnObjectLiesWhereARootHasItOrWhereBazelLooks) {
  const auto key = Digest::from_hex(std::string(62, '0') + "ab").value();
  ServerAddress server{.base = "https://c"};
  EXPECT_EQ(server.object_url(key),
            "https://c/objects/v1/00/" + std::string(60, '0') + "ab");
  server.layout = Layout::kBazel;
  EXPECT_EQ(server.object_url(key), "https://c/ac/" + std::string(62, '0') + "ab");
}

TEST(ServerAddressTest, APackIsNamedWithOrWithoutItsEnding) {
  const ServerAddress server{.base = "https://c"};
  EXPECT_EQ(server.pack_url("job-7"), "https://c/packs/job-7.kpack");
  EXPECT_EQ(server.pack_url("job.kpack"), "https://c/packs/job.kpack");
  EXPECT_EQ(server.pack_url("job.kpack.zst"), "https://c/packs/job.kpack.zst");
  for (const char* name : {"a", "Job_7.sm90-x", "0"}) EXPECT_TRUE(is_pack_name(name));
  for (const char* name : {"", ".", "..", "-o", "_a", "a/b", "a b", "a%2f", "ä", "a?"})
    EXPECT_FALSE(is_pack_name(name)) << name;
}

TEST(ServerAddressTest, WhatIsNoServerIsRefusedWithItsReason) {
  EXPECT_THAT(why("cache.example/kiln"), HasSubstr("https://"));
  EXPECT_THAT(why("s3://bucket"), HasSubstr("https://"));
  EXPECT_THAT(why("https://"), HasSubstr("names no host"));
  EXPECT_THAT(why("https:///kiln"), HasSubstr("names no host"));
  EXPECT_THAT(why("file://srv/kiln"), HasSubstr("file:///srv/kiln"));
  EXPECT_THAT(why("https://c/kiln?x=1"), HasSubstr("? or #"));
  EXPECT_THAT(why("https://c\x01/kiln"), HasSubstr("character"));
  EXPECT_THAT(why("https://c https://c/"), HasSubstr("twice"));
  EXPECT_THAT(why("https://c;layuot=bazel"), HasSubstr("did you mean 'layout'?"));
  EXPECT_THAT(why("https://c;layout=flat"), HasSubstr("neither objects nor bazel"));
  EXPECT_THAT(why("https://c;mode=w"), HasSubstr("none of off, r and rw"));
  EXPECT_THAT(why("https://c;mode=r;mode=rw"), HasSubstr("mode: it is given twice"));
  EXPECT_THAT(why("https://c;unsigned=yes"), HasSubstr("neither 1 nor 0"));
  EXPECT_THAT(why("https://c;region="), HasSubstr("region"));
}

TEST(ServerAddressTest, AMessageShowsNoPassword) {
  EXPECT_THAT(why("https://me:secret@cache.example/kiln"),
              AllOf(HasSubstr("KILN_REMOTE_AUTH"), Not(HasSubstr("secret"))));
  EXPECT_THAT(why("gopher://me:secret@cache.example"), Not(HasSubstr("secret")));
  EXPECT_THAT(why("https://c/kiln?token=secret"), Not(HasSubstr("secret")));
  EXPECT_THAT(why("s3://c/kiln?token=secret"), Not(HasSubstr("secret")));
  EXPECT_THAT(why("https://c;token=secret"), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace kiln::remote
