#include "cache/signers.h"

#include <fstream>
#include <set>

#include "cache/cache.h"
#include "tests/support/in_threads.h"
#include "tests/support/is_error.h"
#include "tests/support/sample_pack.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/trusted_keys.h"
#include "util/log.h"

namespace kiln::cache {
namespace {

using testing::Pair;

constexpr KeyId key_of(unsigned char number) {
  return {std::byte(number)};
}

class SignersTest : public testing::Test {
 protected:
  ~SignersTest() override { log_to({}); }

  static Made object(int number, std::int64_t created_ns = 7) {
    return {Digest::of(as_bytes(std::to_string(number))), created_ns};
  }
  void add(const std::vector<Made>& objects, const KeyId& key = key_of(1),
           const std::string& source = "job.kpack@5") {
    const auto added = signers_.add(objects, {{key}, source});
    ASSERT_TRUE(added) << added.error().message;
  }
  [[nodiscard]] std::string text(const KeyId& key = key_of(1)) const {
    std::ifstream file(folder_ / key_name(key));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text, const KeyId& key = key_of(1)) {
    test::write_bytes(folder_ / key_name(key), as_bytes(text));
  }
  [[nodiscard]] static std::size_t lines_of(const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count(text, '\n'));
  }

  const test::TempDir dir_;
  const fs::path folder_ = dir_.path() / "signers";
  const Signers signers_{OwnFolder(folder_)};
};

TEST_F(SignersTest, WhoSignedAnObjectIsKnownWithItsSource) {
  EXPECT_THAT(signers_.read(), IsEmpty());
  add({object(1)});
  add({object(1)}, key_of(2), "https://cache.example/kiln");
  ASSERT_TRUE(signers_.add(std::array{object(2)}, {{key_of(1), key_of(2)}, "a b@0"}));
  const auto known = signers_.read();
  ASSERT_EQ(known.size(), 2U);
  EXPECT_THAT(
      known.at(object(1)),
      testing::UnorderedElementsAre(SignedBy{key_of(1), "job.kpack@5"},
                                    SignedBy{key_of(2), "https://cache.example/kiln"}));
  EXPECT_EQ(known.at(object(2)).size(), 2U);
  EXPECT_TRUE(signers_.add(std::array{object(3)}, {{}, "unsigned"}));
  EXPECT_EQ(signers_.read().size(), 2U);
}

TEST_F(SignersTest, AnotherBuildOfTheKeyHasNoSigner) {
  add({object(1, 7)});
  EXPECT_TRUE(signers_.read().contains(object(1, 7)));
  EXPECT_FALSE(signers_.read().contains(object(1, 8)));
}

TEST_F(SignersTest, ASecondUnpackOfTheSamePackAddsNothing) {
  const std::vector<Made> objects{object(1), object(2), object(3)};
  add(objects);
  const std::string once = text();
  EXPECT_EQ(lines_of(once), 3U);
  add(objects);
  EXPECT_EQ(text(), once);
  add({object(3), object(4)});
  EXPECT_EQ(lines_of(text()), 4U);
}

TEST_F(SignersTest, TornLinesAreLeftOutAndTheNextOneIsWhole) {
  add({object(1)});
  const std::string whole = text();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole + whole.substr(0, size));
    const auto known = signers_.read();
    ASSERT_EQ(known.size(), 1U) << size;
    EXPECT_EQ(known.begin()->first, object(1)) << size;
    add({object(2)});
    EXPECT_TRUE(signers_.read().contains(object(2))) << size << text();
  }
  write("\n \n" + std::string(64, 'g') + " 7 a\n" + object(1).key.hex() + "\n" +
        object(1).key.hex() + " x a\n" + object(1).key.hex() + " 7 \n" +
        std::string(1000, '\0') + "\n" + whole);
  EXPECT_EQ(signers_.read().size(), 1U);
}

