// The order of the dimensions of q, k, v and o, as the caller names it.

#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "call.h"

namespace kiln::python {

/// The dimensions of "bshd", "sbhd", "bhsd", and "thd" for packed sequences: of batch,
/// sequence or tokens, heads, and the elements of a head. -1 for none.
struct Layout {
  /// Throws kiln.InvalidArgument for another name.
  explicit Layout(const std::string& name)
      : rank(static_cast<int>(name.size())),
        batch(dimension(name, 'b')),
        sequence(dimension(name, name == "thd" ? 't' : 's')),
        head(dimension(name, 'h')),
        dim(dimension(name, 'd')) {
    for (const auto& [known, its_value] :
         {std::pair{"bshd", KILN_ATTENTION_LAYOUT_BSHD},
          {"sbhd", KILN_ATTENTION_LAYOUT_SBHD},
          {"bhsd", KILN_ATTENTION_LAYOUT_BHSD},
          {"thd", KILN_ATTENTION_LAYOUT_THD}})
      if (name == known) {
        value = its_value;
        return;
      }
    refuse("layout is '" + name + "'; bshd, bhsd, sbhd and thd are possible");
  }

  /// Of a tensor whose heads are two dimensions: that of the groups is at `head`, and
  /// that of the heads of a group behind it.
  [[nodiscard]] Layout with_groups() const {
    Layout grouped = *this;
    for (int* at : {&grouped.rank, &grouped.batch, &grouped.sequence, &grouped.dim})
      *at += *at > head ? 1 : 0;
    return grouped;
  }

  int rank;
  int batch;
  int sequence;
  int head;
  int dim;
  kiln_attention_layout value{};

 private:
  static int dimension(const std::string& name, char letter) {
    const std::size_t at = name.find(letter);
    return at == std::string::npos ? -1 : static_cast<int>(at);
  }
};

}  // namespace kiln::python
