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

void set_tensor(Call<kiln_rope_forward_args>& call, kiln_rope_tensor& field,
                const char* name, const TensorView& out, const TensorView& in,
                const Layout& layout) {
  const std::string out_name = std::string(name) + "_out";
  Tensors::expect_rank(name, in, layout.rank);
  Tensors::expect_like(out_name.c_str(), out, name, in);
  call.set_strided(field.in, name, in);
  call.set_strided(field.out, out_name.c_str(), out);
  field.heads = in.size(layout.head);
  field.in_strides = strides_of(in, layout);
  field.out_strides = strides_of(out, layout);
}

// `sin` is absent if `cos` holds angles. [positions, columns] each.
void set_table(Call<kiln_rope_forward_args>& call, const TensorView& cos,
               const Optional<TensorView>& sin) {
  kiln_rope_table& table = call.args.table;
  Tensors::expect_rank("cos", cos, 2);
  table.positions = cos.size(0);
  table.columns = cos.size(1);
  table.row_stride = cos.size(0) > 1 ? cos.stride(0) : cos.size(1);
  if (sin) {
    Tensors::expect_like("sin", *sin, "cos", cos);
    if (sin.value().size(0) > 1 && sin.value().stride(0) != table.row_stride)
      refuse("sin and cos have different strides");
    table.dtype = Tensors::dtype("cos", cos);
    call.set_strided(table.cos, "cos", cos);
    call.set_strided(table.sin, "sin", *sin);
  } else {
    Tensors::expect_dtype("angles", cos, kFloat32);
    call.set_strided(table.angles, "angles", cos);
  }
}

// The arguments of both directions are the same.
template <const Operation<kiln_rope_forward_args>& operation>
std::int64_t run(std::int64_t action, std::int64_t device, TensorView q_out,
                 TensorView q, Optional<TensorView> k_out, Optional<TensorView> k,
                 TensorView cos, Optional<TensorView> sin, Optional<TensorView> starts,
                 Optional<TensorView> cu_seqlens, std::int64_t rotary_dim,
                 std::int64_t style, std::int64_t start, tvm::ffi::String layout_name) {
  const Layout layout(layout_name);
  Call<kiln_rope_forward_args> call(operation, action, device);
  kiln_rope_forward_args& args = call.args;
  args.dtype = Tensors::dtype("q", q);
  args.style = static_cast<kiln_rope_style>(style);
  set_tensor(call, args.q, "q", q_out, q, layout);
  if (k.has_value() != k_out.has_value())
    refuse(k ? "k is given, and k_out is not" : "k_out is given, and k is not");
  if (k) {
    Tensors::expect_like("k", *k, "q", q, layout.head);
    set_tensor(call, args.k, "k", *k_out, *k, layout);
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