TEST_F(SignersTest, ASourceStaysOnItsLine) {
  add({object(1)}, key_of(1), "a\n" + object(2).key.hex() + " 7 b\r\n\033[31m");
  EXPECT_EQ(lines_of(text()), 1U);
  EXPECT_EQ(signers_.read().size(), 1U);
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("\033")));
}

TEST_F(SignersTest, ALinkInThePlaceOfTheFolderOrOfAFileIsNeitherReadNorWritten) {
  const fs::path other = dir_.path() / "other";
  fs::create_directory(other);
  fs::create_directory_symlink(other, folder_);
  EXPECT_THAT(signers_.add(std::array{object(1)}, {{key_of(1)}, "a"}),
              test::IsError(ErrorCode::kUntrusted, testing::_));
  EXPECT_TRUE(fs::is_empty(other));
  fs::remove(folder_);
  add({object(1)}, key_of(2));
  std::ofstream(other / "victim") << text(key_of(2));
  fs::create_symlink(other / "victim", folder_ / key_name(key_of(1)));
  EXPECT_EQ(signers_.read().at(object(1)).size(), 1U);
  const auto size = fs::file_size(other / "victim");
  EXPECT_FALSE(signers_.add(std::array{object(3)}, {{key_of(1)}, "a"}));
  EXPECT_EQ(fs::file_size(other / "victim"), size);
  fs::permissions(folder_ / key_name(key_of(2)), fs::perms(0666));
  EXPECT_THAT(signers_.read(), IsEmpty()) << "somebody else may have written it";
  fs::permissions(folder_ / key_name(key_of(2)), fs::perms(0600));
  fs::permissions(folder_, fs::perms(0777));
  EXPECT_THAT(signers_.read(), IsEmpty());
}

TEST_F(SignersTest, WhatIsGoneIsForgottenOnceItIsHalfOfAFile) {
  add({object(1), object(2), object(3), object(4)});
  add({object(1)}, key_of(2));
  const auto keep = [&](std::vector<int> numbers) {
    ASSERT_TRUE(signers_.keep([&](const Digest& key) {
      return std::ranges::any_of(numbers,
                                 [&](int each) { return object(each).key == key; });
    }));
  };
  keep({1, 2, 3});
  EXPECT_EQ(lines_of(text()), 4U) << "the quarter is not worth it";
  keep({1, 2});
  EXPECT_EQ(lines_of(text()), 2U);
  EXPECT_EQ(lines_of(text(key_of(2))), 1U);
  keep({});
  EXPECT_THAT(signers_.read(), IsEmpty());
  add({object(5)});
  EXPECT_EQ(signers_.read().size(), 1U);
}

TEST_F(SignersTest, NoLineIsLostWhereOthersForgetAndAddAtTheSameTime) {
  constexpr int kEach = 60;
  std::set<Digest> there;
  for (int i = 0; i < 3 * kEach; ++i) there.insert(object(i).key);
  const auto is_there = [&](const Digest& key) { return there.contains(key); };
  test::in_threads(4, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      if (thread == 3) {
        add({object(1'000'000 + i),
             object(2'000'000 + i)});  // of objects that are gone
        ASSERT_TRUE(signers_.keep(is_there));
      } else {
        add({object(thread * kEach + i)});
      }
    }
  });
  const auto known = signers_.read();
  for (int i = 0; i < 3 * kEach; ++i) EXPECT_TRUE(known.contains(object(i))) << i;
}

// The cache around them.

class CacheSignersTest : public SignersTest {
 protected:
  std::unique_ptr<Cache> open() {
    CacheOptions options;
    options.root = dir_.path();
    options.persistent_dir = dir_.path() / "persistent";
    return Cache::open(std::move(options));
  }
  const std::vector<StoredObject> objects_ = test::sample_objects(3);
};

