// kiln/ops/attention.h. q, k, v and o are [batch, sequence, heads, dim] in the order
// that `layout` says: "bshd", "bhsd", "sbhd", or "thd" for packed sequences. q may have
// its heads as two dimensions, [groups, heads of a group]: a group shares a head of k.

#include <memory>

#include "layout.h"

namespace kiln::python {
namespace {

using Problem = kiln_attention_problem;

/// What a call of both passes takes.
struct Arguments {
  kiln_attention_problem problem = KILN_ATTENTION_PROBLEM_INIT;
  kiln_attention_tensors tensors = KILN_ATTENTION_TENSORS_INIT;
  kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
};

#define KILN_ATTENTION(pass)                                                          \
  {                                                                                   \
    "attention_" #pass, Arguments(),                                                  \
        [](kiln_service* on, int device, kiln_stream stream, const Arguments* args) { \
          return kiln_attention_##pass(on, device, stream, &args->problem,            \
                                       &args->tensors, &args->options);               \
        },                                                                            \
        [](kiln_service* on, int device, const Arguments* args) {                     \
          return kiln_attention_##pass##_prepare(on, device, &args->problem,          \
                                                 &args->options);                     \
        },                                                                            \
        [](kiln_service* on, int device, const Arguments* args,                       \
           std::uint64_t* bytes) {                                                    \
          return kiln_attention_##pass##_workspace(on, device, &args->problem,        \
                                                   &args->options, bytes);            \
        }                                                                             \
  }
constexpr Operation<Arguments> kForward KILN_ATTENTION(forward);
constexpr Operation<Arguments> kBackward KILN_ATTENTION(backward);
#undef KILN_ATTENTION

bool has_groups(const TensorView& q, const Layout& layout) {
  return q.ndim() == layout.rank + 1;
}

Layout layout_of(const TensorView& tensor, const Layout& layout) {
  return has_groups(tensor, layout) ? layout.with_groups() : layout;
}

kiln_attention_strides strides_of(const TensorView& tensor, const Layout& layout) {
  const bool is_grouped = has_groups(tensor, layout);
  const Layout at = layout_of(tensor, layout);
  return {.batch = at.batch < 0 ? 0 : tensor.stride(at.batch),
          .head = tensor.stride(is_grouped ? at.head + 1 : at.head),
          .sequence = tensor.stride(at.sequence),
          .dim = tensor.size(-1) == 1 ? 1 : tensor.stride(-1),
          .group = is_grouped ? tensor.stride(at.head) : 0};
}

std::int64_t heads_of(const TensorView& q, const Layout& layout,
                      std::int64_t kv_heads) {
  const std::int64_t heads = q.size(layout.head);
  if (!has_groups(q, layout))
    return heads;
  if (heads != kv_heads)
    refuse("q has " + std::to_string(heads) + " groups of heads, and k " +
           std::to_string(kv_heads) + " heads: a group shares one");
  return heads * q.size(layout.head + 1);
}

// A gradient has the strides of its tensor.
template <typename Pointer>
void set_gradient(Call<Arguments>& call, Pointer*& field, const char* name,
                  const TensorView& gradient, const char* tensor_name,
                  const TensorView& tensor) {
  Tensors::expect_like(name, gradient, tensor_name, tensor);
  for (int i = 0; i < tensor.ndim(); ++i)
    if (call.action() == Action::kLaunch && tensor.size(i) > 1 &&
        gradient.stride(i) != tensor.stride(i))
      refuse(std::string(name) + " has other strides than " + tensor_name);
  call.set_strided(field, name, gradient);
}

struct Inputs {
  const TensorView& q;
  const TensorView& k;
  const TensorView& v;
  const TensorView& o;
  const Optional<TensorView>& bias;
  const Optional<TensorView>& cu_seqlens_q;
  const Optional<TensorView>& cu_seqlens_kv;
  const Optional<TensorView>& lengths_q;
  const Optional<TensorView>& lengths_kv;
  const Optional<TensorView>& dropout_seed;
  const Optional<TensorView>& dropout_offset;
};

