#include "compile/protocol/plan_fields.h"

#include "compile/protocol/protocol_parts.h"

namespace kiln::compile {
namespace {

constexpr auto kPlanJobFields = [](auto& codec, auto& job) {
  auto& [label, flags, problem, device, capability, cudnn, nvrtc, time_limit,
         memory_limit] = job;
  codec("label", label);
  codec("flags", flags);
  codec("problem", problem);
  codec("device", device);
  kCapabilityFields(codec, capability);
  codec("cudnn", cudnn);
  kNvrtcFields(codec, nvrtc);
  codec("time limit", time_limit);
  codec("memory limit", memory_limit);
};

constexpr auto kAttemptFields = [](auto& codec, auto& attempt) {
  auto& [what, status, message] = attempt;
  codec("what", what);
  codec("status", status);
  codec("message", message);
};

constexpr auto kPlanOutputFields = [](auto& codec, auto& output) {
  auto& [plan, attempts, cudnn_version, cudnn, nvrtc, build_time] = output;
  codec.each("attempt", attempts, kAttemptFields);
  codec("cudnn version", cudnn_version);
  codec.one("cudnn", cudnn, kLibraryFields);
  codec.one("nvrtc", nvrtc, kLibraryFields);
  codec("build time", build_time);
  codec("plan", plan);
};

}  // namespace

Fields to_fields(const PlanJob& job) {
  return fields_of(job, kPlanJobFields);
}

Result<PlanJob> plan_job_from(const Fields& fields) {
  return read_fields<PlanJob>(fields, kMessageSubject, kPlanJobFields);
}

Fields to_fields(const PlanOutput& output) {
  return fields_of(output, kPlanOutputFields);
}

Result<PlanOutput> plan_output_from(const Fields& fields) {
  return read_fields<PlanOutput>(fields, kMessageSubject, kPlanOutputFields);
}

Fields to_fields(const CudnnRequest& request) {
  Fields fields;
  fields.add("cudnn", request.cudnn.native());
  for (const std::string& library : request.loaded) fields.add("loaded", library);
  for (const std::string& name : request.functions) fields.add("function", name);
  return fields;
}

Result<CudnnRequest> cudnn_request_from(const Fields& fields) {
  FieldDecoder decoder(fields, kMessageSubject);
  CudnnRequest request;
  request.cudnn = decoder.text("cudnn");
  request.loaded = decoder.texts("loaded");
  request.functions = decoder.texts("function");
  return decoder.finish(std::move(request));
}

Fields to_fields(const CudnnDescription& description) {
  Fields fields;
  fields.add("version", description.version);
  add_library(fields, "cudnn", description.cudnn);
  add_library(fields, "graph", description.graph);
  return fields;
}

Result<CudnnDescription> cudnn_description_from(const Fields& fields) {
  FieldDecoder decoder(fields, kMessageSubject);
  CudnnDescription description;
  description.version = decoder.text("version");
  description.cudnn = read_library(decoder, "cudnn");
  description.graph = read_library(decoder, "graph");
  return decoder.finish(std::move(description));
}

}  // namespace kiln::compile
