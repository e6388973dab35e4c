// What a worker that runs a program says at its end.

#pragma once

#include <string_view>

#include "codec/field_codec.h"
#include "codec/frame.h"
#include "kiln/result.h"
#include "util/bytes.h"
#include "util/try.h"

namespace kiln::compile {

/// The worker's argument, behind which are the limit in milliseconds, the folder, the
/// file for the output and the command.
inline constexpr std::string_view kRunArgument = "--run";

/// One of the three is not 0, or the program has ended well.
struct ProgramEnd {
  int error = 0;   // an errno: it could not be started
  int status = 0;  // it exited with that
  int signal = 0;  // it was killed by that
};

inline constexpr std::uint32_t kProgramEndFrame = 13;  // protocol.cc has those before

[[nodiscard]] inline Bytes encode(const ProgramEnd& end) {
  return encode_frame(kProgramEndFrame, fields_of(end, EveryField{}));
}

/// Errors: kCorrupt.
[[nodiscard]] inline Result<ProgramEnd> decode_program_end(ByteView bytes) {
  const Frame frame = KILN_TRY(decode_frame(bytes));
  if (frame.kind != kProgramEndFrame)
    return corrupt_message("it is no end of a program");
  return read_fields<ProgramEnd>(frame.fields, kMessageSubject, EveryField{});
}

}  // namespace kiln::compile
