// An execution plan as cuDNN would write it, made by hand: small, and of whatever
// architecture a test wants.

#pragma once

#include <elf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <nlohmann/json.hpp>
#include <string>

#include "attention/plan.h"
#include "attention/plan_binding.h"
#include "device/device_properties.h"
#include "tests/support/elf_builder.h"

namespace kiln::test {

inline std::string encode_base64(ByteView bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int chars =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()),
                        static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(chars));
  return text;
}

/// A cubin with one kernel "k", for 9.0 with `sm` 90.
inline Bytes made_cubin(std::uint32_t sm) {
  constexpr std::uint16_t kCudaMachine = 190;
  ElfBuilder elf;
  elf.machine = kCudaMachine;
  elf.abi_version = 8;
  elf.flags = 0x06000004U | (sm << 8U);
  elf.add_section(".text.k", SHT_PROGBITS, Bytes(128));
  elf.add_symbol("k", ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0x10);
  return elf.build();
}

/// For `device`, with a kernel for `sm`, which is the device's in a sound plan.
inline attention::Plan made_plan(const device::DeviceProperties& device,
                                 std::uint32_t sm) {
  attention::Plan plan;
  plan.cudnn = {9, 19, 0};
  plan.bound = attention::binding_of(device.cudnn_json()).value();
  plan.tensors = {attention::TensorRole::kQ, attention::TensorRole::kK,
                  attention::TensorRole::kV, attention::TensorRole::kO,
                  attention::TensorRole::kScale};
  plan.scalars = {{.uid = 6, .value = std::string("\0\0\x80\xff", 4)}};
  plan.workspace = {
      {.uid = 14, .offset = 0, .zero_bytes = 512, .values = {}},
      {.uid = 15, .offset = 512, .zero_bytes = 0, .values = {0.5F, 0.25F}}};
  plan.graph_workspace_bytes = 1024;
  plan.engine_workspace_bytes = 256;
  const nlohmann::ordered_json json{
      {"cudnnVersion", 91900},
      {"schemaVersion", 4},
      {"GPUProfile", nlohmann::ordered_json::parse(device.cudnn_json())},
      {"engine",
       {{"engineId", 2},
        {"payload",
         {{"kernels",
           {{{"kernelName", "k"}, {"cubin", encode_base64(made_cubin(sm))}}}}}}}}};
  plan.json = json.dump();
  EXPECT_TRUE(read_json(plan));
  return plan;
}

}  // namespace kiln::test
