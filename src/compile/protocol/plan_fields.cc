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

constexpr auto kCudnnRequestFields = [](auto& codec, auto& request) {
  auto& [cudnn, loaded, functions] = request;
  codec("cudnn", cudnn);
  codec("loaded", loaded);
  codec("function", functions);
};

constexpr auto kCudnnDescriptionFields = [](auto& codec, auto& description) {
  auto& [version, cudnn, graph] = description;
  codec("version", version);
  codec.one("cudnn", cudnn, kLibraryFields);
  codec.one("graph", graph, kLibraryFields);
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
  return fields_of(request, kCudnnRequestFields);
}

Result<CudnnRequest> cudnn_request_from(const Fields& fields) {
  return read_fields<CudnnRequest>(fields, kMessageSubject, kCudnnRequestFields);
}

Fields to_fields(const CudnnDescription& description) {
  return fields_of(description, kCudnnDescriptionFields);
}

Result<CudnnDescription> cudnn_description_from(const Fields& fields) {
  return read_fields<CudnnDescription>(fields, kMessageSubject,
                                       kCudnnDescriptionFields);
}

}  // namespace kiln::compile
