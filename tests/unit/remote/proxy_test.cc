#include "remote/proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace kiln::remote {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Variables = std::map<std::string, std::string>;

Result<Proxy> found(const std::string& server, const Variables& variables) {
  return find_proxy(parse_servers(server).value().front(), [&](const char* name) {
    const auto each = variables.find(name);
    return each == variables.end() ? "" : each->second;
  });
}

std::string text_of(const std::string& server, const Variables& variables) {
  return found(server, variables).value().text();
}

TEST(ProxyTest, EachSchemeHasTheVariablesThatCurlReads) {
  const Variables all{{"http_proxy", "a:1"},  {"HTTP_PROXY", "evil:1"},
                      {"https_proxy", "b:2"}, {"HTTPS_PROXY", "c:3"},
                      {"all_proxy", "d:4"},   {"ALL_PROXY", "e:5"}};
  EXPECT_EQ(text_of("http://c", all), "proxy http://a:1 (http_proxy)");
  EXPECT_EQ(text_of("https://c", all), "proxy http://b:2 (https_proxy)");
  EXPECT_EQ(text_of("file:///c", all), "");
  EXPECT_EQ(text_of("http://c", {{"HTTP_PROXY", "evil:1"}}), "")
      << "a CGI program has it from its client";
  EXPECT_EQ(text_of("https://c", {{"HTTPS_PROXY", "c:3"}}),
            "proxy http://c:3 (HTTPS_PROXY)");
  EXPECT_EQ(text_of("http://c", {{"ALL_PROXY", "socks5h://e:5/"}}),
            "proxy socks5h://e:5 (ALL_PROXY)");
  EXPECT_EQ(text_of("https://c", {{"all_proxy", "d:4"}, {"ALL_PROXY", "e:5"}}),
            "proxy http://d:4 (all_proxy)");
}

TEST(ProxyTest, TheServersOwnOptionOverridesTheVariables) {
  const Variables variables{{"http_proxy", "a:1"}, {"no_proxy", "*"}};
  EXPECT_EQ(text_of("http://c;proxy=https://own:9", variables),
            "proxy https://own:9 (;proxy=)");
  EXPECT_EQ(text_of("http://c;proxy=", variables), "no proxy (;proxy=)");
  EXPECT_EQ(text_of("http://127.0.0.1;proxy=own:9", variables),
            "proxy http://own:9 (;proxy=)");
}

TEST(ProxyTest, ThisMachineIsReachedDirectly) {
  const Variables variables{{"http_proxy", "a:1"}};
  for (const char* here :
       {"http://127.0.0.1:80", "http://LocalHost/x", "http://[::1]:8080"})
    EXPECT_EQ(text_of(here, variables), "") << here;
  for (const char* other : {"http://127.0.0.1.example", "http://localhost.example",
                            "http://[::2]", "http://128.0.0.1"})
    EXPECT_NE(text_of(other, variables), "") << other;
}

TEST(ProxyTest, APasswordIsApartFromTheUrlAndInNoMessage) {
  const auto proxy = found("https://c", {{"https_proxy", "http://me:p@ss%40@b:2/"}});
  ASSERT_TRUE(proxy) << proxy.error().message;
  EXPECT_EQ(*proxy,
            (Proxy{.url = "http://b:2", .user = "me:p@ss%40", .by = "https_proxy"}));
  EXPECT_THAT(proxy->text(), Not(HasSubstr("p@ss")));
  for (const char* bad : {"gopher://me:hunter2@b", "http://me:hunter2@", "b:hunter2",
                          "http://b c:hunter2", "http://b/hunter2", "http://b:"})
    EXPECT_THAT(found("https://c", {{"https_proxy", bad}}).error().message,
                AllOf(HasSubstr("https_proxy"), Not(HasSubstr("hunter2"))))
        << bad;
}

TEST(ProxyTest, NoProxyNamesHostsSuffixesPortsAndNetworks) {
  struct Case {
    const char* url;
    const char* list;
    bool is_without;
  };
  for (const auto& [url, list, is_without] : std::initializer_list<Case>{
           {"http://cache.example", "cache.example", true},
           {"http://Cache.Example:8080/kiln", "other, cACHE.example", true},
           {"http://cache.example.", "cache.example", true},
           {"http://cache.example", "cache.example.", true},
           {"http://cache.example", "example", true},
           {"http://cache.example", ".example", true},
           {"http://example", ".example", true},
           {"http://badexample", "example", false},
           {"http://example.evil", "example", false},
           {"http://cache.example", "*.example", false},
           {"http://cache.example", "*", true},
           {"http://cache.example", "", false},
           {"http://cache.example", ",, .", false},
           {"http://cache.example:8080", "cache.example:8080", true},
           {"http://cache.example", "cache.example:80", true},
           {"https://cache.example", "cache.example:443", true},
           {"https://cache.example", "cache.example:80", false},
           {"http://10.1.2.3", "10.0.0.0/8", true},
           {"http://10.1.2.3:9", "10.1.2.0/31", false},
           {"http://10.1.2.3", "10.1.2.2/31", true},
           {"http://10.1.2.3", "0.0.0.0/0", true},
           {"http://cafe", "0.0.0.0/0", false},
           {"http://10.1.2.3", "10.0.0.0/33", false},
           {"http://10.1.2.3", "10.0.0.0/x", false},
           {"http://10.1.2.3", "10.1.2.3", true},
           {"http://10.1.2.30", "10.1.2.3", false},
           {"http://10.1.2.3", "2.3", false},
           {"http://10.1.2.3", "::/0", false},
           {"http://[fd00::1]:80", "fd00::/8", true},
           {"http://[fd00::1]:80", "[fd00:0::1]", true},
           {"http://[fd00::1]:81", "[fd00::1]:80", false},
           {"http://[fe00::1]", "fd00::/8", false}})
    EXPECT_EQ(is_without_proxy(url, list), is_without) << url << " in " << list;
  EXPECT_EQ(
      text_of("http://c.example", {{"http_proxy", "a:1"}, {"NO_PROXY", "c.example"}}),
      "no proxy (NO_PROXY)");
  EXPECT_EQ(
      text_of("http://c.example",
              {{"http_proxy", "a:1"}, {"no_proxy", "x"}, {"NO_PROXY", "c.example"}}),
      "proxy http://a:1 (http_proxy)")
      << "the lower case one counts";
}

}  // namespace
}  // namespace kiln::remote
