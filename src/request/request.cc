#include "kiln/request.h"

#include <utility>

#include "request/first_resolve.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln {

struct Request::Content {
  Content(std::string request_name, Parameters parameters)
      : is_template(true),
        name(std::move(request_name)),
        params(std::move(parameters)) {}
  explicit Content(SourceOptions options)
      : name(options.file_name), source(std::move(options)) {}

  // Constant after construction.
  bool is_template = false;
  std::string name;
  Parameters params;
  SourceOptions source;

  mutable Mutex mutex;
  mutable std::shared_ptr<const void> first_resolve KILN_GUARDED_BY(mutex);
};

Request::Request(std::shared_ptr<const Content> content)
    : content_(std::move(content)) {}

Request::Request(std::string name, Parameters params)
    : content_(std::make_shared<const Content>(std::move(name), std::move(params))) {}

Request Request::from_source(SourceOptions options) {
  return Request(std::make_shared<const Content>(std::move(options)));
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

namespace request {

Result<std::shared_ptr<const void>> FirstResolve::get_any(const Request& request,
                                                          const MakeAny& make) {
  const Request::Content& content = *request.content_;
  const MutexLock lock(content.mutex);
  if (content.first_resolve == nullptr)
    content.first_resolve = KILN_TRY(make());
  return content.first_resolve;
}

}  // namespace request

}  // namespace kiln
