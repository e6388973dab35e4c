#include "compile/protocol/protocol_fields.h"

#include <fmt/format.h>

#include <iterator>

#include "codec/field_decoder.h"
#include "compile/protocol/protocol_parts.h"

namespace kiln::compile {
namespace {

using Reader = FieldDecoder;

// --- parts of messages -------------------------------------------------------------

void add_target(Fields& fields, const device::Target& target) {
  const auto& architecture = target.architecture;
  fields.add("major", std::to_string(architecture.capability.major));
  fields.add("minor", std::to_string(architecture.capability.minor));
  add_number(fields, "suffix", static_cast<unsigned>(architecture.suffix));
  add_number(fields, "image kind", static_cast<unsigned>(target.kind));
}

device::Target read_target(Reader& reader) {
  device::Target target;
  target.architecture.capability = {.major = reader.number<int>("major"),
                                    .minor = reader.number<int>("minor")};
  target.architecture.suffix = reader.one_of("suffix", device::ArchSuffix::kF);
  target.kind = reader.one_of("image kind", device::ImageKind::kPtx);
  return target;
}

Fields resource_fields(const ResourceUse& use) {
  Fields fields;
  fields.add("entry", use.entry);
  add_number(fields, "registers", use.registers);
  add_number(fields, "static shared", use.static_shared_bytes);
  add_number(fields, "stack", use.stack_bytes);
  add_number(fields, "spill stores", use.spill_store_bytes);
  add_number(fields, "spill loads", use.spill_load_bytes);
  return fields;
}

ResourceUse read_resource_use(Reader& reader) {
  return {.entry = reader.text("entry"),
          .registers = reader.number<std::uint64_t>("registers"),
          .static_shared_bytes = reader.number<std::uint64_t>("static shared"),
          .stack_bytes = reader.number<std::uint64_t>("stack"),
          .spill_store_bytes = reader.number<std::uint64_t>("spill stores"),
          .spill_load_bytes = reader.number<std::uint64_t>("spill loads")};
}

// Last in a message: there may be many.
void add_files(Fields& fields, const FileReport& files) {
  add_number(fields, "files are whole", files.is_whole ? 1 : 0);
  for (const auto& path : files.opened) fields.add("opened file", path.native());
  for (const auto& path : files.missed) fields.add("missed file", path.native());
}

FileReport read_files(Reader& reader) {
  FileReport files;
  files.is_whole = reader.number<unsigned>("files are whole") == 1;
  const auto read = [&](std::string_view label) {
    auto texts = reader.texts(label);
    std::size_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    if (texts.size() > kMaxReportedFiles || bytes > kMaxReportedBytes)
      reader.note(fmt::format("too many fields '{}'", label));
    return std::vector<std::filesystem::path>(std::make_move_iterator(texts.begin()),
                                              std::make_move_iterator(texts.end()));
  };
  files.opened = read("opened file");
  files.missed = read("missed file");
  return files;
}

}  // namespace

Fields to_fields(const CompileJob& job) {
  Fields fields;
  fields.add("label", job.label);
  fields.add("source", job.source);
  fields.add("program name", job.program_name);
  for (const auto& option : job.options) fields.add("option", option);
  for (const auto& expression : job.name_expressions)
    fields.add("name expression", expression);
  for (const auto& header : job.headers) {
    Fields inner;
    inner.add("name", header.name);
    inner.add("text", header.text);
    add_nested(fields, "header", inner);
  }
  add_paths(fields, job.nvrtc);
  add_target(fields, job.target);
  add_number(fields, "ptx", static_cast<unsigned>(job.ptx));
  fields.add("time limit", std::to_string(job.time_limit.count()));
  add_number(fields, "memory limit", job.memory_limit_bytes);
  return fields;
}

Result<CompileJob> job_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  CompileJob job;
  job.label = reader.text("label");
  job.source = reader.text("source");
  job.program_name = reader.text("program name");
  job.options = reader.texts("option");
  job.name_expressions = reader.texts("name expression");
  job.headers = reader.nested("header", [](Reader& inner) {
    return MemoryHeader{.name = inner.text("name"), .text = inner.text("text")};
  });
  job.nvrtc = read_paths(reader);
  job.target = read_target(reader);
  job.ptx = reader.one_of("ptx", PtxPolicy::kKeep);
  job.time_limit = std::chrono::milliseconds(reader.number<std::int64_t>("time limit"));
  job.memory_limit_bytes = reader.number<std::uint64_t>("memory limit");
  return reader.finish(std::move(job));
}

