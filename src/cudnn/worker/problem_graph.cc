#include "cudnn/worker/problem_graph.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <variant>

#include "util/try.h"

// Where cudnn-frontend finds cuDNN: main.cc opens it.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace kiln::plan_worker {
namespace {

namespace fe = cudnn_frontend;
using attention::Bias;
using attention::Layout;
using attention::Problem;
using attention::Strides;
using attention::TensorRole;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

Result<void> accepted(fe::error_t status) {
  if (status.is_good())
    return {};
  return fail(ErrorCode::kUnavailable, status.get_message());
}

fe::DataType_t data_type(ops::DType dtype) {
  switch (dtype) {
    case ops::DType::kF16:
      return fe::DataType_t::HALF;
    case ops::DType::kBf16:
      return fe::DataType_t::BFLOAT16;
    default:
      return fe::DataType_t::FLOAT;
  }
}

std::int64_t number_of(TensorRole role) {
  return static_cast<std::int64_t>(role);
}

/// Makes a graph's tensors from the problem: the role of each says its shape and type.
class Tensors {
 public:
  Tensors(fe::graph::Graph& graph, const Problem& problem)
      : graph_(graph), problem_(problem), type_(data_type(problem.dtype)) {}

  Tensor input(TensorRole role) {
    Tensor tensor = graph_.tensor(fe::graph::Tensor_attributes());
    describe(tensor, role);
    return tensor;
  }
  void set_output(const Tensor& tensor, TensorRole role) {
    tensor->set_output(true);
    describe(tensor, role);
  }

 private:
  struct Shape {
    std::vector<std::int64_t> dims;
    std::vector<std::int64_t> strides;
    fe::DataType_t type;
    std::optional<TensorRole> offsets{};
  };

  [[nodiscard]] Shape shape(std::int64_t heads, std::int64_t sequence, std::int64_t dim,
                            const Strides& strides, TensorRole offsets) const {
    // With thd the offsets say where a sequence begins. cuDNN still requires a batch
    // stride: that of sequences of full length.
    const std::int64_t batch =
        problem_.layout == Layout::kThd ? strides.sequence * sequence : strides.batch;
    return {{problem_.batch, heads, sequence, dim},
            {batch, strides.head, strides.sequence, strides.dim},
            type_,
            offsets};
  }
  [[nodiscard]] Shape shape_of_bias() const {
    const auto& [batches, heads, rows] = attention::bias_sizes(problem_);
    const auto& [batch, head, sequence, dim, group] = attention::bias_strides(problem_);
    // Of a dimension of 1 the stride that a packed tensor has.
    const std::int64_t by_row = sequence == 0 ? problem_.skv : sequence;
    const std::int64_t by_head = head == 0 ? rows * by_row : head;
    const std::int64_t by_batch = batch == 0 ? heads * by_head : batch;
    return {
        {batches, heads, rows, problem_.skv}, {by_batch, by_head, by_row, dim}, type_};
  }
  [[nodiscard]] static Shape list(std::int64_t size, fe::DataType_t type) {
    return {{size, 1, 1, 1}, {1, 1, 1, 1}, type};
  }
  [[nodiscard]] Shape shape_of(TensorRole role) const {
    const Problem& of = problem_;
    switch (role) {
      using enum TensorRole;
      case kQ:
      case kGradQ:
        return shape(of.heads, of.sq, of.dqk, of.q, kOffsetsQ);
      case kK:
      case kGradK:
        return shape(of.kv_heads, of.skv, of.dqk, of.k, kOffsetsK);
      case kV:
      case kGradV:
        return shape(of.kv_heads, of.skv, of.dv, of.v, kOffsetsV);
      case kO:
      case kGradO:
        return shape(of.heads, of.sq, of.dv, of.o, kOffsetsO);
      case kStats:
        return {{of.batch, of.heads, of.sq, 1},
                {of.heads * of.sq, of.sq, 1, 1},
                fe::DataType_t::FLOAT};
      case kBias:
      case kGradBias:
        return shape_of_bias();
      case kLengthsQ:
      case kLengthsKv:
        return list(of.batch, fe::DataType_t::INT32);
      case kOffsetsQ:
      case kOffsetsK:
      case kOffsetsV:
      case kOffsetsO:
        return list(of.batch + 1, fe::DataType_t::INT32);
      case kDropoutSeed:
      case kDropoutOffset:
        return list(1, fe::DataType_t::INT64);
      case kScale:
        break;
    }
    return list(1, fe::DataType_t::FLOAT);
  }

