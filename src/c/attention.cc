#include "kiln/ops/attention.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "c/handles.h"
#include "c/same_fields.h"

namespace kiln::c {
namespace {

KILN_SAME_FIELDS(kiln_attention_strides, ops::AttentionStrides, kNested, batch, head,
                 sequence, dim, group)
KILN_SAME_FIELDS(kiln_attention_problem, ops::AttentionProblem, kNested, dtype, batch,
                 heads, kv_heads, sq, skv, dqk, dv, layout, q, k, v, o, mask,
                 window_left, window_right, bias, dropout)
KILN_SAME_FIELDS(kiln_attention_options, ops::AttentionOptions, kNested, stats,
                 bias_gradient, deterministic, capture)
static_assert(field_count<ops::AttentionTensors>() == 22, "tensors_of() names each");

struct Call {
  const Device& device;
  ops::AttentionProblem problem{};
  ops::AttentionOptions options{};
  ops::AttentionTensors tensors{};
};

ops::AttentionTensors tensors_of(const kiln_attention_args& args) {
  const kiln_attention_tensors& from = args.tensors;
  return {.q = from.q,
          .k = from.k,
          .v = from.v,
          .o = from.o,
          .stats = from.stats,
          .bias = from.bias,
          .cu_seqlens_q = from.cu_seqlens_q,
          .cu_seqlens_kv = from.cu_seqlens_kv,
          .lengths_q = from.lengths_q,
          .lengths_kv = from.lengths_kv,
          .dropout_seed = from.dropout_seed,
          .dropout_offset = from.dropout_offset,
          .grad_o = from.grad_o,
          .grad_q = from.grad_q,
          .grad_k = from.grad_k,
          .grad_v = from.grad_v,
          .grad_bias = from.grad_bias,
          .scale = from.has_scale ? std::optional(from.scale) : std::nullopt,
          .workspace = from.workspace,
          .workspace_bytes = from.workspace_bytes,
          .tokens_q = args.tokens_q,
          .tokens_kv = args.tokens_kv};
}

template <typename Use>
kiln_result with_call(kiln_service* service, int device,
                      const kiln_attention_args* args, const Use& use) {
  return answer(service, [&]() -> Result<void> {
    const kiln_attention_args from = KILN_TRY(
        read_struct(args, "args", kiln_attention_args KILN_ATTENTION_ARGS_INIT));
    Call call{*KILN_TRY(device_of(*service, device))};
    std::memcpy(static_cast<void*>(&call.problem), &from.problem, sizeof(call.problem));
    std::memcpy(static_cast<void*>(&call.options), &from.options, sizeof(call.options));
    call.tensors = tensors_of(from);
    ops::AttentionProblem& problem = call.problem;
    const ops::AttentionStrides none{};
    if (problem.q == none && problem.k == none && problem.v == none &&
        problem.o == none)
      set_strides(problem);
    return use(call);
  });
}

}  // namespace
}  // namespace kiln::c

#define KILN_C_ATTENTION(function)                                                    \
  kiln_result kiln_##function(kiln_service* service, int device, kiln_stream stream,  \
                              const kiln_attention_args* args) {                      \
    return kiln::c::with_call(service, device, args, [&](const auto& call) {          \
      return kiln::ops::function(service->service, call.device, stream, call.problem, \
                                 call.tensors, call.options);                         \
    });                                                                               \
  }                                                                                   \
  kiln_result kiln_##function##_workspace(kiln_service* service, int device,          \
                                          const kiln_attention_args* args,            \
                                          uint64_t* bytes) {                          \
    return kiln::c::with_call(                                                        \
        service, device, args, [&](const auto& call) -> kiln::Result<void> {          \
          KILN_TRY(kiln::c::given(bytes, "bytes"));                                   \
          *bytes =                                                                    \
              KILN_TRY(kiln::ops::prepare_##function(service->service, call.device,   \
                                                     call.problem, call.options))     \
                  .workspace_bytes;                                                   \
          return {};                                                                  \
        });                                                                           \
  }                                                                                   \
  kiln_result kiln_##function##_prepare(kiln_service* service, int device,            \
                                        const kiln_attention_args* args) {            \
    uint64_t bytes = 0;                                                               \
    return kiln_##function##_workspace(service, device, args, &bytes);                \
  }

KILN_C_ATTENTION(attention_forward)
KILN_C_ATTENTION(attention_backward)

kiln_result kiln_attention_explain(kiln_service* service, int device,
                                   const kiln_attention_args* args, char** json) {
  kiln::c::clear(json);
  return kiln::c::with_call(
      service, device, args, [&](const auto& call) -> kiln::Result<void> {
        KILN_TRY(kiln::c::given(json, "json"));
        const std::string text = KILN_TRY(kiln::ops::explain_attention(
            service->service, call.device, call.problem, call.options));
        *json = ::strdup(text.c_str());
        if (*json == nullptr)
          throw std::bad_alloc();
        return {};
      });
}

void kiln_text_free(char* text) {
  std::free(text);
}
