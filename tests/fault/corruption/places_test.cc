// Row 15: whole objects in the wrong place, and foreign payloads behind a right
// checksum. What a hit cannot tell is written down here, too: a checksum beside the
// data finds accidents, and the SHA-256 that `verify` asks finds the rest.

#include <array>

#include "cache/object_header.h"
#include "tests/fault/corruption/corruption.h"
#include "tests/support/damaged_object.h"
#include "tests/support/print_name.h"
#include "tests/support/test.h"

namespace kiln::test {
namespace {

namespace header = cache::header;
using Object = RealObject RealObjects::*;
using test::PrintTo;

TEST_F(Corruption, fault_15_AnObjectUnderAnotherKeyIsAMissForEveryPair) {
  for (const RealObject* from : objects().all()) {
    for (const RealObject* to : objects().all()) {
      if (from == to)
        continue;
      fs::rename(layout().object(from->key), layout().object(to->key));
      expect_miss(*to, "another object's file");
      expect_miss(*from, "renamed away");
      EXPECT_EQ(quarantined(layout()), std::vector<std::string>{"key"});
      fs::remove_all(layout().quarantine());
      install(layout(), *from);
      install(layout(), *to);
    }
  }
  expect_all_right("mended");
}

TEST_F(Corruption, fault_15_TwoObjectsSwappedAreTwoMisses) {
  for (const RealObject* one : objects().all()) {
    for (const RealObject* other : objects().all()) {
      if (one == other)
        continue;
      install(layout(), *one, other->file);
      install(layout(), *other, one->file);
      expect_miss(*one, "swapped");
      expect_miss(*other, "swapped");
      EXPECT_EQ(quarantined(layout()), (std::vector<std::string>{"key", "key"}));
      fs::remove_all(layout().quarantine());
      install(layout(), *one);
      install(layout(), *other);
    }
  }
  expect_all_right("mended");
}

/// How much of the header was made to fit a foreign payload, besides the XXH3-128.
enum class Repaired : std::uint8_t { kNothing, kFileSize, kAllSizes };

struct Swap {
  const char* name;
  Object host;
  Object payload;  // whose
  Repaired repaired;
  const char* hit;  // the check that a hit fails; "" where it cannot tell
  const char* verify;
};

constexpr Object k80 = &RealObjects::sm_80;
constexpr std::array kSwaps{
    Swap{"OtherArchitecture", k80, &RealObjects::sm_90, Repaired::kAllSizes, "payload",
         "payload"},
    Swap{"OtherArchitectureTheOtherWayRound", &RealObjects::sm_90, k80,
         Repaired::kAllSizes, "payload", "payload"},
    Swap{"PtxForACubin", k80, &RealObjects::ptx, Repaired::kAllSizes, "payload",
         "payload"},
    Swap{"ACubinForPtx", &RealObjects::ptx, k80, Repaired::kAllSizes, "payload",
         "payload"},
    Swap{"OtherEntryPoint", k80, &RealObjects::other_entry, Repaired::kAllSizes,
         "payload", "payload"},
    Swap{"OtherSize", k80, &RealObjects::larger, Repaired::kNothing, "size", "size"},
    Swap{"OtherSizeOfTheFileAlone", k80, &RealObjects::larger, Repaired::kFileSize,
         "header", "header"},
    // The same architecture and entry point, and sizes that fit: code is code.
    Swap{"OtherCodeAndSize", k80, &RealObjects::larger, Repaired::kAllSizes, "",
         "payload_digest"},
    Swap{"OtherCodeOfTheSameSize", k80, &RealObjects::other_code, Repaired::kNothing,
         "", "payload_digest"}};

Bytes with_payload(const RealObject& host, ByteView payload, Repaired repaired) {
  const std::size_t old = host.payload.size();
  Bytes file(host.file.begin(), host.file.begin() + header::kBytes);
  append(file, payload);
  append(file, ByteView(host.file).subspan(header::kBytes + old));
  if (repaired != Repaired::kNothing)
    store_le(file, header::kFileBytes, std::uint64_t{file.size()});
  if (repaired == Repaired::kAllSizes) {
    store_le(file, section_row(0), std::uint64_t{payload.size()});
    store_le(file, section_row(0) + 8, std::uint64_t{payload.size()});
  }
  repair_checksum(file);
  return file;
}

class CorruptPayload : public Corruption {
 protected:
  /// `file` is in the place of `object`. `hit` is empty for what only verify finds.
  void expect_checks(const RealObject& object, ByteView file, std::string_view hit,
                     std::string_view verify) {
    install(layout(), object, file);
    const auto verified = cache_->verify({});
    ASSERT_TRUE(verified);
    ASSERT_EQ(verified->problems.size(), 1U);
    EXPECT_EQ(verified->problems[0].key, object.key);
    EXPECT_EQ(to_string(verified->problems[0].check.value()), verify);
    if (hit.empty()) {
      EXPECT_TRUE(cache_->find(object.key)) << "a hit has learned to tell: say so here";
      count(1, 0);
      return;
    }
    expect_miss(object, "a foreign payload");
    EXPECT_EQ(quarantined(layout()), std::vector<std::string>{std::string(hit)});
  }
};

class CorruptPayloads : public CorruptPayload,
                        public testing::WithParamInterface<Swap> {};

TEST_P(CorruptPayloads, fault_15_BehindARightChecksum) {
  const Swap& swap = GetParam();
  const RealObject& host = objects().*swap.host;
  const Bytes& payload = (objects().*swap.payload).payload;
  ASSERT_NE(payload, host.payload);
  const Bytes file = with_payload(host, payload, swap.repaired);
  if (swap.repaired == Repaired::kNothing && swap.hit[0] == '\0') {
    ASSERT_EQ(file.size(), host.file.size()) << "this row is about the same size";
  }
  expect_checks(host, file, swap.hit, swap.verify);
}

INSTANTIATE_TEST_SUITE_P(Matrix, CorruptPayloads, testing::ValuesIn(kSwaps),
                         [](const auto& test) { return test.param.name; });

TEST_F(CorruptPayload, fault_15_AnEntryPointThatTheImageDoesNotHave) {
  const RealObject& object = objects().sm_80;
  const std::string& lowered = object.lowered_names.at(0);
  const std::string_view text = as_text(object.file);
  Bytes file = object.file;
  const std::size_t metadata = header::kBytes + object.payload.size();
  const std::size_t at = text.find(lowered, metadata);
  ASSERT_NE(at, std::string::npos);
  file[at + lowered.size() - 1] ^= std::byte{1};
  repair_checksum(file);
  expect_checks(object, file, "payload", "payload");
}

TEST_F(CorruptPayload, fault_15_AnObjectWhoseKeyWasRewrittenIsFoundByVerifyAlone) {
  // As whole as the object of the other key: only the preimage tells.
  const RealObject& from = objects().sm_80;
  Bytes file = from.file;
  store_bytes(file, header::kKey, objects().sm_90.key.bytes());
  repair_checksum(file);
  expect_checks(objects().sm_90, file, "", "preimage_digest");
}

TEST_F(CorruptPayload, fault_15_AnObjectWithTheKeyOfAnotherArchitectureIsNotServed) {
  Bytes file = objects().sm_80.file;
  store_bytes(file, header::kKey, objects().sm_90.key.bytes());
  repair_checksum(file);
  install(layout(), objects().sm_90, file);
  const bool served = cache_->find(objects().sm_90.key, "sm_90").has_value();
  count(1, served ? 1 : 0);
  EXPECT_FALSE(served);
  EXPECT_THAT(quarantined(layout()), testing::ElementsAre("target"));
  EXPECT_EQ(cache_->counters().snapshot().at("corrupt.target"), 1U);
}

}  // namespace
}  // namespace kiln::test
