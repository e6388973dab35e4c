#include "tools/context.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kiln::tools {
namespace {

/// The status for an error that stopped a verb before it did any work.
ExitCode exit_code_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return kWrongUsage;
    case ErrorCode::kUnavailable:
      return kUnavailable;
    default:
      return kSomeFailed;
  }
}

}  // namespace

void print_json(const nlohmann::ordered_json& document) {
  constexpr int kIndent = 2;
  print(document.dump(kIndent, ' ', false,
                      nlohmann::ordered_json::error_handler_t::replace));
  print("\n");
}

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

nlohmann::ordered_json error_json(const Error& error) {
  return {{"code", to_string(error.code)}, {"message", error.message}};
}

int report_failure(const Context& context, const Error& error) {
  if (context.json)
    print_json({{"error", error_json(error)}});
  print_error(fmt::format("{} {}\n", context.err.styled("kiln:", Style::kRed),
                          printable_lines(error.message)));
  return exit_code_for(error.code);
}

int finish(const Context& context, const Result<int>& result) {
  return result ? *result : report_failure(context, result.error());
}

int finish_lookup(const Context& context, const Result<int>& result) {
  const int status = finish(context, result);
  return !result && result.error().code == ErrorCode::kNotFound ? kSomeFailed : status;
}

}  // namespace kiln::tools
