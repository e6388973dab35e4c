#include "compile/protocol/protocol_fields.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "codec/field_decoder.h"
#include "compile/protocol/protocol_parts.h"

namespace kiln::compile {
namespace {

using Reader = FieldDecoder;

// --- parts of messages -------------------------------------------------------------

}  // namespace

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
  target.kind = reader.one_of("image kind", device::ImageKind::kLtoIr);
  return target;
}

namespace {

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

void add_precompiled(Fields& fields, const PrecompiledFile& file) {
  fields.add("precompiled", file.path.native());
  add_number(fields, "precompiled bytes", file.bytes);
  fields.add("precompiled xxh3", file.xxh3);
  add_number(fields, "precompiled address", file.nvrtc_address);
}

PrecompiledFile read_precompiled(Reader& reader) {
  return {.path = reader.text("precompiled"),
          .bytes = reader.number<std::uint64_t>("precompiled bytes"),
          .xxh3 = reader.text("precompiled xxh3"),
          .nvrtc_address = reader.number<std::uint64_t>("precompiled address")};
}

Fields opened_fields(const OpenedFile& file) {
  const auto& [path, stamp] = file;
  Fields fields;
  fields.add("path", path.native());
  if (!stamp)
    return fields;
  const auto& [device, inode, size, mtime_ns, ctime_ns, reliable] = *stamp;
  add_number(fields, "device", device);
  add_number(fields, "inode", inode);
  add_number(fields, "size", size);
  fields.add("mtime", std::to_string(mtime_ns));
  fields.add("ctime", std::to_string(ctime_ns));
  add_number(fields, "reliable", reliable ? 1 : 0);
  return fields;
}

OpenedFile read_opened(Reader& reader) {
  OpenedFile file{.path = reader.text("path"), .stamp = std::nullopt};
  file.stamp = FileStamp{.device = reader.number<std::uint64_t>("device"),
                         .inode = reader.number<std::uint64_t>("inode"),
                         .size = reader.number<std::uint64_t>("size"),
                         .mtime_ns = reader.number<std::int64_t>("mtime"),
                         .ctime_ns = reader.number<std::int64_t>("ctime"),
                         .reliable = reader.number<unsigned>("reliable") == 1};
  return file;
}

// Last in a message: there may be many.
void add_files(Fields& fields, const FileReport& files) {
  add_number(fields, "files are whole", files.is_whole ? 1 : 0);
  for (const auto& file : files.opened)
    add_nested(fields, "opened file", opened_fields(file));
  for (const auto& path : files.missed) fields.add("missed file", path.native());
}

void check_count(Reader& reader, std::string_view label, std::size_t count,
                 std::size_t bytes) {
  if (count > kMaxReportedFiles || bytes > kMaxReportedBytes)
    reader.note(fmt::format("too many fields '{}'", label));
}

FileReport read_files(Reader& reader) {
  FileReport files;
  files.is_whole = reader.number<unsigned>("files are whole") == 1;
  files.opened = reader.nested("opened file", read_opened);
  std::size_t bytes = 0;
  for (const OpenedFile& file : files.opened) bytes += file.path.native().size();
  check_count(reader, "opened file", files.opened.size(), bytes);
  bytes = 0;
  for (std::string& path : reader.texts("missed file")) {
    bytes += path.size();
    files.missed.emplace_back(std::move(path));
  }
  check_count(reader, "missed file", files.missed.size(), bytes);
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
  add_precompiled(fields, job.precompiled);
  fields.add("make precompiled", job.make_precompiled.native());
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
  job.precompiled = read_precompiled(reader);
  job.make_precompiled = reader.text("make precompiled");
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
  add_number(fields, "precompiled use", static_cast<unsigned>(output.precompiled));
  add_precompiled(fields, output.made);
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
  output.precompiled = reader.one_of("precompiled use", PrecompiledUse::kRefused);
  output.made = read_precompiled(reader);
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
