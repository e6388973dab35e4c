// kiln/ops/attention.h. q, k, v and o are [batch, sequence, heads, dim] in the order
// that `layout` says: "bshd", "bhsd", "sbhd", or "thd" for packed sequences. q may have
// its heads as two dimensions, [groups, heads of a group]: a group shares a head of k.

#include <array>
#include <memory>

#include "layout.h"
#include "python/operation_parameters.h"

namespace kiln::python {

/// What a call of both passes takes.
struct AttentionArguments {
  kiln_attention_problem problem = KILN_ATTENTION_PROBLEM_INIT;
  kiln_attention_tensors tensors = KILN_ATTENTION_TENSORS_INIT;
  kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
};
struct AttentionForward : AttentionArguments {};
struct AttentionBackward : AttentionArguments {};

template <typename Pass>
requires std::is_base_of_v<AttentionArguments, Pass>
struct Parameters<Pass>
    : JoinedParameters<kiln_attention_problem, kiln_attention_tensors,
                       kiln_attention_options> {
  using JoinedParameters::JoinedParameters;
  void set_options(Pass& args) const {
    JoinedParameters::set_options(args.problem, args.tensors, args.options);
  }
};

#define KILN_ATTENTION(Pass, pass)                                               \
  template <>                                                                    \
  inline constexpr Operation<Pass> kOperation<Pass>{                             \
      "attention_" #pass, Pass(),                                                \
      [](kiln_service* on, int device, kiln_stream stream, const Pass* args) {   \
        return kiln_attention_##pass(on, device, stream, &args->problem,         \
                                     &args->tensors, &args->options);            \
      },                                                                         \
      [](kiln_service* on, int device, const Pass* args) {                       \
        return kiln_attention_##pass##_prepare(on, device, &args->problem,       \
                                               &args->options);                  \
      },                                                                         \
      [](kiln_service* on, int device, const Pass* args, std::uint64_t* bytes) { \
        return kiln_attention_##pass##_workspace(on, device, &args->problem,     \
                                                 &args->options, bytes);         \
      }};
KILN_ATTENTION(AttentionForward, forward)
KILN_ATTENTION(AttentionBackward, backward)
#undef KILN_ATTENTION

namespace {

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
           std::to_string(kv_heads) + " heads: each group shares a head of k");
  return heads * q.size(layout.head + 1);
}

// A gradient has the strides of its tensor.
template <typename Pass, typename Pointer>
void set_gradient(Call<Pass>& call, Pointer*& field, const char* name,
                  const Optional<TensorView>& given, const char* tensor_name,
                  const TensorView& tensor) {
  const TensorView& gradient = needed(name, given);
  Tensors::expect_like(name, gradient, tensor_name, tensor);
  for (int i = 0; i < tensor.ndim(); ++i)
    if (call.action() == Action::kLaunch && tensor.size(i) > 1 &&
        gradient.stride(i) != tensor.stride(i))
      refuse(std::string(name) + " has other strides than " + tensor_name);
  call.set_strided(field, name, gradient);
}

template <typename Pass, typename Number>
void set_numbers(Call<Pass>& call, const Number*& field, const char* name,
                 const Optional<TensorView>& numbers, std::int64_t count) {
  if (!numbers)
    return;
  Tensors::expect_dtype(name, *numbers, sizeof(Number) == 4 ? kInt32 : kInt64);
  Tensors::expect_elements(name, *numbers, count);
  call.set(field, name, *numbers);
}

// Of each query of each head, also of packed sequences.
template <typename Pass>
void set_stats(Call<Pass>& call, const TensorView& stats) {
  const kiln_attention_problem& problem = call.args.problem;
  Tensors::expect_dtype("stats", stats, kFloat32);
  Tensors::expect_elements("stats", stats, problem.batch * problem.heads * problem.sq);
  call.set(call.args.tensors.stats, "stats", stats);
}

