#include <algorithm>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "build/settings.h"
#include "c/handles.h"
#include "device/memory_device.h"
#include "library/service_parts.h"
#include "ops/on_device.h"
#include "request/manifest.h"
#include "util/log.h"

using kiln::Device;
using kiln::ErrorCode;
using kiln::fail;
using kiln::Result;
using kiln::c::answer;
using kiln::c::check_struct;
using kiln::c::device_of;
using kiln::c::given;
using kiln::c::read_struct;
using kiln::c::write_struct;

namespace kiln::c {

Result<const Device*> device_of(const kiln_service& service, int ordinal) {
  for (const Device& device : service.service.devices())
    if (device.ordinal == ordinal)
      return &device;
  return tl::unexpected(service.service.device(ordinal).error());
}

namespace {

/// Calls `call` with the event, which is valid until it returns.
void call_back(void (*call)(void* user, const kiln_event* event), void* user,
               const Event& event) {
  const auto& [kind, kernel, key, device, took, error] = event;
  const std::string name = as_utf8(kernel);
  const std::string message = error ? as_utf8(error->message) : std::string();
  const kiln_event in_c{.struct_size = sizeof(kiln_event),
                        .kind = static_cast<int>(kind),
                        .kernel = name.c_str(),
                        .key = key.c_str(),
                        .device = device,
                        .took_ns = took.count(),
                        .code = error ? code_of(error->code) : 0,
                        .message = message.c_str()};
  call(user, &in_c);
}

}  // namespace

Result<Options> options_of(const kiln_options* given_options) {
  Options options;
  if (given_options == nullptr)
    return options;
  const kiln_options from =
      KILN_TRY(read_struct(given_options, "options", kiln_options KILN_OPTIONS_INIT));
  if (from.setting_count != 0)
    KILN_TRY(given(from.settings, "options.settings"));
  for (std::size_t i = 0; i < from.setting_count; ++i) {
    KILN_TRY(given(from.settings[i], fmt::format("options.settings[{}]", i)));
    KILN_TRY(read_setting(from.settings[i], options));
  }
  if (from.on_event != nullptr)
    options.on_event = [call = from.on_event, user = from.on_event_user](
                           const Event& event) { call_back(call, user, event); };
  return options;
}

namespace {

Result<Request> template_of(const char* name, const char* params_json) {
  KILN_TRY(given(name, "name"));
  if (params_json == nullptr)
    return Request(name);
  return Request(name, KILN_TRY(request::parse_parameters(params_json)));
}

Result<SourceOptions> source_of(const kiln_source& from) {
  SourceOptions source;
  // As above; the last three are C++'s alone.
  [[maybe_unused]] const auto& [s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11] = source;
  KILN_TRY(given(from.source, "source.source"));
  source.source = from.source;
  if (from.file_name != nullptr)
    source.file_name = from.file_name;
  // The compiler's log begins after the first line of a message, which has this name.
  std::ranges::replace(source.file_name, '\n', '_');
  const std::vector<std::string> names =
      KILN_TRY(list_of(from.header_names, from.header_count, "source.header_names"));
  std::vector<std::string> texts =
      KILN_TRY(list_of(from.header_texts, from.header_count, "source.header_texts"));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!source.headers.emplace(names[i], std::move(texts[i])).second)
      return fail(ErrorCode::kInvalidArgument, "source.header_names has '{}' twice",
                  names[i]);
  source.include_dirs = KILN_TRY(list_of<std::filesystem::path>(
      from.include_dirs, from.include_dir_count, "source.include_dirs"));
  source.defines = KILN_TRY(list_of(from.defines, from.define_count, "source.defines"));
  source.options = KILN_TRY(list_of(from.options, from.option_count, "source.options"));
  source.name_expressions = KILN_TRY(list_of(
      from.name_expressions, from.name_expression_count, "source.name_expressions"));
  if (from.target != nullptr)
    source.target = from.target;
  return source;
}

Result<Request> request_of(const kiln_source& from) {
  std::vector<SourceOptions> sources;
  sources.push_back(KILN_TRY(source_of(from)));
  if (from.linked_source_count != 0)
    KILN_TRY(given(from.linked_sources, "source.linked_sources"));
  for (size_t i = 0; i < from.linked_source_count; ++i) {
    const std::string name = fmt::format("source.linked_sources[{}]", i);
    KILN_TRY(given(from.linked_sources[i], name));
    sources.push_back(KILN_TRY(source_of(KILN_TRY(
        read_struct(from.linked_sources[i], name, kiln_source KILN_SOURCE_INIT)))));
  }
  LinkOptions link;
  link.files = KILN_TRY(list_of<std::filesystem::path>(
      from.link_files, from.link_file_count, "source.link_files"));
  link.options = KILN_TRY(
      list_of(from.link_options, from.link_option_count, "source.link_options"));
  return Request::from_sources(std::move(sources), std::move(link));
}

Result<void> get(kiln_service& service, int device, const Request& request,
                 const kiln_cancel* cancel, kiln_kernel** kernel) {
  const Device& where = *KILN_TRY(device_of(service, device));
  // Not inside `new`: an early return would leak its memory.
  Kernel fetched = KILN_TRY(service.service.get(request, where, token_of(cancel)));
  *kernel = new kiln_kernel{std::move(fetched), service.opener};
  return {};
}

}  // namespace
}  // namespace kiln::c

