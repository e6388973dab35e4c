// What waits to be uploaded. A server that is slow or dead must cost neither memory nor
// time: what finds no room in the queue is dropped.

#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_set>
#include <utility>

#include "codec/digest.h"

namespace kiln::remote {

/// Each key once, in the order of arrival.
/// Thread safety: none; its owner has a lock.
template <typename Upload>
class UploadQueue {
 public:
  static constexpr std::size_t kRoom = 64;

  /// False: there is no room, and it is dropped.
  bool add(const Digest& key, Upload upload) {
    if (keys_.contains(key))
      return true;
    if (uploads_.size() >= kRoom)
      return false;
    keys_.insert(key);
    uploads_.emplace_back(key, std::move(upload));
    return true;
  }

  /// The oldest; nullopt if none waits.
  std::optional<std::pair<Digest, Upload>> take() {
    if (uploads_.empty())
      return std::nullopt;
    std::pair<Digest, Upload> first = std::move(uploads_.front());
    uploads_.pop_front();
    keys_.erase(first.first);
    return first;
  }

  /// What waits is dropped, as at the end of a process whose time is up.
  void drop_all() {
    uploads_.clear();
    keys_.clear();
  }

  [[nodiscard]] std::size_t size() const { return uploads_.size(); }

 private:
  std::deque<std::pair<Digest, Upload>> uploads_;
  std::unordered_set<Digest> keys_;
};

}  // namespace kiln::remote
