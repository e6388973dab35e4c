#include "tests/fault/corruption/corruption.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace kiln::test {
namespace {

constexpr std::size_t kMostMessages = 10;  // of a test that fails

std::optional<Result<RealObjects>>& built() {
  static std::optional<Result<RealObjects>> objects;
  return objects;
}

/// "<64 hex>-<unix ns>-<check>"
std::string check_in(const fs::path& quarantined_file) {
  const std::string name = quarantined_file.filename();
  return name.substr(name.rfind('-') + 1);
}

}  // namespace

void Corruption::SetUpTestSuite() {
  built() = build_real_objects();
}

void Corruption::TearDownTestSuite() {
  built().reset();
}

const RealObjects& Corruption::objects() {
  return **built();
}

void Corruption::SetUp() {
  if (!*built() && built()->error().code == ErrorCode::kUnavailable)
    GTEST_SKIP() << "NO REAL OBJECTS HERE, nothing was damaged: "
                 << built()->error().message;
  ASSERT_TRUE(*built()) << built()->error().message;
  reopen();
  ASSERT_EQ(cache_->mode(), cache::Mode::kReadWrite) << cache_->mode_reason();
  for (const RealObject* object : objects().all()) install(layout(), *object);
  expect_all_right("nothing");
  injected_ = 0;
}

void Corruption::TearDown() {
  if (IsSkipped())
    return;
  cache_.reset();
  const char* const name =
      testing::UnitTest::GetInstance()->current_test_info()->name();
  std::printf("%s: injected=%zu wrong=%zu\n", name, injected_, wrong_);
  EXPECT_GT(injected_, 0U);
  EXPECT_EQ(wrong_, 0U);
}

void Corruption::reopen() {
  cache_.reset();
  cache_ = cache::Cache::open(options_of(root_));
}

void Corruption::note(bool wrong, const char* what, std::size_t where) {
  ++injected_;
  wrong_ += wrong ? 1 : 0;
  if (wrong && wrong_ <= kMostMessages)
    ADD_FAILURE() << what << " " << where;
}

void Corruption::count(std::size_t injected, std::size_t wrong) {
  injected_ += injected;
  wrong_ += wrong;
}

void Corruption::expect_miss(const RealObject& object, const char* what,
                             std::size_t where) {
  note(ask(*cache_, object) != Answer::kMiss, what, where);
}

Answer Corruption::expect_not_wrong(const RealObject& object, const char* what,
                                    std::size_t where) {
  const Answer answer = ask(*cache_, object);
  note(answer == Answer::kWrong, what, where);
  return answer;
}

void Corruption::expect_all_right(const char* what, std::size_t where) {
  bool right = true;
  for (const RealObject* object : objects().all())
    right = right && ask(*cache_, *object) == Answer::kRight;
  note(!right, what, where);
}

DamagedFile::DamagedFile(const cache::Layout& layout, const RealObject& object)
    : layout_(layout),
      path_(layout.object(object.key)),
      fd_(::open(path_.c_str(), O_RDWR | O_CLOEXEC)) {
  EXPECT_TRUE(fd_) << path_;
}

void DamagedFile::write(std::size_t offset, ByteView bytes) {
  EXPECT_EQ(::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
            static_cast<ssize_t>(bytes.size()));
}

void DamagedFile::resize(std::size_t size) {
  EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(size)), 0);
}

void DamagedFile::rewrite(ByteView file) {
  resize(file.size());
  write(0, file);
}

std::optional<std::string> DamagedFile::take_back() {
  std::error_code gone;
  for (const auto& file : fs::directory_iterator(layout_.quarantine(), gone)) {
    fs::rename(file.path(), path_);
    return check_in(file.path());
  }
  return std::nullopt;
}

std::vector<std::string> quarantined(const cache::Layout& layout) {
  std::vector<std::string> checks;
  std::error_code gone;
  for (const auto& file : fs::directory_iterator(layout.quarantine(), gone))
    checks.push_back(check_in(file.path()));
  return checks;
}

}  // namespace kiln::test