kiln_result kiln_service_open(const kiln_options* options, kiln_service** service) {
  kiln::c::clear(service);
  return answer([&]() -> Result<void> {
    KILN_TRY(given(service, "service"));
    kiln::Service opened =
        KILN_TRY(kiln::Service::open(KILN_TRY(kiln::c::options_of(options))));
    *service = new kiln_service{std::move(opened), {}};
    return {};
  });
}

bool kiln_setting_get(size_t index, kiln_setting* setting) {
  const auto all = kiln::every_setting();
  if (index >= all.size() || !check_struct(setting, "setting"))
    return false;
  const kiln::Setting& row = all[index];
  write_struct(setting, {.struct_size = 0,
                         .name = row.name().data(),  // to the end of `option`
                         .variable = row.variable,
                         .kind = static_cast<int>(row.kind),
                         .meaning = row.meaning,
                         .fallback = row.fallback});
  return true;
}

kiln_result kiln_setting_check(const char* setting) {
  return answer([&]() -> Result<void> {
    KILN_TRY(given(setting, "setting"));
    kiln::Options options;
    return read_setting(setting, options);
  });
}

void kiln_service_close(kiln_service* service) {
  delete service;
}

kiln_result kiln_log_to(void (*write)(void* user, int level, const char* line),
                        void* user) {
  return answer([&]() -> Result<void> {
    if (write == nullptr) {
      kiln::log_to({});
      return {};
    }
    kiln::log_to([write, user](kiln::LogLevel level, const std::string& line) {
      write(user, static_cast<int>(level), kiln::c::as_utf8(line).c_str());
    });
    return {};
  });
}

kiln_result kiln_device_count(kiln_service* service, int* count) {
  return answer(service, [&]() -> Result<void> {
    KILN_TRY(given(count, "count"));
    *count = static_cast<int>(service->service.devices().size());
    return {};
  });
}

kiln_result kiln_device_info(kiln_service* service, int device, kiln_device* info) {
  return answer(service, [&]() -> Result<void> {
    KILN_TRY(check_struct(info, "info"));
    const auto& [ordinal, name, capability, uuid, pci_id, memory_bytes, multiprocessors,
                 shared_bytes_per_block] = *KILN_TRY(device_of(*service, device));
    write_struct(info, {.struct_size = 0,
                        .ordinal = ordinal,
                        .name = name.c_str(),
                        .capability_major = capability.major,
                        .capability_minor = capability.minor,
                        .uuid = uuid.c_str(),
                        .pci_id = pci_id.c_str(),
                        .memory_bytes = memory_bytes,
                        .multiprocessors = multiprocessors,
                        .shared_bytes_per_block = shared_bytes_per_block});
    return {};
  });
}

