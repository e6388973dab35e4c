// Handles that are no pointers: a magic byte, the library instance, the kind and a
// number that is never used again. So a stale handle, one of another kind or of another
// driver is found out, and never followed.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace kiln::simulated {

enum class HandleKind : std::uint8_t {
  kContext = 1,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kStream,
  kEvent,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kPool,
};

/// A new token of that kind; one thread at a time.
[[nodiscard]] std::uintptr_t new_token(HandleKind kind);

/// The objects of one kind by their handles. One thread at a time. Pointers to an
/// object hold until it is erased.
template <typename Handle, typename Object, HandleKind kKind>
class HandleTable {
 public:
  Handle add(Object object) {
    const std::uintptr_t token = new_token(kKind);
    objects_.emplace(token, std::make_unique<Object>(std::move(object)));
    return to_handle(token);
  }

  /// Null for a handle that is stale, foreign or null.
  [[nodiscard]] Object* find(Handle handle) const {
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second.get();
  }

  bool erase(Handle handle) {
    return objects_.erase(reinterpret_cast<std::uintptr_t>(handle)) != 0;
  }

  template <typename Predicate>
  void erase_if(const Predicate& is_unwanted) {
    std::erase_if(objects_,
                  [&](const auto& each) { return is_unwanted(*each.second); });
  }

  template <typename Visitor>
  void for_each(const Visitor& visit) const {
    for (const auto& [token, object] : objects_) visit(to_handle(token), *object);
  }

  [[nodiscard]] std::size_t size() const { return objects_.size(); }
  void clear() { objects_.clear(); }

 private:
  static Handle to_handle(std::uintptr_t token) {
    // Never followed. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<Handle>(token);
  }

  std::map<std::uintptr_t, std::unique_ptr<Object>> objects_;
};

}  // namespace kiln::simulated
