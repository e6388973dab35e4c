#include "cache/layout.h"

#include <gtest/gtest.h>

#include "util/bytes.h"

namespace kiln::cache {
namespace {

TEST(Layout, AnObjectLiesUnderItsKey) {
  const Layout layout("/c");
  const Digest key = Digest::of(as_bytes("x"));
  const std::string hex = key.hex();
  EXPECT_EQ(layout.object(key),
            "/c/objects/v1/" + hex.substr(0, 2) + "/" + hex.substr(2));
  EXPECT_EQ(layout.object_folder(0x0a), "/c/objects/v1/0a");
}

TEST(Layout, AKeyIsReadBackFromItsPath) {
  const Digest key = Digest::of(as_bytes("x"));
  const auto folder = std::to_integer<unsigned>(key.bytes()[0]);
  EXPECT_EQ(Layout::key_of(folder, key.hex().substr(2)), key);
}

TEST(Layout, ForeignNamesAreNoKeys) {
  const std::string name(62, 'a');
  EXPECT_TRUE(Layout::key_of(0, name));
  EXPECT_FALSE(Layout::key_of(0, name + "a"));
  EXPECT_FALSE(Layout::key_of(0, std::string(62, 'A')));
  EXPECT_FALSE(Layout::key_of(0, "README"));
  EXPECT_FALSE(Layout::key_of(0, Layout::temporary_in("")));
}

TEST(Layout, TemporariesAreRecognisedAndNeverEqual) {
  const std::string name = Layout::temporary_in("/f").substr(3);
  EXPECT_TRUE(Layout::is_temporary(name));
  EXPECT_NE(Layout::temporary_in("/f").substr(3), name);
  EXPECT_FALSE(Layout::is_temporary(name + "0"));
  EXPECT_FALSE(Layout::is_temporary(".tmp-short"));
}

}  // namespace
}  // namespace kiln::cache
