#include "compile/protocol/plan_fields.h"

#include <utility>

#include "compile/protocol/protocol_parts.h"

namespace kiln::compile {

Fields to_fields(const PlanJob& job) {
  Fields fields;
  fields.add("label", job.label);
  fields.add("flags", job.flags);
  fields.add("problem", job.problem);
  fields.add("device", job.device);
  add_number(fields, "major", job.capability.major);
  add_number(fields, "minor", job.capability.minor);
  fields.add("cudnn", job.cudnn.native());
  add_paths(fields, job.nvrtc);
  add_number(fields, "time limit", job.time_limit.count());
  add_number(fields, "memory limit", job.memory_limit_bytes);
  return fields;
}

Result<PlanJob> plan_job_from(const Fields& fields) {
  FieldDecoder decoder(fields, kMessageSubject);
  PlanJob job;
  job.label = decoder.text("label");
  job.flags = decoder.text("flags");
  job.problem = decoder.text("problem");
  job.device = decoder.text("device");
  job.capability = {.major = decoder.number<int>("major"),
                    .minor = decoder.number<int>("minor")};
  job.cudnn = decoder.text("cudnn");
  job.nvrtc = read_paths(decoder);
  job.time_limit =
      std::chrono::milliseconds(decoder.number<std::int64_t>("time limit"));
  job.memory_limit_bytes = decoder.number<std::uint64_t>("memory limit");
  return decoder.finish(std::move(job));
}

Fields to_fields(const PlanOutput& output) {
  Fields fields;
  for (const PlanAttempt& attempt : output.attempts) {
    Fields inner;
    inner.add("what", attempt.what);
    inner.add("status", attempt.status);
    inner.add("message", attempt.message);
    add_nested(fields, "attempt", inner);
  }
  fields.add("cudnn version", output.cudnn_version);
  add_library(fields, "cudnn", output.cudnn);
  add_library(fields, "nvrtc", output.nvrtc);
  add_number(fields, "build time", output.build_time.count());
  fields.add("plan", as_text(output.plan));
  return fields;
}

Result<PlanOutput> plan_output_from(const Fields& fields) {
  FieldDecoder decoder(fields, kMessageSubject);
  PlanOutput output;
  output.attempts = decoder.nested("attempt", [](FieldDecoder& inner) {
    return PlanAttempt{.what = inner.text("what"),
                       .status = inner.text("status"),
                       .message = inner.text("message")};
  });
  output.cudnn_version = decoder.text("cudnn version");
  output.cudnn = read_library(decoder, "cudnn");
  output.nvrtc = read_library(decoder, "nvrtc");
  output.build_time =
      std::chrono::milliseconds(decoder.number<std::int64_t>("build time"));
  const std::string plan = decoder.text("plan");
  output.plan.assign(as_bytes(plan).begin(), as_bytes(plan).end());
  return decoder.finish(std::move(output));
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
