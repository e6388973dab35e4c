#include "tests/support/simulated_driver/faults.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tests/support/simulated_driver/functions.h"

namespace kiln::simulated {

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> items;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    items.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return items;
}

bool parse_number(std::string_view text, int& number) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

bool ends_context(CUresult result) {
  constexpr std::array kEnds{CUDA_ERROR_ECC_UNCORRECTABLE,
                             CUDA_ERROR_NVLINK_UNCORRECTABLE,
                             CUDA_ERROR_ILLEGAL_ADDRESS,
                             CUDA_ERROR_LAUNCH_TIMEOUT,
                             CUDA_ERROR_ASSERT,
                             CUDA_ERROR_HARDWARE_STACK_ERROR,
                             CUDA_ERROR_ILLEGAL_INSTRUCTION,
                             CUDA_ERROR_MISALIGNED_ADDRESS,
                             CUDA_ERROR_INVALID_ADDRESS_SPACE,
                             CUDA_ERROR_INVALID_PC,
                             CUDA_ERROR_LAUNCH_FAILED};
  return std::find(kEnds.begin(), kEnds.end(), result) != kEnds.end();
}

CUresult Faults::count(std::string_view function) {
  const auto found = records_.try_emplace(std::string(function)).first;
  Record& record = found->second;
  ++record.calls;
  for (const Injected& each : record.injected) {
    if (each.call == 0 || each.call == record.calls)
      return each.result;
  }
  return CUDA_SUCCESS;
}

void Faults::inject(std::string_view function, unsigned long nth, CUresult result) {
  Record& record = records_[std::string(function)];
  record.injected.push_back({nth == 0 ? 0 : record.calls + nth, result});
}

bool Faults::parse(std::string_view list) {
  for (const std::string_view item : split(list)) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view call = item.substr(0, equals);
    const std::size_t colon = std::min(call.find(':'), call.size());
    const std::string_view function = call.substr(0, colon);
    int nth = 0;
    int result = 0;
    if (equals == item.size() || !parse_number(item.substr(equals + 1), result) ||
        (colon != call.size() &&
         (!parse_number(call.substr(colon + 1), nth) || nth < 1)))
      return false;
    if (!is_function(function) || !is_result(result))
      return false;
    inject(function, static_cast<unsigned long>(nth), static_cast<CUresult>(result));
  }
  return true;
}

void Faults::clear() {
  for (auto& [function, record] : records_) record.injected.clear();
}

unsigned long Faults::calls(std::string_view function) const {
  const auto found = records_.find(function);
  return found == records_.end() ? 0 : found->second.calls;
}

}  // namespace kiln::simulated
