// Key files and trusted keys for tests.

#pragma once

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string>

#include "codec/private_key.h"
#include "codec/trusted_keys.h"

namespace kiln::test {

inline TrustedKeys trusting(std::initializer_list<PublicKey> keys) {
  TrustedKeys trusted;
  for (const PublicKey& key : keys) trusted.keys.push_back({key});
  return trusted;
}

/// The line of a key in a file, and words behind it.
inline std::string line_of(const PublicKey& key, const std::string& words = "") {
  const std::string text = to_text(key);
  std::string line = text.substr(text.find('\n') + 1);
  line.pop_back();
  return line + (words.empty() ? "" : " " + words) + "\n";
}

/// As an administrator does: readers see the old file or the new one.
inline void replace_keys(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path next = path.native() + ".next";
  std::ofstream(next) << text;
  std::filesystem::permissions(next, std::filesystem::perms(0644));
  std::filesystem::rename(next, path);
}

}  // namespace kiln::test
