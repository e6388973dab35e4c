// Messages of two processes as frames (frame.h). A table has the form of each: the kind
// of its frame and, for both ways, its fields (field_codec.h).
//
//   constexpr MessageForms kForms{message_form<Hello>(1), message_form<Job>(2)};
//
//   using Any = std::variant<Hello, Job>;
//   Bytes frame = encode_message(Any(Hello{}), kForms);
//   Result<Any> message = decode_message<Any>(frame, kForms, "it is no request");

#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "codec/field_codec.h"
#include "codec/frame.h"
#include "util/try.h"

namespace kiln {

template <typename Message, typename Description>
struct MessageForm {
  std::uint32_t kind;
  Description description;
};

template <typename Message, typename Description = EveryField>
constexpr MessageForm<Message, Description> message_form(std::uint32_t kind,
                                                         Description description = {}) {
  return {kind, description};
}

/// Of a process's first message, which has its build id: of all versions alike, so that
/// the process of another build is known as that.
inline constexpr auto kHelloFields = [](auto& codec, auto& hello) {
  auto& [build_id] = hello;
  codec("build id", build_id);
};

template <typename... Forms>
struct MessageForms : Forms... {};
template <typename... Forms>
MessageForms(Forms...) -> MessageForms<Forms...>;

/// The one of a MessageForms that is for `Message`.
template <typename Message, typename Description>
constexpr const MessageForm<Message, Description>& form_of(
    const MessageForm<Message, Description>& form) {
  return form;
}

template <typename... Messages, typename Forms>
Bytes encode_message(const std::variant<Messages...>& message, const Forms& forms) {
  return std::visit(
      [&](const auto& held) {
        const auto& form = form_of<std::remove_cvref_t<decltype(held)>>(forms);
        return encode_frame(form.kind, fields_of(held, form.description));
      },
      message);
}

/// `frame` as the alternative of `Any`, a variant, that has its kind, from `kIndex` on.
/// Errors: kCorrupt, of a frame of another kind with `no_such` as the message.
template <typename Any, std::size_t kIndex = 0, typename Forms>
Result<Any> message_of(const Frame& frame, const Forms& forms,
                       std::string_view no_such) {
  if constexpr (kIndex == std::variant_size_v<Any>) {
    return corrupt_message(no_such);
  } else {
    using Message = std::variant_alternative_t<kIndex, Any>;
    const auto& form = form_of<Message>(forms);
    if (frame.kind != form.kind)
      return message_of<Any, kIndex + 1>(frame, forms, no_such);
    return Any(KILN_TRY(
        read_fields<Message>(frame.fields, kMessageSubject, form.description)));
  }
}

/// The same, of one whole frame as bytes. Errors: kCorrupt, as decode_frame(), too.
template <typename Any, typename Forms>
Result<Any> decode_message(ByteView frame, const Forms& forms,
                           std::string_view no_such) {
  return message_of<Any>(KILN_TRY(decode_frame(frame)), forms, no_such);
}

}  // namespace kiln
