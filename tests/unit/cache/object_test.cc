#include "cache/object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cache/object_header.h"
#include "tests/support/damaged_object.h"
#include "tests/support/paths.h"
#include "tests/support/sample_object.h"
#include "util/little_endian.h"
#include "util/read_file.h"

namespace kiln::cache {
namespace {

using test::SampleObject;

Buffer to_buffer(ByteView bytes) {
  Buffer buffer(bytes.size());
  std::copy(bytes.begin(), bytes.end(), buffer.data());
  return buffer;
}

Bytes to_bytes(const Buffer& buffer) {
  return {buffer.view().begin(), buffer.view().end()};
}

class ObjectTest : public testing::Test {
 protected:
  Check check_of(const Bytes& file) {
    const auto object = StoredObject::parse(to_buffer(file), sample_.key());
    return object ? static_cast<Check>(0xFF) : object.error().check;
  }

  SampleObject sample_{1};
  const Bytes file_ = to_bytes(encode(*sample_).value());
};

TEST_F(ObjectTest, GivesBackAllThatWasStored) {
  const auto object = StoredObject::parse(to_buffer(file_), sample_.key()).value();
  EXPECT_EQ(object.kind(), Kind::kCubin);
  EXPECT_EQ(object.key(), sample_.key());
  EXPECT_EQ(object.target(), "sm_90a");
  EXPECT_EQ(as_text(object.payload()), sample_.payload());
  EXPECT_EQ(object.metadata().value(), sample_->metadata);
  EXPECT_EQ(object.preimage().value(), sample_->preimage);
  EXPECT_EQ(object.log().value(), "a log");
  EXPECT_EQ(object.source().value(), "__global__ void k() {}");
  EXPECT_EQ(object.ptx().value(), ".version 9.0");
  EXPECT_TRUE(object.verify_fully());
}

TEST_F(ObjectTest, ViewsSurviveAMove) {
  auto object = StoredObject::parse(to_buffer(file_), sample_.key()).value();
  const StoredObject moved = std::move(object);
  EXPECT_EQ(moved.target(), "sm_90a");
  EXPECT_EQ(as_text(moved.payload()), sample_.payload());
}

TEST_F(ObjectTest, EmptySectionsAreEmptyTexts) {
  sample_->log = sample_->source = sample_->ptx = {};
  const auto object = StoredObject::parse(encode(*sample_).value(), sample_.key());
  EXPECT_EQ(object->log().value(), "");
  EXPECT_EQ(object->ptx().value(), "");
  EXPECT_TRUE(object->verify_fully());
}

TEST_F(ObjectTest, AnEmptyPayloadIsRefused) {
  sample_->payload = {};
  EXPECT_EQ(encode(*sample_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ObjectTest, ATargetThatDoesNotFitIsRefused) {
  sample_->target = "sm_90a_and_much_more";
  EXPECT_EQ(encode(*sample_).error().code, ErrorCode::kInvalidArgument);
  sample_->target = "";
  EXPECT_EQ(encode(*sample_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ObjectTest, EveryFlippedBitIsRejected) {
  Bytes file = file_;
  for (std::size_t i = 0; i < file.size() * 8; ++i) {
    const auto mask = static_cast<std::byte>(1U << (i % 8));
    file[i / 8] ^= mask;
    EXPECT_FALSE(StoredObject::parse(to_buffer(file), sample_.key())) << "bit " << i;
    file[i / 8] ^= mask;
  }
}

TEST_F(ObjectTest, AnotherKeysObjectIsRejected) {
  const auto object = StoredObject::parse(to_buffer(file_), SampleObject(2).key());
  EXPECT_EQ(object.error().check, Check::kKey);
}

TEST_F(ObjectTest, AnotherFormatVersionIsRejected) {
  Bytes file = file_;
  file[header::kVersion] = std::byte{2};
  test::repair_checksum(file);
  EXPECT_EQ(check_of(file), Check::kFormat);
}

TEST_F(ObjectTest, ASwappedPayloadIsFoundByFullVerification) {
  Bytes file = file_;
  file[header::kBytes + 5] ^= std::byte{1};
  test::repair_checksum(file);
  const auto object = StoredObject::parse(to_buffer(file), sample_.key()).value();
  EXPECT_EQ(object.verify_fully().error().check, Check::kPayloadDigest);
}

TEST_F(ObjectTest, AKeyThatIsNotOfThePreimageIsFoundByFullVerification) {
  Bytes file = file_;
  const Digest other = SampleObject(2).key();
  std::copy(other.bytes().begin(), other.bytes().end(), file.begin() + header::kKey);
  test::repair_checksum(file);
  const auto object = StoredObject::parse(to_buffer(file), other).value();
  EXPECT_EQ(object.verify_fully().error().check, Check::kPreimageDigest);
}

TEST_F(ObjectTest, TwoBuildsAreComparedByPayloadAndLoweredNamesOnly) {
  const auto object = StoredObject::parse(to_buffer(file_), sample_.key()).value();
  const auto encoded = [](SampleObject& sample) {
    return StoredObject::parse(encode(*sample).value(), sample.key()).value();
  };
  SampleObject later(1);
  later->ptx = "other ptx";
  later->log = "other log";
  later->metadata.created_ns = 5;
  EXPECT_TRUE(object.same_build(encoded(later)));
  SampleObject renamed(1);
  renamed->metadata.entry_points[0].lowered = "_Z1kIdEvv";
  EXPECT_FALSE(object.same_build(encoded(renamed)));
  SampleObject rebuilt(1, "\177ELF other cubin");
  EXPECT_FALSE(object.same_build(encoded(rebuilt)));
}

TEST_F(ObjectTest, TheFirstObjectEverWrittenCanStillBeRead) {
  const std::filesystem::path golden =
      test::paths::source("tests/unit/cache/golden/object_v1.bin");
  const Bytes file = read_file(golden, 1 << 20).value().value();
  const auto object = StoredObject::parse(to_buffer(file), sample_.key());
  ASSERT_TRUE(object) << object.error().detail;
  EXPECT_TRUE(object->verify_fully());
  EXPECT_EQ(as_text(object->payload()), sample_.payload());
  EXPECT_EQ(object->metadata().value(), sample_->metadata);
  EXPECT_EQ(object->preimage().value(), sample_->preimage);
  EXPECT_EQ(object->source().value(), sample_->source);
}

TEST(Metadata, UnknownLabelsAreSkippedAndBadNumbersAreCorrupt) {
  Fields fields;
  fields.add("of a later version", "1");
  fields.add("registers", "12");
  EXPECT_EQ(Metadata::decode(fields.encode()).value().registers, 12U);
  fields.add("compile_ms", "12x");
  EXPECT_EQ(Metadata::decode(fields.encode()).error().code, ErrorCode::kCorrupt);
}

TEST(Metadata, LoweredNamesAloneAreThoseOfTheWhole) {
  Metadata metadata;
  metadata.template_name = "entry:not one";
  metadata.params = {{"entry:nor this", "x"}};
  metadata.entry_points = {{"k<float>", "_Z1kIfEvv"}, {"", "plain"}};
  metadata.variables = {{"&ns::entry", "_ZN2ns5entryE"}};
  const Bytes encoded = metadata.encode();
  EXPECT_EQ(Metadata::decode(encoded).value(), metadata);
  EXPECT_THAT(lowered_names(encoded).value(),
              testing::ElementsAre("_Z1kIfEvv", "plain"));
  for (std::size_t size = 1; size < encoded.size(); ++size) {
    const ByteView part = ByteView(encoded).first(size);
    EXPECT_EQ(lowered_names(part).has_value(), Metadata::decode(part).has_value());
  }
}

}  // namespace
}  // namespace kiln::cache
