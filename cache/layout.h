// Every path under the cache root is built here, and every name found there is
// classified here. FORMAT.md, "Folders", is the contract.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "codec/digest.h"

namespace kiln::cache {

/// The version of the object format; objects of other versions live in other folders.
inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr unsigned kFolderCount = 256;

/// The default size limit of a root.
inline constexpr std::uint64_t kDefaultLimitBytes = 10ULL << 30U;

/// Thread safety: immutable.
class Layout {
 public:
  /// `root` is absolute; it need not exist.
  explicit Layout(std::filesystem::path root);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  /// <root>/objects/v1
  [[nodiscard]] const std::string& objects() const { return objects_; }
  /// <root>/objects/v1/<2 hex>; `number` is the first byte of the keys inside.
  [[nodiscard]] std::string object_folder(unsigned number) const;
  /// <root>/objects/v1/<2 hex>/<62 hex>. A string, because std::filesystem::path parses
  /// its components, which costs as much as reading a small object.
  [[nodiscard]] std::string object(const Digest& key) const;
  /// <folder>/.tmp-<32 hex>: a random name that no other process chooses.
  [[nodiscard]] static std::string temporary_in(std::string_view folder);

  [[nodiscard]] std::filesystem::path locks() const { return root_ / "locks"; }
  [[nodiscard]] std::filesystem::path quarantine() const {
    return root_ / "quarantine";
  }
  [[nodiscard]] std::filesystem::path repro() const { return root_ / "repro"; }
  [[nodiscard]] std::filesystem::path toolchains() const {
    return root_ / "toolchains";
  }
  /// The NVRTC of the last warm.
  [[nodiscard]] std::filesystem::path recorded_toolchain() const {
    return toolchains() / "recorded.json";
  }
  /// Which packs were taken: pack_identity.h.
  [[nodiscard]] std::filesystem::path packs() const { return root_ / "packs"; }
  /// Who signed what came from elsewhere: signers.h.
  [[nodiscard]] std::filesystem::path signers() const { return root_ / "signers"; }
  [[nodiscard]] std::filesystem::path memo() const { return root_ / "memo"; }
  [[nodiscard]] std::filesystem::path precompiled() const { return root_ / "pch"; }
  [[nodiscard]] std::filesystem::path index() const { return root_ / "index.sqlite"; }
  [[nodiscard]] std::filesystem::path counters() const { return root_ / "counters"; }
  /// Its mtime is when a process last checked whether this root needs a trim.
  [[nodiscard]] std::filesystem::path trim_stamp() const {
    return root_ / "trim.stamp";
  }

  /// The key of an object file, or nullopt for a name that is not ours.
  [[nodiscard]] static std::optional<Digest> key_of(unsigned folder,
                                                    std::string_view name);
  [[nodiscard]] static bool is_temporary(std::string_view name);

 private:
  std::filesystem::path root_;
  std::string objects_;
};

}  // namespace kiln::cache
