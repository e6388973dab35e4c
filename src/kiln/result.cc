#include "kiln/result.h"

namespace kiln {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kCompileFailed:
      return "compile_failed";
    case ErrorCode::kWorkerCrashed:
      return "worker_crashed";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kResourceLimit:
      return "resource_limit";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUntrusted:
      return "untrusted";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kDevice:
      return "device";
  }
  return "unknown";
}

}  // namespace kiln
