#include "tools/context.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/exit_code.h"

namespace kiln::tools {

void print(std::string_view text) {
  // A full disk or closed pipe shows in the final flush, which main checks.
  std::ignore = std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const nlohmann::ordered_json& document) {
  constexpr int kIndent = 2;
  print(document.dump(kIndent, ' ', false,
                      nlohmann::ordered_json::error_handler_t::replace));
  print("\n");
}

nlohmann::ordered_json error_json(const Error& error) {
  return {{"code", to_string(error.code)}, {"message", error.message}};
}

int report_failure(const Context& context, const Error& error) {
  if (context.json)
    print_json({{"error", error_json(error)}});
  fmt::print(stderr, "{} {}\n", context.err.styled("kiln:", Style::kRed),
             printable_lines(error.message));
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