void set_lengths(Call<Arguments>& call, const std::int32_t*& field, const char* name,
                 const Optional<TensorView>& lengths, std::int64_t count) {
  if (!lengths)
    return;
  Tensors::expect_dtype(name, *lengths, kInt32);
  Tensors::expect_elements(name, *lengths, count);
  call.set(field, name, *lengths);
}

void set_number(Call<Arguments>& call, const std::int64_t*& field, const char* name,
                const Optional<TensorView>& number) {
  if (!number)
    return;
  Tensors::expect_dtype(name, *number, kInt64);
  Tensors::expect_elements(name, *number, 1);
  call.set(field, name, *number);
}

// Of each query of each head, also of packed sequences.
void set_stats(Call<Arguments>& call, const TensorView& stats) {
  const Problem& problem = call.args.problem;
  Tensors::expect_dtype("stats", stats, kFloat32);
  Tensors::expect_elements("stats", stats, problem.batch * problem.heads * problem.sq);
  call.set(call.args.tensors.stats, "stats", stats);
}

void set_sizes(Call<Arguments>& call, const Inputs& inputs, const Layout& layout,
               std::int64_t longest_q, std::int64_t longest_kv) {
  Problem& problem = call.args.problem;
  const auto& [q, k, v, o, bias, cu_q, cu_kv, lengths_q, lengths_kv, seed, offset] =
      inputs;
  if (!has_groups(q, layout))
    Tensors::expect_rank("q", q, layout.rank);
  Tensors::expect_rank("k", k, layout.rank);
  Tensors::expect_rank("v", v, layout.rank);
  Tensors::expect_rank("o", o, layout.rank);
  for (const auto& [name, tensor] : {std::pair{"k", &k}, {"v", &v}, {"o", &o}})
    Tensors::expect_dtype(name, *tensor, q.dtype());
  const Layout of_q = layout_of(q, layout);
  problem.dtype = Tensors::dtype("q", q);
  problem.layout = layout.value;
  if (layout.value == KILN_ATTENTION_LAYOUT_THD) {
    if (!cu_q || !cu_kv)
      refuse("cu_seqlens_q and cu_seqlens_kv are needed for packed sequences");
    problem.batch = cu_q.value().numel() - 1;
    problem.sq = longest_q;
    problem.skv = longest_kv;
    call.args.tensors.tokens_q = q.size(of_q.sequence);
    call.args.tensors.tokens_kv = k.size(layout.sequence);
  } else {
    problem.batch = q.size(of_q.batch);
    problem.sq = q.size(of_q.sequence);
    problem.skv = k.size(layout.sequence);
    for (const auto& [name, tensor] : {std::pair{"k", &k}, {"v", &v}, {"o", &o}})
      if (tensor->size(layout.batch) != problem.batch)
        refuse(std::string(name) + " has another batch size than q");
  }
  problem.kv_heads = k.size(layout.head);
  problem.heads = heads_of(q, layout, problem.kv_heads);
  problem.dqk = q.size(-1);
  problem.dv = v.size(-1);
  if (k.size(-1) != problem.dqk)
    refuse("q and k have different head dimensions");
  if (v.size(layout.head) != problem.kv_heads ||
      v.size(layout.sequence) != k.size(layout.sequence))
    refuse("k and v have different shapes");
  if (o.size(layout.head) != problem.heads || o.size(-1) != problem.dv ||
      o.size(layout.sequence) != q.size(of_q.sequence))
    refuse("o has not the shape of q with the head dimension of v");
  problem.q = strides_of(q, layout);
  problem.k = strides_of(k, layout);
  problem.v = strides_of(v, layout);
  problem.o = strides_of(o, layout);
}

