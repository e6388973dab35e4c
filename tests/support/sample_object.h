// Objects to store in tests, and a store to put them in.

#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "cache/object_store.h"

namespace kiln::test {

/// An object that owns what its views show. Same number, same key.
class SampleObject {
 public:
  explicit SampleObject(int number, std::string payload = "\177ELF a cubin")
      : payload_(std::move(payload)) {
    object_.target = "sm_90a";
    object_.payload = as_bytes(payload_);
    object_.log = "a log";
    object_.source = "__global__ void k() {}";
    object_.ptx = ".version 9.0";
    object_.preimage.add("schema", "1");
    object_.preimage.add("number", std::to_string(number));
    object_.metadata = {.template_name = "scaled_softmax_fwd",
                        .params = {{"dtype", "bf16"}, {"max_cols", "any"}},
                        .arch = "9.0a",
                        .toolchain = "nvrtc-13.0-1a2b3c4d",
                        .toolchain_build_ids = {"1a2b3c4d", "5e6f"},
                        .producer = "0.1.0",
                        .created_ns = 1'700'000'000'000'000'000 + number,
                        .compile_ms = 1234,
                        .registers = 40,
                        .shared_bytes = 2048,
                        .spill_bytes = 8,
                        .entry_points = {{"k<float>", "_Z1kIfEvv"}},
                        .variables = {},
                        .min_driver = "580.65"};
  }
  SampleObject(const SampleObject&) = delete;
  SampleObject& operator=(const SampleObject&) = delete;

  cache::NewObject& operator*() { return object_; }
  cache::NewObject* operator->() { return &object_; }
  [[nodiscard]] Digest key() const { return object_.preimage.digest(); }
  [[nodiscard]] const std::string& payload() const { return payload_; }

 private:
  std::string payload_;
  cache::NewObject object_;
};

/// An ObjectStore and all that it needs.
class SampleStore {
 public:
  explicit SampleStore(const std::filesystem::path& root,
                       cache::FileSystem& file_system = cache::real_file_system(),
                       cache::ObjectStoreOptions options = {})
      : layout(root),
        trust(cache::TrustPolicy::of_this_process({})),
        store(layout, file_system, trust, counters, std::move(options)) {}

  cache::Layout layout;
  cache::TrustPolicy trust;
  cache::Counters counters;
  cache::ObjectStore store;
};

}  // namespace kiln::test