kiln_result kiln_stream_is_capturing(kiln_service* service, int device,
                                     kiln_stream stream, bool* capturing) {
  return answer(service, [&]() -> Result<void> {
    KILN_TRY(given(capturing, "capturing"));
    const Device& where = *KILN_TRY(device_of(*service, device));
    return kiln::ops::on_device(
        service->service, {"kiln_stream_is_capturing", where, stream},
        [&]() -> Result<void> {
          const kiln::Devices& all = kiln::ServiceParts::devices_of(service->service);
          *capturing = KILN_TRY(all.is_capturing(stream));
          return {};
        });
  });
}

kiln_result kiln_check_memory(kiln_service* service, int device, const char* what,
                              const void* address) {
  return answer(service, [&]() -> Result<void> {
    KILN_TRY(given(what, "what"));
    const Device& where = *KILN_TRY(device_of(*service, device));
    return kiln::ops::on_device(
        service->service, {"kiln_check_memory", where, nullptr}, [&]() -> Result<void> {
          const auto* context =
              KILN_TRY(kiln::ops::context_of(service->service, where));
          const std::string why =
              KILN_TRY(kiln::device::why_not_memory_of(*context, address));
          if (why.empty())
            return {};
          return fail(ErrorCode::kInvalidArgument, "{} cannot be used on {}: {}", what,
                      kiln::device::label_of(where), why);
        });
  });
}

kiln_cancel* kiln_cancel_new(void) {
  try {
    return new kiln_cancel;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void kiln_cancel_request(kiln_cancel* cancel) {
  if (cancel != nullptr)
    cancel->source.request_stop();
}

void kiln_cancel_free(kiln_cancel* cancel) {
  delete cancel;
}

// NOLINTNEXTLINE(readability-function-size): its outputs are parameters, too
kiln_result kiln_get_template(kiln_service* service, int device, const char* name,
                              const char* params_json, kiln_cancel* cancel,
                              kiln_kernel** kernel) {
  return answer(service, kernel, "kernel", [&]() -> Result<void> {
    return kiln::c::get(*service, device,
                        KILN_TRY(kiln::c::template_of(name, params_json)), cancel,
                        kernel);
  });
}

kiln_result kiln_get_source(kiln_service* service, int device,
                            const kiln_source* source, kiln_cancel* cancel,
                            kiln_kernel** kernel) {
  return answer(service, kernel, "kernel", [&]() -> Result<void> {
    const kiln_source from =
        KILN_TRY(read_struct(source, "source", kiln_source KILN_SOURCE_INIT));
    return kiln::c::get(*service, device, KILN_TRY(kiln::c::request_of(from)), cancel,
                        kernel);
  });
}

kiln_result kiln_prefetch_template(kiln_service* service, int device, const char* name,
                                   const char* params_json) {
  return answer(service, [&]() -> Result<void> {
    return service->service.prefetch(KILN_TRY(kiln::c::template_of(name, params_json)),
                                     *KILN_TRY(device_of(*service, device)));
  });
}

kiln_result kiln_statistics_get(kiln_service* service, kiln_statistics* statistics) {
  return answer(service, [&]() -> Result<void> {
    KILN_TRY(check_struct(statistics, "statistics"));
    const kiln::Statistics now = service->service.statistics();
    write_struct(statistics, {.struct_size = 0,
                              .memory_hits = now.memory_hits,
                              .disk_hits = now.disk_hits,
                              .compiled = now.compiled,
                              .waited = now.waited,
                              .not_stored = now.not_stored,
                              .loaded = now.loaded,
                              .failed = now.failed,
                              .seed_hits = now.seed_hits,
                              .remote_hits = now.remote_hits});
    return {};
  });
}
