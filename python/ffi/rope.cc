// kiln/ops/rope.h. The order of the dimensions of q and k is the caller's.

#include "layout.h"
#include "python/operation_parameters.h"

namespace kiln::python {
namespace {

kiln_rope_strides strides_of(const TensorView& tensor, const Layout& layout) {
  return {.batch = layout.batch < 0 ? 0 : tensor.stride(layout.batch),
          .sequence = tensor.stride(layout.sequence),
          .head = tensor.stride(layout.head),
          .dim = tensor.stride(layout.dim)};
}

/// Of q and k the fields that begin with its name.
struct Head {
  const char* name;
  void*& out;
  const void*& in;
  std::int64_t& heads;
  kiln_rope_strides& out_strides;
  kiln_rope_strides& in_strides;
};

template <typename Arguments>
void set_tensor(Call<Arguments>& call, Head field, const TensorView& out,
                const TensorView& in, const Layout& layout) {
  const std::string out_name = std::string(field.name) + "_out";
  Tensors::expect_rank(field.name, in, layout.rank);
  Tensors::expect_like(out_name.c_str(), out, field.name, in);
  call.set_strided(field.in, field.name, in);
  call.set_strided(field.out, out_name.c_str(), out);
  field.heads = in.size(layout.head);
  field.in_strides = strides_of(in, layout);
  field.out_strides = strides_of(out, layout);
}

// [positions, columns] each.
template <typename Arguments>
void set_table(Call<Arguments>& call, const Parameters<Arguments>& given) {
  Arguments& args = call.args;
  const bool has_angles = given.table_angles.has_value();
  const char* const name = has_angles ? "angles" : "cos";
  const TensorView& cos =
      needed(name, has_angles ? given.table_angles : given.table_cos);
  Tensors::expect_rank(name, cos, 2);
  args.table_positions = cos.size(0);
  args.table_columns = cos.size(1);
  args.table_row_stride = cos.size(0) > 1 ? cos.stride(0) : cos.size(1);
  if (has_angles) {
    Tensors::expect_dtype("angles", cos, kFloat32);
    call.set_strided(args.table_angles, "angles", cos);
    return;
  }
  const TensorView& sin = needed("sin", given.table_sin);
  Tensors::expect_like("sin", sin, "cos", cos);
  if (sin.size(0) > 1 && sin.stride(0) != args.table_row_stride)
    refuse("sin and cos have different strides");
  args.table_dtype = Tensors::dtype("cos", cos);
  call.set_strided(args.table_cos, "cos", cos);
  call.set_strided(args.table_sin, "sin", sin);
}

// The arguments of both directions are the same. `given` has the layout.
template <typename Arguments>
std::int64_t run(Call<Arguments>& call, const Parameters<Arguments>& tensors,
                 Given& given) {
  const Layout layout(given.take<String>("layout"));
  Arguments& args = call.args;
  const TensorView& q = needed("q", tensors.q_in);
  const Optional<TensorView>& k = tensors.k_in;
  args.dtype = Tensors::dtype("q", q);
  set_tensor(
      call,
      {"q", args.q_out, args.q_in, args.q_heads, args.q_out_strides, args.q_in_strides},
      needed("q_out", tensors.q_out), q, layout);
  if (k.has_value() != tensors.k_out.has_value())
    refuse(k ? "k is given, and k_out is not" : "k_out is given, and k is not");
  if (k) {
    Tensors::expect_like("k", *k, "q", q, layout.head);
    set_tensor(call,
               {"k", args.k_out, args.k_in, args.k_heads, args.k_out_strides,
                args.k_in_strides},
               *tensors.k_out, *k, layout);
  }
  args.batch = layout.batch < 0 ? 1 : q.size(layout.batch);
  args.sequence = q.size(layout.sequence);
  args.head_dim = q.size(layout.dim);
  set_table(call, tensors);
  const Optional<TensorView>& cu_seqlens = tensors.cu_seqlens;
  if (cu_seqlens)
    args.batch = cu_seqlens.value().numel() - 1;
  return call.run(tensors);
}

}  // namespace

KILN_PYTHON_FUNCTION(rope_forward, run<kiln_rope_forward_args>, "layout")
KILN_PYTHON_FUNCTION(rope_backward, run<kiln_rope_backward_args>, "layout")

}  // namespace kiln::python
