// kiln/ops/rope.h. The order of the dimensions of q and k is the caller's.

#include "layout.h"

namespace kiln::python {
namespace {

constexpr Operation<kiln_rope_forward_args> kForward{
    "rope_forward", KILN_ROPE_FORWARD_ARGS_INIT, kiln_rope_forward,
    kiln_rope_forward_prepare};
constexpr Operation<kiln_rope_backward_args> kBackward{
    "rope_backward", KILN_ROPE_BACKWARD_ARGS_INIT, kiln_rope_backward,
    kiln_rope_backward_prepare};

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

// `sin` is absent if `cos` holds angles. [positions, columns] each.
template <typename Arguments>
void set_table(Call<Arguments>& call, const TensorView& cos,
               const Optional<TensorView>& sin) {
  Arguments& args = call.args;
  Tensors::expect_rank("cos", cos, 2);
  args.table_positions = cos.size(0);
  args.table_columns = cos.size(1);
  args.table_row_stride = cos.size(0) > 1 ? cos.stride(0) : cos.size(1);
  if (sin) {
    Tensors::expect_like("sin", *sin, "cos", cos);
    if (sin.value().size(0) > 1 && sin.value().stride(0) != args.table_row_stride)
      refuse("sin and cos have different strides");
    args.table_dtype = Tensors::dtype("cos", cos);
    call.set_strided(args.table_cos, "cos", cos);
    call.set_strided(args.table_sin, "sin", *sin);
  } else {
    Tensors::expect_dtype("angles", cos, kFloat32);
    call.set_strided(args.table_angles, "angles", cos);
  }
}

// The arguments of both directions are the same.
template <const auto& operation>
std::int64_t run(std::int64_t action, std::int64_t device, TensorView q_out,
                 TensorView q, Optional<TensorView> k_out, Optional<TensorView> k,
                 TensorView cos, Optional<TensorView> sin, Optional<TensorView> starts,
                 Optional<TensorView> cu_seqlens, std::int64_t rotary_dim,
                 std::int64_t style, std::int64_t start, tvm::ffi::String layout_name) {
  const Layout layout(layout_name);
  Call call(operation, action, device);
  auto& args = call.args;
  args.dtype = Tensors::dtype("q", q);
  args.style = static_cast<kiln_rope_style>(style);
  set_tensor(
      call,
      {"q", args.q_out, args.q_in, args.q_heads, args.q_out_strides, args.q_in_strides},
      q_out, q, layout);
  if (k.has_value() != k_out.has_value())
    refuse(k ? "k is given, and k_out is not" : "k_out is given, and k is not");
  if (k) {
    Tensors::expect_like("k", *k, "q", q, layout.head);
    set_tensor(call,
               {"k", args.k_out, args.k_in, args.k_heads, args.k_out_strides,
                args.k_in_strides},
               *k_out, *k, layout);
  }
  args.batch = layout.batch < 0 ? 1 : q.size(layout.batch);
  args.sequence = q.size(layout.sequence);
  args.head_dim = q.size(layout.dim);
  args.rotary_dim = rotary_dim;
  args.start = start;
  set_table(call, cos, sin);
  if (call.set(args.cu_seqlens, "cu_seqlens", cu_seqlens)) {
    Tensors::expect_dtype("cu_seqlens", *cu_seqlens, kInt32);
    args.batch = cu_seqlens.value().numel() - 1;
  }
  if (call.set(args.starts, "starts", starts)) {
    Tensors::expect_dtype("starts", *starts, kInt32);
    Tensors::expect_elements("starts", *starts, args.batch);
  }
  return call.run();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rope_forward, run<kForward>)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rope_backward, run<kBackward>)

}  // namespace kiln::python
