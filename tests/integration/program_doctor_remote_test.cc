// kiln doctor asks each remote cache, and says what is wrong with it and what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>

#include "tests/support/object_server.h"
#include "tests/support/program.h"

namespace kiln {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class ProgramDoctorRemoteTest : public testing::Test {
 protected:
  ProgramDoctorRemoteTest() {
    kiln_.use_fake_nvrtc();
    EXPECT_EQ(kiln_.run({"key", "new", place("ours")}).status, 0);
    kiln_.set("KILN_REMOTE", server_.url());
    kiln_.set("KILN_REMOTE_KEYS", place("ours.pub"));
  }

  [[nodiscard]] std::string place(const std::string& name) const {
    return kiln_.folder() / name;
  }
  /// The report; the driver, of which there is none, makes it no failure.
  json report(int status = 0) { return kiln_.json_of({"doctor"}, status); }
  json check(const json& of, const std::string& name) {
    for (const json& each : of["checks"]) {
      if (each["name"] == name)
        return each;
    }
    ADD_FAILURE() << "no check " << name << " in " << of.dump(1);
    return {{"verdict", ""}, {"detail", ""}, {"remedy", ""}};
  }
  json remote(const json& of, const std::string& what = "") {
    return check(of, "remote " + server_.url() + what);
  }
  void answer_all(const std::string& status, const std::string& headers = {}) {
    server_.set_fault(
        [=](const test::Exchange& exchange, const std::string&, const std::string&) {
          exchange.answer(status, "<html>no</html>", headers);
          return true;
        });
  }
  void use_auth(const std::string& text) {
    const std::string auth = kiln_.write("auth", text);
    ::chmod(auth.c_str(), 0600);
    kiln_.set("KILN_REMOTE_AUTH", auth);
  }

