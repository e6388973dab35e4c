#include "compile/protocol/protocol.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <tuple>

#include "codec/message.h"
#include "util/try.h"

namespace kiln::compile {
namespace {

// --- parts of messages -------------------------------------------------------------

constexpr auto kNvrtcFields = [](auto& codec, auto& paths) {
  auto& [nvrtc, builtins] = paths;
  codec("nvrtc", nvrtc);
  codec("builtins", builtins);
};

constexpr auto kCapabilityFields = [](auto& codec, auto& capability) {
  auto& [major, minor] = capability;
  codec("major", major);
  codec("minor", minor);
};

constexpr auto kTargetFields = [](auto& codec, auto& target) {
  auto& [architecture, kind] = target;
  auto& [capability, suffix] = architecture;
  kCapabilityFields(codec, capability);
  codec.enumerator("suffix", suffix, device::ArchSuffix::kF);
  codec.enumerator("image kind", kind, device::ImageKind::kLtoIr);
};

constexpr auto kLibraryFields = [](auto& codec, auto& library) {
  auto& [path, build_id] = library;
  codec("path", path);
  codec("build id", build_id);
};

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

constexpr auto kAttemptFields = [](auto& codec, auto& attempt) {
  auto& [what, status, message] = attempt;
  codec("what", what);
  codec("status", status);
  codec("message", message);
};

constexpr auto kLinkInputFields = [](auto& codec, auto& input) {
  auto& [name, bytes] = input;
  codec("name", name);
  codec("bytes", bytes);
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

constexpr MessageForms kForms{
    message_form<CompileJob>(1, kJobFields),
    message_form<DescribeRequest>(2, kRequestFields),
    message_form<Hello>(3, kHelloFields),
    message_form<Progress>(4, kProgressFields),
    message_form<CompileOutput>(5, kOutputFields),
    message_form<ToolchainDescription>(6, kDescriptionFields),
    message_form<Error>(7, kErrorFields),
    message_form<PlanJob>(8, kPlanJobFields),
    message_form<PlanOutput>(9, kPlanOutputFields),
    message_form<LinkJob>(10, kLinkJobFields),
    message_form<CudnnRequest>(11, kCudnnRequestFields),
    message_form<CudnnDescription>(12, kCudnnDescriptionFields),
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

Bytes encode_request(const Request& request) {
  return encode_message(request, kForms);
}

Bytes encode_reply(const Reply& reply) {
  return encode_message(reply, kForms);
}

Result<Request> decode_request(ByteView frame) {
  return decode_message<Request>(frame, kForms, "it is no request");
}

Result<Reply> decode_reply(ByteView frame) {
  auto reply = KILN_TRY(decode_message<Reply>(frame, kForms, "it is no reply"));
  if (const auto* const output = std::get_if<CompileOutput>(&reply)) {
    KILN_TRY(check_size(output->files.opened, "opened file"));
    KILN_TRY(check_size(output->files.missed, "missed file"));
  }
  return reply;
}

}  // namespace kiln::compile
