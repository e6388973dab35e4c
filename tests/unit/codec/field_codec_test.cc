#include "codec/field_codec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kiln {
namespace {

struct Part {
  std::string name;
  std::int64_t number = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

enum class Size : std::uint8_t { kSmall, kLarge };

struct Whole {
  std::string text;
  std::filesystem::path path;
  Bytes bytes;
  std::int64_t number = 0;
  bool flag = false;
  std::chrono::milliseconds time{0};
  std::optional<std::uint32_t> maybe;
  Size size = Size::kSmall;
  std::vector<std::string> texts;
  std::vector<std::filesystem::path> paths;
  std::vector<std::uint64_t> numbers;
  Part part;
  std::vector<Part> parts;
  friend bool operator==(const Whole&, const Whole&) = default;
};

constexpr auto kPartFields = [](auto& codec, auto& part) {
  auto& [name, number] = part;
  codec("name", name);
  codec("number", number);
};

constexpr auto kWholeFields = [](auto& codec, auto& whole) {
  auto& [text, path, bytes, number, flag, time, maybe, size, texts, paths, numbers,
         part, parts] = whole;
  codec("text", text);
  codec("path", path);
  codec("bytes", bytes);
  codec("number", number);
  codec("flag", flag);
  codec("time", time);
  codec("maybe", maybe);
  codec.enumerator("size", size, Size::kLarge);
  codec("texts", texts);
  codec("paths", paths);
  codec("numbers", numbers);
  codec.one("part", part, kPartFields);
  codec.each("parts", parts, kPartFields);
};

Whole sample() {
  return {.text = std::string("a\0b", 3),
          .path = "/a b",
          .bytes = {std::byte{0}, std::byte{255}},
          .number = -5,
          .flag = true,
          .time = std::chrono::milliseconds(-7),
          .maybe = 0,
          .size = Size::kLarge,
          .texts = {"", "x"},
          .paths = {"/p", "q"},
          .numbers = {1, ~std::uint64_t{0}},
          .part = {"one", 1},
          .parts = {{"two", 2}, {"", -3}}};
}

Result<Whole> read(const Fields& fields) {
  return read_fields<Whole>(fields, "whole", kWholeFields);
}

/// `fields` with other values at `label`, or with none.
Fields changed(const Fields& fields, std::string_view label,
               const std::vector<std::string>& values) {
  Fields made;
  for (const auto& [name, value] : fields.list()) {
    if (name != label)
      made.add(name, value);
  }
  for (const std::string& value : values) made.add(label, value);
  return made;
}

TEST(FieldCodec, ReadsWhatItWroteOfEachKind) {
  EXPECT_EQ(read(fields_of(sample(), kWholeFields)).value(), sample());
  EXPECT_EQ(read(fields_of(Whole{}, kWholeFields)).value(), Whole{});
}

TEST(FieldCodec, OnlyListsAndWhatMayBeMissingAreNotMissed) {
  const Fields all = fields_of(sample(), kWholeFields);
  for (const char* label :
       {"text", "path", "bytes", "number", "flag", "time", "size", "part"}) {
    const auto without = read(changed(all, label, {}));
    ASSERT_FALSE(without) << label;
    EXPECT_EQ(without.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(without.error().message.find("'" + std::string(label) + "'"),
              std::string::npos)
        << without.error().message;
  }
  for (const char* label : {"maybe", "texts", "paths", "numbers", "parts"})
    EXPECT_TRUE(read(changed(all, label, {}))) << label;
}

TEST(FieldCodec, RefusesValuesThatCannotBe) {
  const Fields all = fields_of(sample(), kWholeFields);
  for (const char* label : {"number", "flag", "time", "size", "maybe", "numbers"})
    EXPECT_FALSE(read(changed(all, label, {"x"}))) << label;
  EXPECT_FALSE(read(changed(all, "size", {"2"})));
  EXPECT_FALSE(read(changed(all, "part", {"no fields"})));
  const std::string part(*all.find("part"));
  EXPECT_FALSE(read(changed(all, "part", {part, part})));
}

}  // namespace
}  // namespace kiln
