#include "build/entry_label.h"

#include <utility>
#include <vector>

#include "request/selection.h"
#include "request/source_kernels.h"
#include "util/demangle.h"

namespace kiln {

Parameters params_of(const cache::Entry& entry) {
  Parameters params;
  for (const Field& field : entry.params) params.emplace(field.label, field.value);
  return params;
}

std::string entry_label(const cache::Entry& entry) {
  if (entry.kind == cache::Kind::kFiles)
    return entry.template_name.empty() ? "(files)" : entry.template_name;
  if (!entry.template_name.empty())
    return request::format_template(entry.template_name, params_of(entry));
  std::vector<std::string> kernels;
  for (const cache::EntryPoint& each : entry.entry_points)
    kernels.push_back(source_name(each.name));
  return request::source_label(entry.file.empty() ? "(source)" : entry.file,
                               std::move(kernels));
}

std::string name_of(const cache::StoredObject& object) {
  auto metadata = object.metadata();
  return metadata ? entry_label(cache::entry_of(object.key(), object.kind(),
                                                *std::move(metadata)))
                  : "";
}

}  // namespace kiln