template <typename Pass>
void set_sizes(Call<Pass>& call, const Parameters<Pass>& given, const Layout& layout,
               std::int64_t longest_q, std::int64_t longest_kv) {
  kiln_attention_problem& problem = call.args.problem;
  const TensorView& q = needed("q", given.q);
  const TensorView& k = needed("k", given.k);
  const TensorView& v = needed("v", given.v);
  const TensorView& o = needed("o", given.o);
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
    if (!given.cu_seqlens_q || !given.cu_seqlens_kv)
      refuse("cu_seqlens_q and cu_seqlens_kv are needed for packed sequences");
    problem.batch = given.cu_seqlens_q.value().numel() - 1;
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

// [batch, heads, queries, keys]; 1 in a dimension in which it is alike. A boolean one
// has any type of one byte.
template <typename Pass>
void set_bias(Call<Pass>& call, const TensorView& bias, DLDataType type) {
  kiln_attention_problem& problem = call.args.problem;
  KnownShape none;
  Tensors::fit("bias", bias,
               problem.bias_kind == KILN_ATTENTION_BIAS_BOOLEAN ? kByte : type, {},
               none);
  Tensors::expect_rank("bias", bias, 4);
  const std::array sizes{problem.batch, problem.heads, problem.sq, problem.skv};
  std::array<std::int64_t, 4> strides{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t size = bias.size(static_cast<int>(i));
    if (size != sizes[i] && (size != 1 || i == 3))
      refuse("bias has the size " + std::to_string(size) + " in dimension " +
             std::to_string(i) + ", and not " + std::to_string(sizes[i]) +
             (i < 3 ? " or 1" : ""));
    strides[i] = size == 1 ? 0 : bias.stride(static_cast<int>(i));
  }
  if (problem.skv > 1 && strides[3] != 1)
    refuse("the last dimension of bias is not contiguous");
  problem.bias = {.batch = strides[0],
                  .head = strides[1],
                  .sequence = strides[2],
                  .dim = 1,
                  .group = 0};
  call.set_strided(call.args.tensors.bias, "bias", bias);
}

// Everything that both passes read. `more` has the order of the dimensions, and for
// packed sequences the longest of each side.
template <typename Pass>
void set_inputs(Call<Pass>& call, const Parameters<Pass>& given, Given& more) {
  const Layout layout(more.take<String>("layout"));
  const auto longest_q = more.take<std::int64_t>("longest_q");
  const auto longest_kv = more.take<std::int64_t>("longest_kv");
  kiln_attention_tensors& tensors = call.args.tensors;
  set_sizes(call, given, layout, longest_q, longest_kv);
  call.set_strided(tensors.q, "q", *given.q);
  call.set_strided(tensors.k, "k", *given.k);
  call.set_strided(tensors.v, "v", *given.v);
  call.set_strided(tensors.o, "o", *given.o);
  if (given.bias)
    set_bias(call, *given.bias, (*given.q).dtype());
  const std::int64_t sequences = call.args.problem.batch;
  set_numbers(call, tensors.cu_seqlens_q, "cu_seqlens_q", given.cu_seqlens_q,
              sequences + 1);
  set_numbers(call, tensors.cu_seqlens_kv, "cu_seqlens_kv", given.cu_seqlens_kv,
              sequences + 1);
  set_numbers(call, tensors.lengths_q, "lengths_q", given.lengths_q, sequences);
  set_numbers(call, tensors.lengths_kv, "lengths_kv", given.lengths_kv, sequences);
  set_numbers(call, tensors.dropout_seed, "dropout_seed", given.dropout_seed, 1);
  set_numbers(call, tensors.dropout_offset, "dropout_offset", given.dropout_offset, 1);
}

// Some of cuDNN's plans must not be captured: kPrepare prepares what runs then, too. A
// call does not say that it is captured: the library looks. XLA captures none.
template <typename Pass>
std::int64_t run(Call<Pass>& call, const Optional<TensorView>& workspace) {
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

std::int64_t forward(Call<AttentionForward>& call,
                     const Parameters<AttentionForward>& given, Given& more) {
  set_inputs(call, given, more);
  if (given.stats)
    set_stats(call, *given.stats);
  call.args.options.stats = given.stats.has_value();
  return run(call, given.workspace);
}

std::int64_t backward(Call<AttentionBackward>& call,
                      const Parameters<AttentionBackward>& given, Given& more) {
  set_inputs(call, given, more);
  kiln_attention_tensors& tensors = call.args.tensors;
  set_stats(call, needed("stats", given.stats));
  set_gradient(call, tensors.grad_o, "grad_o", given.grad_o, "o", *given.o);
  set_gradient(call, tensors.grad_q, "grad_q", given.grad_q, "q", *given.q);
  set_gradient(call, tensors.grad_k, "grad_k", given.grad_k, "k", *given.k);
  set_gradient(call, tensors.grad_v, "grad_v", given.grad_v, "v", *given.v);
  if (given.grad_bias) {
    set_gradient(call, tensors.grad_bias, "grad_bias", given.grad_bias, "bias",
                 needed("bias", given.bias));
    call.args.options.bias_gradient = true;
  }
  return run(call, given.workspace);
}

// kiln_attention_explain(): JSON. Of the tensors only shapes, strides and types count.
String explain(Call<AttentionForward>& call, const Parameters<AttentionForward>& given,
               Given& more) {
  set_inputs(call, given, more);
  call.args.options.stats = given.stats.has_value();
  const std::shared_ptr<char*> json(new char*(nullptr), [](char** text) {
    kiln_text_free(*text);
    delete text;
  });
  run_interruptibly([json, from = service(), where = call.device(), copy = call.args] {
    return kiln_attention_explain(from, where, &copy.problem, &copy.options,
                                  json.get());
  });
  return String(*json);
}

}  // namespace

KILN_PYTHON_FUNCTION(attention_forward, forward, "layout", "longest_q", "longest_kv")
KILN_PYTHON_FUNCTION(attention_backward, backward, "layout", "longest_q", "longest_kv")
KILN_PYTHON_FUNCTION(attention_explain, explain, "layout", "longest_q", "longest_kv")

}  // namespace kiln::python
