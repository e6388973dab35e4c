#include "cache/layout.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <random>
#include <utility>

#include "util/bytes.h"

namespace kiln::cache {
namespace {

constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::size_t kTemporaryHex = 32;

bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Layout::Layout(std::filesystem::path root)
    : root_(std::move(root)),
      objects_(fmt::format("{}/objects/v{}", root_.native(), kFormatVersion)) {}

std::string Layout::object_folder(unsigned number) const {
  return fmt::format("{}/{:02x}", objects_, number);
}

std::string Layout::object(const Digest& key) const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 2 + 2 * Digest::kSize> name{'/'};
  char* at = name.data() + 1;
  for (std::size_t i = 0; i < Digest::kSize; ++i) {
    const auto byte = std::to_integer<unsigned>(key.bytes()[i]);
    *at++ = kDigits[byte >> 4U];
    *at++ = kDigits[byte & 0xFU];
    if (i == 0)
      *at++ = '/';
  }
  std::string path;
  path.reserve(objects_.size() + name.size());
  path.append(objects_).append(name.data(), name.size());
  return path;
}

std::string Layout::temporary_in(std::string_view folder) {
  // Random, not a process id: those collide between containers that share a root.
  std::array<std::byte, kTemporaryHex / 2> random{};
  if (::getrandom(random.data(), random.size(), 0) !=
      static_cast<ssize_t>(random.size())) {
    std::random_device device;
    std::generate(random.begin(), random.end(),
                  [&device] { return static_cast<std::byte>(device() & 0xFFU); });
  }
  return fmt::format("{}/{}{}", folder, kTemporaryPrefix, to_hex(random));
}

std::optional<Digest> Layout::key_of(unsigned folder, std::string_view name) {
  if (name.size() != 2 * (Digest::kSize - 1) || !is_lower_hex(name))
    return std::nullopt;
  return Digest::from_hex(fmt::format("{:02x}{}", folder, name));
}

bool Layout::is_temporary(std::string_view name) {
  return name.size() == kTemporaryPrefix.size() + kTemporaryHex &&
         name.starts_with(kTemporaryPrefix) &&
         is_lower_hex(name.substr(kTemporaryPrefix.size()));
}

}  // namespace kiln::cache