Fields to_fields(const CompileOutput& output) {
  Fields fields;
  fields.add("image", as_text(output.image));
  fields.add("ptx", output.ptx);
  fields.add("log", output.log);
  for (const auto& name : output.lowered_names) {
    Fields inner;
    inner.add("expression", name.expression);
    inner.add("lowered", name.lowered);
    add_nested(fields, "lowered name", inner);
  }
  for (const auto& use : output.resources)
    add_nested(fields, "resource use", resource_fields(use));
  add_library(fields, "nvrtc", output.nvrtc);
  add_library(fields, "builtins", output.builtins);
  fields.add("nvrtc time", std::to_string(output.nvrtc_time.count()));
  add_files(fields, output.files);
  return fields;
}

Result<CompileOutput> output_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  CompileOutput output;
  const auto image = reader.text("image");
  output.image.assign(as_bytes(image).begin(), as_bytes(image).end());
  output.ptx = reader.text("ptx");
  output.log = reader.text("log");
  output.lowered_names = reader.nested("lowered name", [](Reader& inner) {
    return LoweredName{.expression = inner.text("expression"),
                       .lowered = inner.text("lowered")};
  });
  output.resources = reader.nested("resource use", read_resource_use);
  output.files = read_files(reader);
  output.nvrtc = read_library(reader, "nvrtc");
  output.builtins = read_library(reader, "builtins");
  output.nvrtc_time =
      std::chrono::milliseconds(reader.number<std::int64_t>("nvrtc time"));
  return reader.finish(std::move(output));
}

Fields to_fields(const ToolchainDescription& description) {
  Fields fields;
  fields.add("major", std::to_string(description.major));
  fields.add("minor", std::to_string(description.minor));
  for (const auto& capability : description.architectures) {
    Fields inner;
    inner.add("major", std::to_string(capability.major));
    inner.add("minor", std::to_string(capability.minor));
    add_nested(fields, "architecture", inner);
  }
  add_library(fields, "nvrtc", description.nvrtc);
  return fields;
}

Result<ToolchainDescription> description_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  ToolchainDescription description;
  description.major = reader.number<int>("major");
  description.minor = reader.number<int>("minor");
  description.architectures = reader.nested("architecture", [](Reader& inner) {
    return device::ComputeCapability{.major = inner.number<int>("major"),
                                     .minor = inner.number<int>("minor")};
  });
  description.nvrtc = read_library(reader, "nvrtc");
  return reader.finish(std::move(description));
}

Fields to_fields(const DescribeRequest& request) {
  Fields fields;
  add_paths(fields, request.nvrtc);
  return fields;
}

Fields to_fields(const Hello& hello) {
  Fields fields;
  fields.add("build id", hello.build_id);
  return fields;
}

Fields to_fields(const Progress& progress) {
  Fields fields;
  add_number(fields, "phase", static_cast<unsigned>(progress.phase));
  return fields;
}

Fields to_fields(const Error& error) {
  Fields fields;
  add_number(fields, "code", static_cast<unsigned>(error.code));
  fields.add("message", error.message);
  return fields;
}

Result<DescribeRequest> describe_request_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  return reader.finish(DescribeRequest{read_paths(reader)});
}

Result<Hello> hello_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  return reader.finish(Hello{reader.text("build id")});
}

Result<Progress> progress_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  return reader.finish(Progress{reader.one_of("phase", BuildPhase::kReading)});
}

Result<Error> error_from(const Fields& fields) {
  Reader reader(fields, kMessageSubject);
  const auto code = reader.one_of("code", ErrorCode::kDevice);
  return reader.finish(Error{code, reader.text("message")});
}

}  // namespace kiln::compile
