// A list of labelled values and its unique encoding as bytes. Used for the preimage of
// a key and for an object's metadata; FORMAT.md, "Fields", is the contract.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/digest.h"
#include "kiln/result.h"
#include "util/bytes.h"

namespace kiln {

struct Field {
  std::string label;
  std::string value;  // any bytes
  friend bool operator==(const Field&, const Field&) = default;
};

/// Reads an encoded list field by field; copies nothing. Thread safety: none.
class FieldReader {
 public:
  struct View {
    std::string_view label;
    std::string_view value;
  };

  /// `encoded` must outlive the views.
  explicit FieldReader(ByteView encoded) : rest_(encoded) {}
  /// nullopt at the end. Errors: kCorrupt, for anything that encode() cannot have
  /// written; the reader must not be used afterwards.
  [[nodiscard]] Result<std::optional<View>> next();

 private:
  ByteView rest_;
};

/// Appends one field, encoded.
void append_field(Bytes& to, std::string_view label, std::string_view value);

/// An ordered list; a label may occur more than once.
/// Encoding, little-endian, per field: u32 label length, u64 value length, label,
/// value. No two different lists have the same encoding, so that "-DA", "-DB" and
/// "-DA-DB" differ.
class Fields {
 public:
  void add(std::string_view label, std::string_view value);

  [[nodiscard]] const std::vector<Field>& list() const& { return list_; }
  /// By value on a temporary, so that a range-for loop over it does not dangle.
  [[nodiscard]] std::vector<Field> list() && { return std::move(list_); }
  /// The first value of that label.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view label) const;

  [[nodiscard]] Bytes encode() const;
  /// Errors: kCorrupt, for anything that encode() cannot have written.
  [[nodiscard]] static Result<Fields> decode(ByteView bytes);

  /// SHA-256 of encode(); for a preimage, this is the key.
  [[nodiscard]] Digest digest() const;

  friend bool operator==(const Fields&, const Fields&) = default;

 private:
  std::vector<Field> list_;
};

}  // namespace kiln