// Everything that both passes read. `mask`, `windows` (left, right; -1: none),
// `bias_kind` and `dropout` are those of kiln_attention_problem.
void set_inputs(Call<Arguments>& call, const Inputs& inputs,
                const std::string& layout_name, std::int64_t longest_q,
                std::int64_t longest_kv, std::int64_t mask, std::int64_t window_left,
                std::int64_t window_right, std::int64_t bias_kind, double dropout,
                Optional<double> scale) {
  const Layout layout(layout_name);
  Problem& problem = call.args.problem;
  kiln_attention_tensors& tensors = call.args.tensors;
  set_sizes(call, inputs, layout, longest_q, longest_kv);
  problem.mask = static_cast<kiln_attention_mask>(mask);
  problem.window_left = window_left;
  problem.window_right = window_right;
  problem.bias = static_cast<kiln_attention_bias>(bias_kind);
  problem.dropout = dropout;
  call.set_strided(tensors.q, "q", inputs.q);
  call.set_strided(tensors.k, "k", inputs.k);
  call.set_strided(tensors.v, "v", inputs.v);
  call.set_strided(tensors.o, "o", inputs.o);
  if (call.set(tensors.bias, "bias", inputs.bias)) {
    Tensors::expect_dtype("bias", *inputs.bias, inputs.q.dtype());
    Tensors::expect_elements("bias", *inputs.bias,
                             problem.heads * problem.sq * problem.skv);
  }
  set_lengths(call, tensors.cu_seqlens_q, "cu_seqlens_q", inputs.cu_seqlens_q,
              problem.batch + 1);
  set_lengths(call, tensors.cu_seqlens_kv, "cu_seqlens_kv", inputs.cu_seqlens_kv,
              problem.batch + 1);
  set_lengths(call, tensors.lengths_q, "lengths_q", inputs.lengths_q, problem.batch);
  set_lengths(call, tensors.lengths_kv, "lengths_kv", inputs.lengths_kv, problem.batch);
  set_number(call, tensors.dropout_seed, "dropout_seed", inputs.dropout_seed);
  set_number(call, tensors.dropout_offset, "dropout_offset", inputs.dropout_offset);
  if (scale) {
    tensors.has_scale = true;
    tensors.scale = static_cast<float>(*scale);
  }
}

// Some of cuDNN's plans must not be captured: kPrepare prepares what runs then, too. A
// call does not say that it is captured: the library looks. XLA captures none.
std::int64_t run(Call<Arguments>& call, const Optional<TensorView>& workspace) {
  const std::int64_t bytes = call.run(call.args.tensors, workspace);
  if (call.action() != Action::kPrepare || call.is_from_xla())
    return bytes;
  call.args.options.capture = true;
  try {
    call.run();
  } catch (const tvm::ffi::Error& error) {
    if (error.kind() != "kiln.Unavailable")
      throw;  // else nothing runs it in a capture, which a call there says
  }
  return bytes;
}

std::int64_t forward(std::int64_t action, std::int64_t device, TensorView o,
                     Optional<TensorView> stats, TensorView q, TensorView k,
                     TensorView v, Optional<TensorView> bias,
                     Optional<TensorView> cu_seqlens_q,
                     Optional<TensorView> cu_seqlens_kv, Optional<TensorView> lengths_q,
                     Optional<TensorView> lengths_kv, Optional<TensorView> dropout_seed,
                     Optional<TensorView> dropout_offset, tvm::ffi::String layout,
                     std::int64_t longest_q, std::int64_t longest_kv, std::int64_t mask,
                     std::int64_t window_left, std::int64_t window_right,
                     std::int64_t bias_kind, double dropout, Optional<double> scale,
                     Optional<TensorView> workspace) {
  Call call(kForward, action, device);
  set_inputs(call,
             {q, k, v, o, bias, cu_seqlens_q, cu_seqlens_kv, lengths_q, lengths_kv,
              dropout_seed, dropout_offset},
             layout, longest_q, longest_kv, mask, window_left, window_right, bias_kind,
             dropout, scale);
  if (stats)
    set_stats(call, *stats);
  call.args.options.stats = stats.has_value();
  return run(call, workspace);
}