TEST_F(CacheSignersTest, SignaturesOfDifferentContentsOfOneKeyAndTimeAreDistrusted) {
  const auto cache = open();
  ASSERT_FALSE(cache->publish(objects_[0]).error);
  const Made honest = made(objects_[0]);
  Made planted = honest;
  planted.payload = Digest::of(as_bytes("planted"));
  const TrustedKeys keys = test::trusting({PublicKey{.id = key_of(2), .bytes = {}}});
  const auto why = [&] {
    auto entries = cache->list({}).value();
    cache->add_signers(entries);
    EXPECT_FALSE(entries.at(0).signed_by.empty());
    return why_distrusted(entries.at(0), keys);
  };
  cache->remember_signers(std::array{honest}, {{key_of(2)}, "good@2"});
  EXPECT_EQ(why(), "");
  cache->remember_signers(std::array{planted}, {{key_of(1)}, "bad@1"});
  EXPECT_THAT(why(), testing::HasSubstr("with different contents"));
}

TEST_F(CacheSignersTest, ListingsHaveThemFromTheIndexAndFromAWalk) {
  const auto cache = open();
  for (const StoredObject& each : objects_) ASSERT_FALSE(cache->publish(each).error);
  cache->remember_signers(std::array{made(objects_[0])}, {{key_of(1)}, "a@1"});
  cache->remember_signers(std::array{made(objects_[1])}, {{key_of(2)}, "b@1"});
  const auto by = [&](ListQuery query, const Digest& key) {
    query.limit = 5;
    for (const auto& entries :
         {cache->list(query).value(), cache->walk(query, Damaged::kLeaveOut).value()}) {
      ASSERT_EQ(entries.size(), 1U);
      EXPECT_EQ(entries[0].key, key);
      EXPECT_EQ(entries[0].signed_by.size(), 1U);
    }
    EXPECT_EQ(cache->verify({.only = query})->checked, 1U);
  };
  by({.signers = {key_of(1)}}, objects_[0].key());
  TrustedKeys keys = test::trusting({{key_of(1), {}}});
  by({.distrusted_by = std::make_shared<const TrustedKeys>(keys)}, objects_[1].key());
  keys.revoked_objects.insert(objects_[2].key());
  EXPECT_EQ(
      cache->list({.distrusted_by = std::make_shared<const TrustedKeys>(keys)})->size(),
      2U);
  keys.signatures = 2;
  EXPECT_EQ(
      cache->list({.distrusted_by = std::make_shared<const TrustedKeys>(keys)})->size(),
      3U);
  ListQuery first{.signers = {key_of(1), key_of(2)}};
  first.limit = 1;
  EXPECT_EQ(cache->list(first)->size(), 1U);
  EXPECT_EQ(cache->list({})->size(), 3U);
}

TEST_F(CacheSignersTest, AFaultThereFailsNoGetAndIsSaidOnce) {
  test::write_bytes(folder_, as_bytes("no folder"));
  std::vector<std::string> lines;
  log_to([&](LogLevel, const std::string& line) { lines.push_back(line); });
  const auto cache = open();
  for (const StoredObject& each : objects_) {
    ASSERT_FALSE(cache->publish(each).error);
    cache->remember_signers(std::array{made(each)}, {{key_of(1)}, "a"});
    EXPECT_TRUE(cache->find(each.key()));
  }
  EXPECT_EQ(lines.size(), 1U);
  EXPECT_EQ(cache->list({})->size(), 3U);
}

TEST_F(CacheSignersTest, ATrimForgetsThoseOfObjectsThatAreGone) {
  const auto cache = open();
  for (const StoredObject& each : objects_) {
    std::ignore = cache->publish(each);
    cache->remember_signers(std::array{made(each)}, {{key_of(1)}, "a"});
  }
  ASSERT_TRUE(cache->remove(objects_[0].key()));
  ASSERT_TRUE(cache->remove(objects_[1].key()));
  EXPECT_EQ(lines_of(text()), 3U);
  ASSERT_TRUE(cache->trim({.dry_run = DryRun::kYes}));
  EXPECT_EQ(lines_of(text()), 3U);
  ASSERT_TRUE(cache->trim({}));
  EXPECT_EQ(lines_of(text()), 1U);
}

}  // namespace
}  // namespace kiln::cache
