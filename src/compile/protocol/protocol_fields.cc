#include "compile/protocol/protocol_fields.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <tuple>
#include <vector>

#include "compile/protocol/protocol_parts.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

// --- parts of messages -------------------------------------------------------------

constexpr auto kStampFields = [](auto& codec, auto& stamp) {
  auto& [device, inode, size, mtime_ns, ctime_ns, reliable] = stamp;
  codec("device", device);
  codec("inode", inode);
  codec("size", size);
  codec("mtime", mtime_ns);
  codec("ctime", ctime_ns);
  codec("reliable", reliable);
};

constexpr auto kHeaderFields = [](auto& codec, auto& header) {
  auto& [name, text] = header;
  codec("name", name);
  codec("text", text);
};

constexpr auto kLoweredNameFields = [](auto& codec, auto& name) {
  auto& [expression, lowered] = name;
  codec("expression", expression);
  codec("lowered", lowered);
};

constexpr auto kResourceFields = [](auto& codec, auto& use) {
  auto& [entry, registers, static_shared, stack, spill_stores, spill_loads] = use;
  codec("entry", entry);
  codec("registers", registers);
  codec("static shared", static_shared);
  codec("stack", stack);
  codec("spill stores", spill_stores);
  codec("spill loads", spill_loads);
};

constexpr auto kPrecompiledFields = [](auto& codec, auto& file) {
  auto& [path, bytes, xxh3, nvrtc_address] = file;
  codec("precompiled", path);
  codec("precompiled bytes", bytes);
  codec("precompiled xxh3", xxh3);
  codec("precompiled address", nvrtc_address);
};

// The worker has a stamp of every file that it reports.
constexpr auto kOpenedFields = [](auto& codec, auto& file) {
  auto& [path, stamp] = file;
  codec("path", path);
  codec.one_if_set("stamp", stamp, kStampFields);
};

// Last in a message: there may be many.
constexpr auto kFileFields = [](auto& codec, auto& files) {
  auto& [opened, missed, is_whole] = files;
  codec("files are whole", is_whole);
  codec.each("opened file", opened, kOpenedFields);
  codec("missed file", missed);
};

// --- messages ----------------------------------------------------------------------

constexpr auto kJobFields = [](auto& codec, auto& job) {
  auto& [label, source, program_name, options, name_expressions, headers, nvrtc, target,
         ptx, precompiled, make_precompiled, time_limit, memory_limit] = job;
  codec("label", label);
  codec("source", source);
  codec("program name", program_name);
  codec("option", options);
  codec("name expression", name_expressions);
  codec.each("header", headers, kHeaderFields);
  kNvrtcFields(codec, nvrtc);
  kTargetFields(codec, target);
  codec.enumerator("ptx", ptx, PtxPolicy::kKeep);
  kPrecompiledFields(codec, precompiled);
  codec("make precompiled", make_precompiled);
  codec("time limit", time_limit);
  codec("memory limit", memory_limit);
};

constexpr auto kOutputFields = [](auto& codec, auto& output) {
  auto& [image, ptx, log, lowered_names, resources, files, nvrtc, builtins, nvrtc_time,
         precompiled, made] = output;
  codec("image", image);
  codec("ptx", ptx);
  codec("log", log);
  codec.each("lowered name", lowered_names, kLoweredNameFields);
  codec.each("resource use", resources, kResourceFields);
  codec.one("nvrtc", nvrtc, kLibraryFields);
  codec.one("builtins", builtins, kLibraryFields);
  codec("nvrtc time", nvrtc_time);
  codec.enumerator("precompiled use", precompiled, PrecompiledUse::kRefused);
  kPrecompiledFields(codec, made);
  kFileFields(codec, files);
};

constexpr auto kDescriptionFields = [](auto& codec, auto& description) {
  auto& [major, minor, architectures, nvrtc] = description;
  codec("major", major);
  codec("minor", minor);
  codec.each("architecture", architectures, kCapabilityFields);
  codec.one("nvrtc", nvrtc, kLibraryFields);
};

constexpr auto kRequestFields = [](auto& codec, auto& request) {
  auto& [nvrtc] = request;
  kNvrtcFields(codec, nvrtc);
};

constexpr auto kHelloFields = [](auto& codec, auto& hello) {
  auto& [build_id] = hello;
  codec("build id", build_id);
};

constexpr auto kProgressFields = [](auto& codec, auto& progress) {
  auto& [phase] = progress;
  codec.enumerator("phase", phase, BuildPhase::kReading);
};

constexpr auto kErrorFields = [](auto& codec, auto& error) {
  auto& [code, message, from_outside] = error;
  std::ignore = from_outside;  // the host's own word of a worker's end
  codec.enumerator("code", code, ErrorCode::kDevice);
  codec("message", message);
};

const std::filesystem::path& path_of(const std::filesystem::path& path) {
  return path;
}
const std::filesystem::path& path_of(const OpenedFile& file) {
  return file.path;
}

template <typename Files>
Result<void> check_size(const Files& files, std::string_view label) {
  std::size_t bytes = 0;
  for (const auto& each : files) bytes += path_of(each).native().size();
  if (files.size() > kMaxReportedFiles || bytes > kMaxReportedBytes)
    return corrupt_message(fmt::format("too many fields '{}'", label));
  return {};
}

}  // namespace

Fields to_fields(const CompileJob& job) {
  return fields_of(job, kJobFields);
}
Fields to_fields(const DescribeRequest& request) {
  return fields_of(request, kRequestFields);
}
Fields to_fields(const Hello& hello) {
  return fields_of(hello, kHelloFields);
}
Fields to_fields(const Progress& progress) {
  return fields_of(progress, kProgressFields);
}
Fields to_fields(const CompileOutput& output) {
  return fields_of(output, kOutputFields);
}
Fields to_fields(const ToolchainDescription& description) {
  return fields_of(description, kDescriptionFields);
}
Fields to_fields(const Error& error) {
  return fields_of(error, kErrorFields);
}

Result<CompileJob> job_from(const Fields& fields) {
  return read_fields<CompileJob>(fields, kMessageSubject, kJobFields);
}
Result<DescribeRequest> describe_request_from(const Fields& fields) {
  return read_fields<DescribeRequest>(fields, kMessageSubject, kRequestFields);
}
Result<Hello> hello_from(const Fields& fields) {
  return read_fields<Hello>(fields, kMessageSubject, kHelloFields);
}
Result<Progress> progress_from(const Fields& fields) {
  return read_fields<Progress>(fields, kMessageSubject, kProgressFields);
}
Result<CompileOutput> output_from(const Fields& fields) {
  auto output =
      KILN_TRY(read_fields<CompileOutput>(fields, kMessageSubject, kOutputFields));
  KILN_TRY(check_size(output.files.opened, "opened file"));
  KILN_TRY(check_size(output.files.missed, "missed file"));
  return output;
}
Result<ToolchainDescription> description_from(const Fields& fields) {
  return read_fields<ToolchainDescription>(fields, kMessageSubject, kDescriptionFields);
}
Result<Error> error_from(const Fields& fields) {
  return read_fields<Error>(fields, kMessageSubject, kErrorFields);
}

}  // namespace kiln::compile
