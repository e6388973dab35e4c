#include "kiln/request.h"

#include <atomic>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "request/answers.h"
#include "request/first_resolve.h"
#include "util/mutex.h"
#include "util/try.h"

namespace kiln {

namespace {

/// A list that only grows, so that readers need no lock. It has one element for each
/// service and device that got an answer.
class AnswerList {
 public:
  AnswerList() = default;
  AnswerList(const AnswerList&) = delete;
  AnswerList& operator=(const AnswerList&) = delete;
  ~AnswerList() {
    for (const Answer* answer = first_.load(std::memory_order_acquire);
         answer != nullptr;) {
      const std::unique_ptr<const Answer> owned(answer);
      answer = owned->next;
    }
  }

  [[nodiscard]] const void* find(const request::AnswerKey& key) const {
    for (const Answer* answer = first_.load(std::memory_order_acquire);
         answer != nullptr; answer = answer->next) {
      if (answer->key == key)
        return answer->answer.get();
    }
    return nullptr;
  }

  void add(const request::AnswerKey& key, std::shared_ptr<const void> answer) {
    auto added = std::make_unique<Answer>();
    added->key = key;
    added->answer = std::move(answer);
    added->next = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(
        added->next, added.get(), std::memory_order_release, std::memory_order_relaxed))
      continue;
    std::ignore = added.release();  // owned by the list now
  }

 private:
  struct Answer {
    request::AnswerKey key;
    std::shared_ptr<const void> answer;
    Answer* next = nullptr;
  };

  std::atomic<Answer*> first_ = nullptr;
};

}  // namespace

struct Request::Content {
  Content(std::string request_name, Parameters parameters)
      : is_template(true),
        name(std::move(request_name)),
        params(std::move(parameters)) {}
  Content(std::vector<SourceOptions> several, LinkOptions linked)
      : name(several.empty() ? "" : several.front().file_name),
        sources(std::move(several)),
        link(std::move(linked)) {}

  // Constant after construction.
  bool is_template = false;
  std::string name;
  Parameters params;
  std::vector<SourceOptions> sources;
  LinkOptions link;

  mutable Mutex mutex;
  mutable std::map<const void*, std::shared_ptr<const void>> first_resolves
      KILN_GUARDED_BY(mutex);  // by `identity`
  mutable AnswerList answers;
};

Request::Request(std::shared_ptr<const Content> content)
    : content_(std::move(content)) {}

Request::Request(std::string name, Parameters params)
    : content_(std::make_shared<const Content>(std::move(name), std::move(params))) {}

Request Request::from_source(SourceOptions options) {
  std::vector<SourceOptions> one;
  one.push_back(std::move(options));
  return from_sources(std::move(one));
}

Request Request::from_sources(std::vector<SourceOptions> sources, LinkOptions link) {
  return Request(std::make_shared<const Content>(std::move(sources), std::move(link)));
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
  static const auto* const none = new SourceOptions;
  return content_->sources.empty() ? *none : content_->sources.front();
}
const std::vector<SourceOptions>& Request::sources() const {
  return content_->sources;
}
const LinkOptions& Request::link() const {
  return content_->link;
}

struct RequestParts {
  static const Request::Content& content_of(const Request& request) {
    return *request.content_;
  }
};

namespace request {

Result<std::shared_ptr<const void>> FirstResolve::get_any(const Request& request,
                                                          const void* identity,
                                                          const MakeAny& make) {
  const auto& content = RequestParts::content_of(request);
  const MutexLock lock(content.mutex);
  const auto known = content.first_resolves.find(identity);
  if (known != content.first_resolves.end())
    return known->second;
  return content.first_resolves.emplace(identity, KILN_TRY(make())).first->second;
}

const void* Answers::find_any(const Request& request, const AnswerKey& key) {
  return RequestParts::content_of(request).answers.find(key);
}

void Answers::add_any(const Request& request, const AnswerKey& key,
                      std::shared_ptr<const void> answer) {
  RequestParts::content_of(request).answers.add(key, std::move(answer));
}

}  // namespace request

}  // namespace kiln
