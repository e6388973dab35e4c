// The fields that several of protocol.h's messages share; codec/field_codec.h says what
// a description is.

#pragma once

#include "codec/field_codec.h"
#include "codec/frame.h"
#include "compile/protocol/job.h"

namespace kiln::compile {

inline constexpr auto kNvrtcFields = [](auto& codec, auto& paths) {
  auto& [nvrtc, builtins] = paths;
  codec("nvrtc", nvrtc);
  codec("builtins", builtins);
};

inline constexpr auto kCapabilityFields = [](auto& codec, auto& capability) {
  auto& [major, minor] = capability;
  codec("major", major);
  codec("minor", minor);
};

inline constexpr auto kTargetFields = [](auto& codec, auto& target) {
  auto& [architecture, kind] = target;
  auto& [capability, suffix] = architecture;
  kCapabilityFields(codec, capability);
  codec.enumerator("suffix", suffix, device::ArchSuffix::kF);
  codec.enumerator("image kind", kind, device::ImageKind::kLtoIr);
};

inline constexpr auto kLibraryFields = [](auto& codec, auto& library) {
  auto& [path, build_id] = library;
  codec("path", path);
  codec("build id", build_id);
};

}  // namespace kiln::compile
