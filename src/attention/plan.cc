#include "attention/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "attention/plan_binding.h"
#include "codec/field_codec.h"
#include "device/cubin.h"
#include "device/device_properties.h"
#include "util/base64.h"
#include "util/try.h"

namespace kiln::attention {
namespace {

constexpr std::string_view kPlanSubject = "execution plan";

// ---- Encoding

constexpr auto kPropertyFields = [](auto& codec, auto& property) {
  auto& [name, values] = property;
  codec("name", name);
  codec("value", values);
};

constexpr auto kScalarFields = [](auto& codec, auto& scalar) {
  auto& [uid, value] = scalar;
  codec("uid", uid);
  codec("value", value);
};

// As the bytes that they have in memory.
void code_floats(FieldEncoder& encoder, const std::vector<float>& values) {
  encoder("values", as_text(std::as_bytes(std::span(values))));
}
void code_floats(FieldDecoder& decoder, std::vector<float>& values) {
  const std::string bytes = decoder.text("values");
  if (bytes.size() % sizeof(float) != 0)
    decoder.note("field 'values' is no list of floats");
  values.resize(bytes.size() / sizeof(float));
  if (!values.empty())  // memcpy must not get a null pointer, even for 0 bytes
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
}

constexpr auto kWorkspaceFields = [](auto& codec, auto& tensor) {
  auto& [uid, offset, zero_bytes, values] = tensor;
  codec("uid", uid);
  codec("offset", offset);
  codec("zero bytes", zero_bytes);
  code_floats(codec, values);
};

constexpr auto kKernelFields = [](auto& codec, auto& kernel) {
  auto& [name, cubin_offset, cubin_chars] = kernel;
  codec("name", name);
  codec("cubin offset", cubin_offset);
  codec("cubin chars", cubin_chars);
};

void code_version(FieldEncoder& encoder, const CudnnVersion& version) {
  encoder("cudnn", to_string(version));
}
void code_version(FieldDecoder& decoder, CudnnVersion& version) {
  const auto read = parse_cudnn_version(decoder.text("cudnn"));
  if (!read)
    decoder.note(read.error().message);
  version = read.value_or(CudnnVersion{});
}

void code_roles(FieldEncoder& encoder, const std::vector<TensorRole>& roles) {
  for (const TensorRole role : roles)
    encoder.enumerator("tensor", role, kLastTensorRole);
}
void code_roles(FieldDecoder& decoder, std::vector<TensorRole>& roles) {
  for (const unsigned role : decoder.numbers<unsigned>("tensor"))
    roles.push_back(decoder.as_enum(role, "tensor", kLastTensorRole, TensorRole::kQ));
}

constexpr auto kPlanFields = [](auto& codec, auto& plan) {
  auto& [cudnn, engine, bound, tensors, scalars, workspace, graph_workspace,
         engine_workspace, kernels, json] = plan;
  code_version(codec, cudnn);
  codec("engine", engine);
  codec.each("bound", bound, kPropertyFields);
  code_roles(codec, tensors);
  codec.each("scalar", scalars, kScalarFields);
  codec.each("workspace tensor", workspace, kWorkspaceFields);
  codec("graph workspace", graph_workspace);
  codec("engine workspace", engine_workspace);
  codec.each("kernel", kernels, kKernelFields);
  codec("json", json);
};

/// Checks that the fields are consistent before anything is computed from them.
void check_extents(const Plan& plan, FieldDecoder& decoder) {
  for (const PlanKernel& kernel : plan.kernels) {
    if (kernel.cubin_offset > plan.json.size() ||
        kernel.cubin_chars > plan.json.size() - kernel.cubin_offset)
      decoder.note(fmt::format("kernel {} is outside the JSON", kernel.name));
  }
  for (const WorkspaceTensor& tensor : plan.workspace) {
    const std::uint64_t bytes = std::max<std::uint64_t>(
        tensor.zero_bytes, tensor.values.size() * sizeof(float));
    if (tensor.offset > plan.graph_workspace_bytes ||
        bytes > plan.graph_workspace_bytes - tensor.offset)
      decoder.note(fmt::format("tensor {} is outside the workspace", tensor.uid));
  }
  std::set<std::int64_t> uids;
  const auto add = [&](std::int64_t uid) {
    if (!uids.insert(uid).second)
      decoder.note(fmt::format("tensor {} is there twice", uid));
  };
  for (const TensorRole role : plan.tensors) add(static_cast<std::int64_t>(role));
  for (const PlanScalar& scalar : plan.scalars) {
    add(scalar.uid);
    if (scalar.value.size() > sizeof(double) ||
        !std::has_single_bit(scalar.value.size()))
      decoder.note(
          fmt::format("scalar {} has {} bytes", scalar.uid, scalar.value.size()));
  }
  for (const WorkspaceTensor& tensor : plan.workspace) {
    add(tensor.uid);
    if (tensor.offset % sizeof(float) != 0)
      decoder.note(fmt::format("tensor {} is not aligned", tensor.uid));
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48U;  // a GPU's address space
  if (plan.graph_workspace_bytes > kMost || plan.engine_workspace_bytes > kMost)
    decoder.note("a workspace that no device has");
}

// ---- Checks

tl::unexpected<Error> damaged(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "{}: {}", kPlanSubject, what);
}

Result<void> check_kernel(const PlanKernel& kernel, std::string_view json,
                          device::ComputeCapability capability) {
  const auto cubin =
      decode_base64(json.substr(kernel.cubin_offset, kernel.cubin_chars));
  if (!cubin)
    return damaged(fmt::format("the binary of kernel {} is no base64", kernel.name));
  const auto info = device::read_cubin(*cubin);
  if (!info)
    return damaged(fmt::format("kernel {}: {}", kernel.name, info.error().message));
  if (info->capability != capability) {
    return damaged(fmt::format("kernel {} is for {}, the plan for {}", kernel.name,
                               to_string(info->capability), to_string(capability)));
  }
  return {};
}

// ---- cuDNN's JSON

using Json = nlohmann::json;

/// The kernels in `json`, in its order. `parsed` is the result of parsing it.
Result<std::vector<PlanKernel>> find_kernels(const Json& parsed,
                                             std::string_view json) {
  const Json::json_pointer place("/engine/payload/kernels");
  if (!parsed.contains(place) || !parsed[place].is_array())
    return damaged("its JSON has no kernels");
  std::vector<PlanKernel> kernels;
  std::size_t from = 0;
  for (const auto& kernel : parsed[place]) {
    const auto name = kernel.find("kernelName");
    const auto cubin = kernel.find("cubin");
    if (name == kernel.end() || !name->is_string() || cubin == kernel.end() ||
        !cubin->is_string())
      return damaged("a kernel in its JSON has no name or no binary");
    // The parser does not report positions, so the text is searched for. It is base64,
    // in which nothing is escaped.
    const auto& text = cubin->get_ref<const std::string&>();
    const std::size_t at = json.find(text, from);
    if (at == std::string_view::npos)
      return damaged("a kernel's binary in its JSON is escaped");
    kernels.push_back({name->get<std::string>(), at, text.size()});
    from = at + text.size();
  }
  return kernels;
}

/// "engine 2, KERNEL_CFG=7".
std::string engine_text(const Json& parsed) {
  constexpr std::string_view kPrefix = "CUDNN_KNOB_TYPE_";
  const Json::json_pointer id("/engine/engineId");
  const Json::json_pointer choices("/engine/knobChoices");
  std::string text =
      fmt::format("engine {}", parsed.contains(id) ? parsed.at(id).dump() : "unknown");
  if (!parsed.contains(choices) || !parsed.at(choices).is_object())
    return text;
  for (const auto& [knob, value] : parsed.at(choices).items()) {
    const std::string_view name = knob;
    text += fmt::format(", {}={}",
                        name.substr(name.starts_with(kPrefix) ? kPrefix.size() : 0),
                        value.dump());
  }
  return text;
}

}  // namespace

std::string_view to_string(TensorRole role) {
  constexpr std::array<std::string_view, 20> kWords{
      "q",         "k",         "v",          "o",         "stats",
      "bias",      "lengths_q", "lengths_kv", "offsets_q", "offsets_k",
      "offsets_v", "offsets_o", "seed",       "offset",    "scale",
      "grad_o",    "grad_q",    "grad_k",     "grad_v",    "grad_bias"};
  return kWords.at(static_cast<std::size_t>(role) -
                   static_cast<std::size_t>(TensorRole::kQ));
}

Bytes encode(const Plan& plan) {
  return fields_of(plan, kPlanFields).encode();
}

Result<Plan> decode_plan(ByteView bytes) {
  const Fields fields = KILN_TRY(Fields::decode(bytes));
  FieldDecoder decoder(fields, kPlanSubject);
  Plan plan;
  kPlanFields(decoder, plan);
  check_extents(plan, decoder);
  return decoder.finish(std::move(plan));
}

Result<device::ComputeCapability> bound_capability(const Plan& plan) {
  const auto found = std::ranges::find(plan.bound, std::string_view("deviceVer"),
                                       &BoundProperty::name);
  if (found == plan.bound.end() || found->values.size() != 1)
    return damaged("it is bound to no deviceVer");
  const auto capability = device::capability_of(found->values.front());
  if (!capability)
    return damaged(capability.error().message);
  return *capability;
}

Result<void> check_kernels(const Plan& plan) {
  const auto capability = KILN_TRY(bound_capability(plan));
  if (plan.kernels.empty())
    return damaged("it has no kernel");
  for (const PlanKernel& kernel : plan.kernels)
    KILN_TRY(check_kernel(kernel, plan.json, capability));
  return {};
}

Result<void> read_json(Plan& plan) {
  const auto json = Json::parse(plan.json, nullptr, false);
  plan.kernels = KILN_TRY(find_kernels(json, plan.json));
  plan.engine = engine_text(json);
  return {};
}

Result<void> check_fully(const Plan& plan) {
  KILN_TRY(check_kernels(plan));
  const auto json = Json::parse(plan.json, nullptr, false);
  if (plan.kernels != KILN_TRY(find_kernels(json, plan.json)))
    return damaged("its kernels are not those of its JSON");
  const auto version = json.find("cudnnVersion");
  if (version == json.end() || !version->is_number_integer() ||
      version->get<std::int64_t>() != encoded(plan.cudnn))
    return damaged("its JSON is another cuDNN's");
  const auto device = json.find("GPUProfile");
  if (device == json.end() || !device->is_object())
    return damaged("its JSON names no device");
  Json described = *device;
  for (const BoundProperty& property : plan.bound) {
    // cuDNN 9.10.2 omits some properties that 9.19 writes.
    if (property.name != "deviceVer" && !described.contains(property.name))
      described[property.name] = property.values;
  }
  const auto bound = binding_of(described.dump());
  if (!bound)
    return damaged(bound.error().message);
  if (const auto difference = describe_difference(plan.bound, *bound);
      !difference.empty())
    return damaged("its JSON is for another device: " + difference);
  return {};
}

}  // namespace kiln::attention