std::int64_t backward(std::int64_t action, std::int64_t device, TensorView grad_q,
                      TensorView grad_k, TensorView grad_v,
                      Optional<TensorView> grad_bias, TensorView grad_o, TensorView q,
                      TensorView k, TensorView v, TensorView o, TensorView stats,
                      Optional<TensorView> bias, Optional<TensorView> cu_seqlens_q,
                      Optional<TensorView> cu_seqlens_kv,
                      Optional<TensorView> lengths_q, Optional<TensorView> lengths_kv,
                      Optional<TensorView> dropout_seed,
                      Optional<TensorView> dropout_offset, tvm::ffi::String layout,
                      std::int64_t longest_q, std::int64_t longest_kv,
                      std::int64_t mask, std::int64_t window_left,
                      std::int64_t window_right, std::int64_t bias_kind, double dropout,
                      Optional<double> scale, bool deterministic,
                      Optional<TensorView> workspace) {
  Call call(kBackward, action, device);
  set_inputs(call,
             {q, k, v, o, bias, cu_seqlens_q, cu_seqlens_kv, lengths_q, lengths_kv,
              dropout_seed, dropout_offset},
             layout, longest_q, longest_kv, mask, window_left, window_right, bias_kind,
             dropout, scale);
  kiln_attention_tensors& tensors = call.args.tensors;
  set_stats(call, stats);
  set_gradient(call, tensors.grad_o, "grad_o", grad_o, "o", o);
  set_gradient(call, tensors.grad_q, "grad_q", grad_q, "q", q);
  set_gradient(call, tensors.grad_k, "grad_k", grad_k, "k", k);
  set_gradient(call, tensors.grad_v, "grad_v", grad_v, "v", v);
  if (call.set(tensors.grad_bias, "grad_bias", grad_bias)) {
    if (bias)
      Tensors::expect_like("grad_bias", *grad_bias, "bias", *bias);
    call.args.options.bias_gradient = true;
  }
  call.args.options.deterministic = deterministic;
  return run(call, workspace);
}

// kiln_attention_explain(): JSON. Of the tensors only shapes, strides and types count.
tvm::ffi::String explain(
    std::int64_t device, TensorView q, TensorView k, TensorView v, TensorView o,
    Optional<TensorView> bias, Optional<TensorView> cu_seqlens_q,
    Optional<TensorView> cu_seqlens_kv, Optional<TensorView> lengths_q,
    Optional<TensorView> lengths_kv, tvm::ffi::String layout, std::int64_t longest_q,
    std::int64_t longest_kv, std::int64_t mask, std::int64_t window_left,
    std::int64_t window_right, std::int64_t bias_kind, double dropout, bool stats,
    bool bias_gradient, bool deterministic, bool capture) {
  Call call(kForward, static_cast<std::int64_t>(Action::kPrepare), device);
  const Optional<TensorView> none;
  set_inputs(call,
             {q, k, v, o, bias, cu_seqlens_q, cu_seqlens_kv, lengths_q, lengths_kv,
              none, none},
             layout, longest_q, longest_kv, mask, window_left, window_right, bias_kind,
             dropout, {});
  kiln_attention_options& options = call.args.options;
  options.stats = stats;
  options.bias_gradient = bias_gradient;
  options.deterministic = deterministic;
  options.capture = capture;
  const std::shared_ptr<char*> json(new char*(nullptr), [](char** text) {
    kiln_text_free(*text);
    delete text;
  });
  run_interruptibly([json, from = service(), where = call.device(), copy = call.args] {
    return kiln_attention_explain(from, where, &copy.problem, &copy.options,
                                  json.get());
  });
  return tvm::ffi::String(*json);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_explain, explain)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_forward, forward)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_backward, backward)

}  // namespace kiln::python