  test::ObjectServer server_;
  test::KilnProgram kiln_;
};

TEST_F(ProgramDoctorRemoteTest, AServerThatAnswersIsWellAndItsTimesAreShown) {
  const json all = report();
  EXPECT_EQ(remote(all)["verdict"], "ok");
  EXPECT_THAT(remote(all)["detail"].get<std::string>(),
              AllOf(HasSubstr("mode r"), HasSubstr("connected"), HasSubstr("answer")));
  ASSERT_THAT(all["remotes"], SizeIs(1));
  EXPECT_EQ(all["remotes"][0]["url"], server_.url());
  EXPECT_EQ(all["remotes"][0]["status"], 404);
  EXPECT_GT(all["remotes"][0]["get_ms"], 0.0);
  EXPECT_TRUE(all["remotes"][0]["put_ms"].is_null());
  EXPECT_EQ(server_.count("PUT"), 0U) << "it is for reading";
}

TEST_F(ProgramDoctorRemoteTest, WhatIsSentHasToBeBelievedWhenItComesBack) {
  kiln_.set("KILN_REMOTE_MODE", "rw");
  kiln_.set("KILN_REMOTE_SIGN", place("ours"));
  const json well = report();
  EXPECT_EQ(remote(well, ", PUT")["verdict"], "ok");
  EXPECT_GT(well["remotes"][0]["put_ms"], 0.0);
  report();
  EXPECT_THAT(server_.files(), SizeIs(1)) << "always the same object";
  ASSERT_EQ(kiln_.run({"key", "new", place("theirs")}).status, 0);
  kiln_.set("KILN_REMOTE_SIGN", place("theirs"));
  const json foreign = remote(report(1), ", PUT");
  EXPECT_EQ(foreign["verdict"], "fail");
  EXPECT_THAT(foreign["remedy"].get<std::string>(), HasSubstr("KILN_REMOTE_KEYS"));
  kiln_.unset("KILN_REMOTE_SIGN");
  EXPECT_THAT(remote(report(1), ", PUT")["remedy"].get<std::string>(),
              HasSubstr("KILN_REMOTE_SIGN"));
}

TEST_F(ProgramDoctorRemoteTest, AServerThatTakesNothingIsForReading) {
  kiln_.set("KILN_REMOTE_MODE", "rw");
  server_.set_fault([](const test::Exchange& exchange, const std::string& method,
                       const std::string&) {
    if (method != "PUT")
      return false;
    exchange.answer("405 Not Allowed", "");
    return true;
  });
  const json all = report(1);
  EXPECT_EQ(remote(all)["verdict"], "ok");
  EXPECT_THAT(remote(all, ", PUT")["remedy"].get<std::string>(), HasSubstr("mode=r"));
}

TEST_F(ProgramDoctorRemoteTest, EachWayToFailHasItsRemedy) {
  const auto remedy = [&](const std::string& url) {
    kiln_.set("KILN_REMOTE", url);
    const json found = check(report(1), "remote " + url);
    EXPECT_EQ(found["verdict"], "fail");
    return found["remedy"].get<std::string>();
  };
  EXPECT_THAT(remedy("http://127.0.0.1:1"), HasSubstr("whether the server runs"));
  EXPECT_THAT(remedy("http://kiln.invalid"), HasSubstr("getent hosts"));
  EXPECT_THAT(remedy("https" + server_.url().substr(4)), HasSubstr("speaks TLS"));
  answer_all("403 Forbidden");
  EXPECT_THAT(remedy(server_.url()), HasSubstr("KILN_REMOTE_AUTH"));
  answer_all("500 Broken");
  EXPECT_THAT(remedy(server_.url()), HasSubstr("log"));
  answer_all("200 OK");
  EXPECT_THAT(remedy(server_.url()), HasSubstr("page to log in"));
}

TEST_F(ProgramDoctorRemoteTest, ClocksThatDifferAreSaid) {
  const auto with_offset = [&](int seconds) {
    const std::time_t then = std::time(nullptr) + seconds;
    std::array<char, 64> text{};
    std::tm utc{};
    std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT",
                  ::gmtime_r(&then, &utc));
    answer_all("404 Not Found", "Date: " + std::string(text.data()) + "\r\n");
    const json all = report();
    EXPECT_NEAR(all["remotes"][0]["clock_offset_s"].get<int>(), seconds, 3);
    return remote(all, ", clock");
  };
  EXPECT_EQ(with_offset(2)["verdict"], "ok");
  const json ahead = with_offset(86400);
  EXPECT_EQ(ahead["verdict"], "warn");
  EXPECT_THAT(ahead["detail"].get<std::string>(), HasSubstr("ahead"));
  EXPECT_THAT(with_offset(-86400)["detail"].get<std::string>(), HasSubstr("behind"));
}

TEST_F(ProgramDoctorRemoteTest, ASettingThatIsWrongIsACheckThatFails) {
  kiln_.set("KILN_REMOTE", "https://c;mdoe=rw");
  EXPECT_THAT(check(report(1), "remote")["detail"].get<std::string>(),
              HasSubstr("did you mean 'mode'"));
  kiln_.set("KILN_REMOTE", server_.url());
  kiln_.unset("KILN_REMOTE_KEYS");
  EXPECT_THAT(check(report(1), "remote")["detail"].get<std::string>(),
              HasSubstr("no key is trusted"));
  kiln_.set("KILN_REMOTE_MODE", "off");
  EXPECT_EQ(check(report(), "remote")["detail"], "switched off");
  EXPECT_THAT(server_.heads(), SizeIs(0));
}

TEST_F(ProgramDoctorRemoteTest, NoReportHasASecret) {
  use_auth("bearer hunter2");
  for (const char* status : {"401 Unauthorized", "404 Not Found", "500 Broken"}) {
    answer_all(status);
    for (const auto& arguments :
         {test::KilnProgram::Arguments{"doctor"}, {"doctor", "--json"}})
      EXPECT_THAT(kiln_.run(arguments).text(), Not(HasSubstr("hunter2")));
  }
  EXPECT_THAT(server_.heads(), Each(HasSubstr("Bearer hunter2")));
  use_auth("hunter2");
  EXPECT_THAT(kiln_.run({"doctor"}).text(),
              AllOf(HasSubstr("KILN_REMOTE_AUTH"), Not(HasSubstr("hunter2"))));
}

}  // namespace
}  // namespace kiln