  /// With thd, a shape with offsets makes the tensor ragged: its sequences begin at
  /// these offsets.
  void describe(const Tensor& tensor, TensorRole role) {
    const Shape shape = shape_of(role);
    tensor->set_name(std::string(to_string(role)))
        .set_uid(number_of(role))
        .set_dim(shape.dims)
        .set_stride(shape.strides)
        .set_data_type(shape.type);
    if (problem_.layout == Layout::kThd && shape.offsets)
      tensor->set_ragged_offset(offsets(*shape.offsets));
  }
  /// One tensor per role, shared by all that use it.
  Tensor offsets(TensorRole role) {
    Tensor& known = offsets_[role];
    if (!known)
      known = input(role);
    return known;
  }

  fe::graph::Graph& graph_;
  const Problem& problem_;
  const fe::DataType_t type_;  // the problem's own
  std::map<TensorRole, Tensor> offsets_;
};

/// The attributes that both passes have in common.
template <typename Attributes>
Attributes common_attributes(const Problem& problem, Tensors& tensors) {
  // Tensors has the type, the sizes and the strides.
  const auto& [dtype, batch, heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o,
               mask, window_left, window_right, bias_kind, dropout, bias] =
      problem.common();
  Attributes attributes;
  const Tensor scale = tensors.input(TensorRole::kScale);
  scale->set_is_pass_by_value(true);
  attributes.set_name("attention").set_attn_scale(scale);
  attributes.set_diagonal_alignment(attention::is_bottom_right(mask)
                                        ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                        : fe::DiagonalAlignment_t::TOP_LEFT);
  if (const std::int64_t right = right_bound(problem); right >= 0)
    attributes.set_diagonal_band_right_bound(static_cast<int>(right));
  if (window_left >= 0)  // the frontend counts the diagonal
    attributes.set_diagonal_band_left_bound(static_cast<int>(window_left + 1));
  if (attention::is_padded(mask))
    attributes.set_padding_mask(true)
        .set_seq_len_q(tensors.input(TensorRole::kLengthsQ))
        .set_seq_len_kv(tensors.input(TensorRole::kLengthsKv));
  if (bias_kind == Bias::kPostScale)
    attributes.set_bias(tensors.input(TensorRole::kBias));
  if (bias_kind == Bias::kAlibi)
    attributes.set_alibi_mask(true);
  if (dropout > 0)
    attributes.set_dropout(static_cast<float>(dropout),
                           tensors.input(TensorRole::kDropoutSeed),
                           tensors.input(TensorRole::kDropoutOffset));
  return attributes;
}

/// The bytes of a scalar of any type.
template <typename Value>
std::string bytes_of(const Value& value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

}  // namespace

Result<DeviceProperties> device_properties(std::string_view json) {
  auto properties = std::make_shared<fe::DeviceProperties>();
  auto status = properties->deserialize({json.begin(), json.end()});
  if (status.is_bad()) {
    return refuse("cuDNN does not take the device's properties: {} {}",
                  status.get_message(), fe::detail::get_last_error_string_());
  }
  return DeviceProperties(std::move(properties));
}

Result<std::unique_ptr<ProblemGraph>> ProblemGraph::make(
    const Problem& problem, const DeviceProperties& device,
    device::ComputeCapability capability) {
  std::unique_ptr<ProblemGraph> graph(new ProblemGraph);
  graph->set_io_data_type(data_type(problem.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  graph->set_device_properties(device);
  // Without it the frontend asks the CUDA runtime for a device.
  graph->set_sm_version(10 * capability.major + capability.minor);
  if (problem.pass == attention::Pass::kForward)
    graph->add_forward(problem);
  else
    graph->add_backward(problem);
  KILN_TRY(accepted(graph->validate()));
  KILN_TRY(accepted(graph->build_operation_graph(nullptr)));
  return graph;
}

void ProblemGraph::add_forward(const Problem& problem) {
  using enum TensorRole;
  // What as_built() has not set to its default.
  const auto& [pass, training, wants_stats, bias_gradient, deterministic, capture] =
      problem.of_pass();
  Tensors tensors(*this, problem);
  auto attributes = common_attributes<fe::graph::SDPA_attributes>(problem, tensors);
  attributes.set_generate_stats(wants_stats);
  const auto [o, stats] =
      sdpa(tensors.input(kQ), tensors.input(kK), tensors.input(kV), attributes);
  tensors.set_output(o, kO);
  if (wants_stats)
    tensors.set_output(stats, kStats);
}

void ProblemGraph::add_backward(const Problem& problem) {
  using enum TensorRole;
  const auto& [pass, training, stats, bias_gradient, deterministic, capture] =
      problem.of_pass();
  Tensors tensors(*this, problem);
  auto attributes =
      common_attributes<fe::graph::SDPA_backward_attributes>(problem, tensors);
  attributes.set_deterministic_algorithm(deterministic);
  if (bias_gradient)
    attributes.set_dbias(tensors.input(kGradBias));
  const auto [grad_q, grad_k, grad_v] = sdpa_backward(
      tensors.input(kQ), tensors.input(kK), tensors.input(kV), tensors.input(kO),
      tensors.input(kGradO), tensors.input(kStats), attributes);
  tensors.set_output(grad_q, kGradQ);
  tensors.set_output(grad_k, kGradK);
  tensors.set_output(grad_v, kGradV);
}

ForcedEngine ProblemGraph::forced_engine() const {
  for (const auto& node : sub_nodes) {
    const auto [id, knobs] = node->override_heuristics_query();
    if (id == -1)
      continue;
    ForcedEngine forced{.id = id, .knobs = {}};
    for (const auto& [knob, value] : knobs) {
      cudnnBackendKnobType_t type{};
      if (fe::convert_to_backend_knob_type(knob, type) == CUDNN_STATUS_SUCCESS)
        forced.knobs.emplace_back(type, value);
    }
    return forced;
  }
  return {};
}

Result<attention::Plan> ProblemGraph::describe() const {
  attention::Plan plan;
  std::set<std::int64_t> known;
  std::unordered_map<std::int64_t, pass_by_values_t> scalars;
  KILN_TRY(accepted(collect_pass_by_value_tensors_subtree(scalars)));
  for (const auto& [uid, value] : scalars) {
    known.insert(uid);
    plan.scalars.push_back(
        {.uid = uid,
         .value = std::visit([](const auto& each) { return bytes_of(each); }, value)});
  }
  // The frontend's entries are (kind, offset, values). Kind 0: copy the values; 1: zero
  // values[0] bytes; else: nothing.
  std::unordered_map<std::int64_t,
                     std::tuple<std::int64_t, std::int64_t, std::vector<float>>>
      workspace;
  std::int64_t end = 0;
  KILN_TRY(accepted(collect_tensors_in_workspace_subtree(workspace, end)));
  for (const auto& [uid, entry] : workspace) {
    const auto& [kind, offset, values] = entry;
    known.insert(uid);
    attention::WorkspaceTensor tensor{.uid = uid,
                                      .offset = static_cast<std::uint64_t>(offset)};
    if (kind == 0)
      tensor.values = values;
    else if (kind == 1 && !values.empty())
      tensor.zero_bytes = static_cast<std::uint64_t>(values.front());
    plan.workspace.push_back(std::move(tensor));
  }
  plan.graph_workspace_bytes =
      static_cast<std::uint64_t>(get_fe_workspace_size_subtree());

  std::unordered_map<std::int64_t, std::pair<std::int64_t, std::int64_t>> replaced;
  KILN_TRY(accepted(collect_variant_pack_replacements_subtree(replaced)));
  if (!replaced.empty())
    return fail(ErrorCode::kCompileFailed, "the graph has tensors within tensors");
  for (const std::int64_t uid : variant_pack_uids) {
    if (uid >= number_of(TensorRole::kQ) &&
        uid <= number_of(attention::kLastTensorRole))
      plan.tensors.push_back(static_cast<TensorRole>(uid));
    else if (!known.contains(uid))
      return fail(ErrorCode::kCompileFailed,
                  "the graph needs a tensor {} that the problem lacks", uid);
  }
  // The frontend's maps are unordered.
  std::ranges::sort(plan.tensors);
  std::ranges::sort(plan.scalars, {}, &attention::PlanScalar::uid);
  std::ranges::sort(plan.workspace, {}, &attention::WorkspaceTensor::uid);
  return plan;
}

}  // namespace kiln::plan_worker
