#include "compile/protocol/link_fields.h"

#include <utility>

#include "compile/protocol/protocol_parts.h"

namespace kiln::compile {
namespace {

Bytes bytes_of(const std::string& text) {
  return {as_bytes(text).begin(), as_bytes(text).end()};
}

}  // namespace

Fields to_fields(const LinkJob& job) {
  Fields fields;
  fields.add("label", job.label);
  fields.add("linker", job.linker.native());
  for (const std::string& option : job.options) fields.add("option", option);
  for (const LinkInput& input : job.inputs) {
    Fields inner;
    inner.add("name", input.name);
    inner.add("bytes", as_text(input.bytes));
    add_nested(fields, "input", inner);
  }
  fields.add("device runtime", as_text(job.device_runtime));
  add_target(fields, job.target);
  fields.add("time limit", std::to_string(job.time_limit.count()));
  add_number(fields, "memory limit", job.memory_limit_bytes);
  return fields;
}

Result<LinkJob> link_job_from(const Fields& fields) {
  FieldDecoder decoder(fields, kMessageSubject);
  LinkJob job;
  job.label = decoder.text("label");
  job.linker = decoder.text("linker");
  job.options = decoder.texts("option");
  job.inputs = decoder.nested("input", [](FieldDecoder& inner) {
    return LinkInput{.name = inner.text("name"),
                     .bytes = bytes_of(inner.text("bytes"))};
  });
  job.device_runtime = bytes_of(decoder.text("device runtime"));
  job.target = read_target(decoder);
  job.time_limit =
      std::chrono::milliseconds(decoder.number<std::int64_t>("time limit"));
  job.memory_limit_bytes = decoder.number<std::uint64_t>("memory limit");
  return decoder.finish(std::move(job));
}

}  // namespace kiln::compile
