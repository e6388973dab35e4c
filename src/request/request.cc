#include "kiln/request.h"

#include <utility>

namespace kiln {

struct Request::Content {
  bool is_template = false;
  std::string name;
  Parameters params;
  SourceOptions source;
};

Request::Request(std::shared_ptr<const Content> content)
    : content_(std::move(content)) {}

Request::Request(std::string name, Parameters params)
    : content_(std::make_shared<const Content>(
          Content{true, std::move(name), std::move(params), {}})) {}

Request Request::from_source(SourceOptions options) {
  std::string name = options.file_name;
  return Request(std::make_shared<const Content>(
      Content{false, std::move(name), {}, std::move(options)}));
}

bool Request::is_template() const {
  return content_->is_template;
}
const std::string& Request::name() const {
  return content_->name;
}
const Parameters& Request::parameters() const {
  return content_->params;
}
const SourceOptions& Request::source() const {
  return content_->source;
}

}  // namespace kiln
