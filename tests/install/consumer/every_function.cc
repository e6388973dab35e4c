// Every function that the headers declare: one that the library does not show is an
// error of this program's linker.

#include <kiln/kiln.h>

#include <string_view>
#include <tuple>

std::string_view (*const code_to_string)(kiln::ErrorCode) = kiln::to_string;
std::string_view (*const kind_to_string)(kiln::Event::Kind) = kiln::to_string;
std::string (*const capability_to_string)(kiln::ComputeCapability) = kiln::to_string;

std::string_view (*const dtype_to_string)(kiln::ops::DType) = kiln::ops::to_string;

template <typename Args>
using Prepare = kiln::Result<void> (*)(kiln::Service&, const kiln::Device&,
                                       const Args&);
Prepare<kiln::ops::ActivationForward> prepare_activation_forward = kiln::ops::prepare;
Prepare<kiln::ops::ActivationBackward> prepare_activation_backward = kiln::ops::prepare;
Prepare<kiln::ops::GluForward> prepare_glu_forward = kiln::ops::prepare;
Prepare<kiln::ops::GluBackward> prepare_glu_backward = kiln::ops::prepare;
Prepare<kiln::ops::CrossEntropy> prepare_cross_entropy = kiln::ops::prepare;
Prepare<kiln::ops::CrossEntropyForward> prepare_cross_entropy_forward =
    kiln::ops::prepare;
Prepare<kiln::ops::CrossEntropyBackward> prepare_cross_entropy_backward =
    kiln::ops::prepare;
Prepare<kiln::ops::LayerNormForward> prepare_layer_norm_forward = kiln::ops::prepare;
Prepare<kiln::ops::LayerNormBackward> prepare_layer_norm_backward = kiln::ops::prepare;
Prepare<kiln::ops::RmsNormForward> prepare_rms_norm_forward = kiln::ops::prepare;
Prepare<kiln::ops::RmsNormBackward> prepare_rms_norm_backward = kiln::ops::prepare;
Prepare<kiln::ops::RopeForward> prepare_rope_forward = kiln::ops::prepare;
Prepare<kiln::ops::RopeBackward> prepare_rope_backward = kiln::ops::prepare;
Prepare<kiln::ops::SoftmaxForward> prepare_softmax_forward = kiln::ops::prepare;
Prepare<kiln::ops::SoftmaxBackward> prepare_softmax_backward = kiln::ops::prepare;

// Not static, so that the compiler keeps them.
auto every_function = std::make_tuple(
    code_to_string, kind_to_string, capability_to_string, &kiln::version,
    &kiln::build_id, &kiln::Request::from_source, &kiln::Request::from_sources,
    &kiln::Request::link, &kiln::Request::sources, &kiln::Request::is_template,
    &kiln::Request::name, &kiln::Request::parameters, &kiln::Request::source,
    &kiln::Kernel::name, &kiln::Kernel::key, &kiln::Kernel::device,
    &kiln::Kernel::entry_points, &kiln::Kernel::entry_point, &kiln::Kernel::entry,
    &kiln::Kernel::global, &kiln::Kernel::attributes, &kiln::Kernel::parameter_sizes,
    &kiln::Kernel::parameter_kinds, &kiln::Kernel::launch_typed,
    &kiln::Kernel::geometry, &kiln::Kernel::launch_with, &kiln::Kernel::function,
    &kiln::Kernel::image, &kiln::Service::open, &kiln::Service::device,
    &kiln::Service::devices, &kiln::Service::get, &kiln::Service::prefetch,
    &kiln::Service::statistics, &kiln::Service::profile, &kiln::Service::device_of,
    dtype_to_string, &kiln::ops::size_bytes, prepare_activation_forward,
    prepare_activation_backward, prepare_glu_forward, prepare_glu_backward,
    prepare_cross_entropy, prepare_cross_entropy_forward,
    prepare_cross_entropy_backward, prepare_layer_norm_forward,
    prepare_layer_norm_backward, prepare_rms_norm_forward, prepare_rms_norm_backward,
    prepare_rope_forward, prepare_rope_backward, prepare_softmax_forward,
    prepare_softmax_backward, &kiln::ops::activation_forward,
    &kiln::ops::activation_backward, &kiln::ops::glu_forward, &kiln::ops::glu_backward,
    &kiln::ops::activation_backward_workspace_bytes,
    &kiln::ops::glu_backward_workspace_bytes, &kiln::ops::cross_entropy,
    &kiln::ops::cross_entropy_forward, &kiln::ops::cross_entropy_backward,
    &kiln::ops::layernorm_forward, &kiln::ops::layernorm_backward,
    &kiln::ops::rmsnorm_forward, &kiln::ops::rmsnorm_backward,
    &kiln::ops::layernorm_backward_workspace_bytes,
    &kiln::ops::rmsnorm_backward_workspace_bytes, &kiln::ops::explain_attention,
    &kiln::ops::rope_forward, &kiln::ops::rope_backward, &kiln::ops::softmax_forward,
    &kiln::ops::softmax_backward);

kiln::Kernel copy(const kiln::Kernel& kernel) {
  return kernel;
}
kiln::Request copy(const kiln::Request& request) {
  return request;
}
void assign(kiln::Kernel& to, const kiln::Kernel& kernel) {
  to = kernel;
}
void assign(kiln::Request& to, const kiln::Request& request) {
  to = request;
}
void assign(kiln::Service& to, kiln::Service& service) {
  to = std::move(service);
}
kiln::Service move(kiln::Service& service) {
  return std::move(service);
}
