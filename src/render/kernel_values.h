// The steps from declarations to the parts of a kernel. Each fills in what its name
// says. Call them in the order listed; later ones use the symbols of earlier ones.
// Errors of all: kInvalidArgument "<file>:<line>: <reason>".

#pragma once

#include "kiln/result.h"
#include "render/kernel_declarations.h"
#include "render/kernel_parts.h"

namespace kiln::render {

[[nodiscard]] Result<void> read_parameters(const Declarations& from, KernelParts& to);
[[nodiscard]] Result<void> read_constants(const Declarations& from, KernelParts& to);
[[nodiscard]] Result<void> read_derived(const Declarations& from, KernelParts& to);
[[nodiscard]] Result<void> read_constraints(const Declarations& from, KernelParts& to);
[[nodiscard]] Result<void> read_targets(const Declarations& from, KernelParts& to);
[[nodiscard]] Result<void> read_launch(const Declarations& from, KernelParts& to);
[[nodiscard]] Result<SetDeclarations> read_sets(const Declarations& from);

/// Parses a string; an integer or a boolean is a constant. Without `type` of either.
[[nodiscard]] Result<Expression> read_expression(std::string_view file,
                                                 const toml::node& node,
                                                 std::optional<ValueType> type,
                                                 const SymbolTable& symbols);

/// `{that, message}` tables.
[[nodiscard]] Result<std::vector<Condition>> read_conditions(
    std::string_view file, std::string_view what,
    const std::vector<const toml::table*>& tables, const SymbolTable& symbols);

}  // namespace kiln::render
