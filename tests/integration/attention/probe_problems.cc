#include "tests/integration/attention/probe_problems.h"

#include <gtest/gtest.h>

#include <array>

#include "device/profile.h"

namespace kiln::test {
namespace {

// Of both passes.
constexpr std::array kBothPasses{
    // Head dimensions.
    "d=64 causal",
    "d=96",
    "d=128",
    "d=192/128 causal",
    "d=192 causal",
    "d=256",
    "d=160/128",
    "d=128/64 causal",
    "d=264",
    "d=100",
    // Masks.
    "causal",
    "causal_bottom_right",
    "padding",
    "padding_causal",
    "padding_causal_bottom_right",
    "d=192/128 padding_causal",
    "d=192/128 causal_bottom_right",
    // Lengths.
    "s=1/1024",
    "s=1/1024 causal_bottom_right",
    "s=1024/1",
    "s=2/1024",
    "s=1024/2",
    "s=3 causal",
    "s=127/1025",
    "s=100 causal",
    "s=1000/1999",
    "s=1000/1999 causal_bottom_right",
    "s=512/2048 causal",
    "s=512/2048 causal_bottom_right",
    "s=512/2048 padding_causal_bottom_right",
    "s=1024/512 causal",
    "s=1024/512 causal_bottom_right",
    "s=1024/512 padding_causal_bottom_right",
    "s=1",
    // The edges of each extent: 1, 2, odd.
    "batch=1",
    "batch=1 heads=1 s=1",
    "batch=3 heads=1",
    "batch=2 heads=2/1 causal",
    "heads=3 s=3",
    "heads=3/1 d=64",
    "heads=6/2 s=2/3",
    "d=8",
    "d=16 causal",
    "d=24 s=33/65",
    "d=72/40",
    "d=1",
    "d=2",
    "d=7",
    "d=65",
    "batch=1 heads=1 d=8 s=2/1",
    "batch=3 thd padding s=1",
    "batch=1 thd padding s=3/5",
    "batch=1 padding s=1/3",
    // Windows.
    "causal window=128,0",
    "window=128",
    "window=-1,64",
    "causal_bottom_right window=128,0",
    "s=512/2048 causal_bottom_right window=128,0",
    "s=1024/512 causal window=128,0",
    "s=1024/512 padding_causal window=128,0",
    "padding_causal window=128,0",
    "padding window=64",
    "causal window=128,0 dropout=0.125",
    "causal window=128,0 post_scale",
    "causal window=128,0 d=192/128",
    "causal window=128,0 heads=16/4",
    // Grouped heads.
    "heads=16/4 causal",
    "heads=16/1",
    "heads=16/4 d=192/128 causal",
    "heads=16/4 padding_causal",
    // Bias.
    "post_scale",
    "post_scale causal",
    "post_scale heads=16/4",
    "post_scale padding",
    "post_scale padding_causal",
    "post_scale causal_bottom_right",
    "post_scale d=192/128",
    "post_scale s=1000/1999",
    "post_scale bias=11ss",
    "post_scale bias=b1ss",
    "post_scale bias=bhss",
    "post_scale bias=b11s",
    "post_scale bias=1h1s",
    "alibi",
    "alibi causal",
    "alibi causal heads=16/4",
    "alibi padding_causal",
    "alibi causal_bottom_right",
    // Dropout.
    "dropout=0.125",
    "dropout=0.125 causal",
    "dropout=0.125 padding",
    "dropout=0.125 causal_bottom_right",
    "dropout=0.125 post_scale",
    "dropout=0.125 alibi causal",
    "dropout=0.125 d=192/128 causal",
    "dropout=1",
    // Sequences one after the other.
    "thd padding",
    "thd padding_causal",
    "thd padding_causal_bottom_right",
    "thd",
    "thd causal",
    "thd causal_bottom_right",
    "thd padding_causal heads=16/4",
    "thd padding_causal d=64",
    "thd padding_causal d=192/128",
    "thd padding d=256",
    "thd padding_causal window=128,0",
    "thd padding dropout=0.125",
    "thd padding s=1000/1999",
    "thd padding interleaved",
    "thd padding post_scale",
    // Layouts and types.
    "sbhd causal",
    "bhsd causal",
    "bshd interleaved causal",
    "mixed causal",
    "f16 causal",
    "f16 d=192/128 causal",
    "f32 causal",
};

constexpr std::array kForward{
    "training causal",
    "training d=192/128 causal",
    "training thd padding_causal",
    "d=576/512",
    "s=1/1024 causal",
    "s=1/1024 d=192/128",
    "s=1/1024 d=192/128 causal",
    "s=1/1024 d=576/512 causal_bottom_right",
    "s=1/1024 padding",
};

constexpr std::array kBackward{
    "d=136 causal",
    "d=136/128",
    "d=256/128 causal",
    "d=192/160 causal",
    "d=128/192",
    "post_scale gradient",
    "post_scale gradient causal",
    "post_scale gradient s=1000",
    "post_scale gradient padding",
    "post_scale gradient dropout=0.125",
    "post_scale gradient deterministic",
    "post_scale gradient bias=11ss",
    "post_scale gradient bias=b1ss",
    "post_scale gradient bias=bhss",
    "post_scale gradient d=64 heads=16/4",
    "post_scale gradient thd padding",
    "deterministic",
    "deterministic causal",
    "deterministic d=64 causal_bottom_right",
    "deterministic d=192/128 causal",
    "deterministic padding_causal",
    "deterministic heads=16/4",
    "deterministic dropout=0.125",
    "deterministic post_scale",
    "deterministic alibi causal",
    "deterministic causal window=128,0",
    "deterministic thd padding",
};

}  // namespace

std::vector<device::DeviceProperties> probed_devices() {
  std::vector<device::DeviceProperties> devices;
  for (const char* const name :
       {"a100-sxm-80gb", "rtx-3090", "l40s", "h100-sxm", "b200", "rtx-5090"}) {
    auto device = device::read_device_properties(name);
    EXPECT_TRUE(device) << device.error().message;
    if (!device)
      continue;
    devices.push_back(*device);
    if (device->device_version == 1000) {
      devices.push_back(*device);
      devices.back().device_version = 1030;
    }
  }
  return devices;
}

std::vector<Family> probed_families() {
  std::vector<Family> families;
  for (const char* const words : kBothPasses)
    families.push_back({words, {"fwd", "bwd"}});
  for (const char* const words : kForward) families.push_back({words, {"fwd"}});
  for (const char* const words : kBackward) families.push_back({words, {"bwd"}});
  return families;
}

}  // namespace kiln::test
