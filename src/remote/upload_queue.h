// What waits to be uploaded. A server that is slow or dead must cost neither memory nor
// time: beyond its room the queue drops, and counts what it drops.

#pragma once

#include <cstdint>
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

  enum class Added : std::uint8_t { kYes, kIsThere, kDropped };
  Added add(const Digest& key, Upload upload) {
    if (keys_.contains(key))
      return Added::kIsThere;
    if (uploads_.size() >= kRoom) {
      ++dropped_;
      return Added::kDropped;
    }
    keys_.insert(key);
    uploads_.emplace_back(key, std::move(upload));
    return Added::kYes;
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
    dropped_ += uploads_.size();
    uploads_.clear();
    keys_.clear();
  }

  [[nodiscard]] std::size_t size() const { return uploads_.size(); }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  std::deque<std::pair<Digest, Upload>> uploads_;
  std::unordered_set<Digest> keys_;
  std::uint64_t dropped_ = 0;
};

}  // namespace kiln::remote
