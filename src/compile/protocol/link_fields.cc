#include "compile/protocol/link_fields.h"

#include "compile/protocol/protocol_parts.h"

namespace kiln::compile {
namespace {

constexpr auto kLinkInputFields = [](auto& codec, auto& input) {
  auto& [name, bytes] = input;
  codec("name", name);
  codec("bytes", bytes);
};

constexpr auto kLinkJobFields = [](auto& codec, auto& job) {
  auto& [label, linker, options, inputs, device_runtime, target, cuda_version,
         time_limit, memory_limit] = job;
  codec("label", label);
  codec("linker", linker);
  codec("option", options);
  codec.each("input", inputs, kLinkInputFields);
  codec("device runtime", device_runtime);
  kTargetFields(codec, target);
  codec("CUDA version", cuda_version);
  codec("time limit", time_limit);
  codec("memory limit", memory_limit);
};

}  // namespace

Fields to_fields(const LinkJob& job) {
  return fields_of(job, kLinkJobFields);
}

Result<LinkJob> link_job_from(const Fields& fields) {
  return read_fields<LinkJob>(fields, kMessageSubject, kLinkJobFields);
}

}  // namespace kiln::compile
