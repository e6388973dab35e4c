// What all operations check alike, for each of the table: their pointers, sizes, types
// and workspaces. The tests of a family have what is its own.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/plans.h"
#include "tests/support/golden.h"
#include "tests/support/operations/sample_call.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::every_operation_checks {
namespace {

using test::Sample;

const Device kDevice{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};

/// Calls use("softmax_forward", its arguments, which of the samples they are).
template <typename Use>
void for_each_call(const Use& use) {
  const auto use_samples = [&]<typename Args>(const std::string& operation,
                                              std::type_identity<Args> /*of*/) {
    for (const Sample sample : test::samples_of<Args>()) {
      SCOPED_TRACE(operation + ", sample " + std::to_string(static_cast<int>(sample)));
      use(operation, test::sample_call<Args>(sample), sample);
    }
  };
#define KILN_USE(function, Args) use_samples(#function, std::type_identity<Args>());
  KILN_EACH_OPERATION(KILN_USE)
#undef KILN_USE
}

template <typename Args>
std::string said_of(const Args& args) {
  const auto checked = check_pointers(args);
  return checked ? "accepted" : refusal(checked);
}

template <typename Args>
std::vector<std::uint64_t> addresses_of(const Args& args) {
  std::vector<std::uint64_t> all;
  for_each_pointer(args, [&all](const auto* pointer) {
    all.push_back(reinterpret_cast<std::uintptr_t>(pointer));
  });
  return all;
}

template <typename Args>
[[nodiscard]] Args with_address(Args args, std::size_t number, std::uint64_t address) {
  for_each_pointer(args, [&number, address](auto*& pointer) {
    if (number-- == 0)
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(address);
  });
  return args;
}

/// The memory of a pointer, as the operation describes it.
struct Memory {
  std::size_t number;  // of the pointer
  Argument argument;
  [[nodiscard]] std::uint64_t begin() const {
    return reinterpret_cast<std::uintptr_t>(argument.begin);
  }
  [[nodiscard]] std::uint64_t end() const { return begin() + argument.size_bytes; }
  [[nodiscard]] bool is_read() const { return argument.access == Access::kReads; }
};

/// Of the pointers that are set, in the order in which the operation looks at outputs.
template <typename Args>
std::vector<Memory> memory_of(const Args& args) {
  std::vector<Argument> listed;
  EXPECT_TRUE(plan(args, kDevice, Pointers::listed_in(listed)));
  const std::vector<std::uint64_t> addresses = addresses_of(args);
  std::vector<Memory> all;
  for (const Argument& argument : listed) {
    const auto found =
        std::ranges::find(addresses, reinterpret_cast<std::uintptr_t>(argument.begin));
    if (argument.access != Access::kNone && argument.begin != nullptr &&
        found != addresses.end())
      all.push_back({static_cast<std::size_t>(found - addresses.begin()), argument});
  }
  std::ranges::stable_sort(all, {},
                           [](const Memory& memory) { return memory.argument.access; });
  std::set<std::size_t> numbers;
  for (const Memory& memory : all) numbers.insert(memory.number);
  const auto unset = std::ranges::count(addresses, std::uint64_t{0});
  EXPECT_EQ(std::ssize(numbers), std::ssize(addresses) - unset)
      << "a pointer is set that no check looks at";
  return all;
}

/// The label of each pointer.
template <typename Args>
std::vector<std::string> labels_of() {
  std::vector<std::string> labels(addresses_of(Args{}).size());
  for (const Sample sample : test::samples_of<Args>())
    for (const Memory& memory : memory_of(test::sample_call<Args>(sample)))
      labels[memory.number] = memory.argument.label;
  return labels;
}

/// " y 240x2, mean? 6x4": elements and their bytes; "?" may be null.
template <typename Args>
std::string described(const std::string& operation, const Args& args, bool reads) {
  std::string text;
  for (const Memory& memory : memory_of(args)) {
    const Argument& argument = memory.argument;
    if (memory.is_read() != reads)
      continue;
    const std::string said = said_of(with_address(args, memory.number, 0));
    const bool may_be_null = said == "accepted";
    text += fmt::format("{} {}{} {}x{}", text.empty() ? "" : ",", argument.label,
                        may_be_null ? "?" : "",
                        argument.size_bytes / argument.element_bytes,
                        argument.element_bytes);
    if (!may_be_null &&
        said != fmt::format("{}: {} is null", operation, argument.label))
      text += fmt::format(" (null: {})", said);
  }
  return text;
}

/// What is said until all pointers are as the arguments say: those that are missed are
/// set, and those that would be ignored are made null.
template <typename Args>
std::string said_until_accepted(const std::string& operation, Args args) {
  const std::vector<std::string> labels = labels_of<Args>();
  constexpr std::string_view kIgnored = ": it would be ignored";
  std::string text;
  for (std::size_t i = 0; i <= labels.size(); ++i) {
    std::string said = said_of(args);
    if (said == "accepted")
      return text;
    const bool is_ignored = said.ends_with(kIgnored);
    EXPECT_TRUE(is_ignored || said.ends_with(" is null")) << said;
    said.erase(0, operation.size() + 2);
    const auto label = std::ranges::find(labels, said.substr(0, said.find(" is ")));
    const auto number = static_cast<std::size_t>(label - labels.begin());
    args = with_address(args, number, is_ignored ? 0 : (1 + i) << 40U);
    if (is_ignored)
      said.erase(said.size() - kIgnored.size());
    text += fmt::format("{} {}", text.empty() ? "" : ";", said);
  }
  ADD_FAILURE() << "it is never accepted: " << text;
  return text;
}

/// Calls use(name, the arguments with that option changed) for each that has pointers
/// of its own.
template <typename Args, typename Use>
void for_each_option_changed(const Args& args, const Use& use) {
  Args changed = args;
#define KILN_CHANGE(member, value)           \
  if constexpr (requires { args.member; }) { \
    changed = args;                          \
    changed.member = value;                  \
    use(#member, changed);                   \
  }
  KILN_CHANGE(has_bias, false)
  KILN_CHANGE(adds_residual, false)
  KILN_CHANGE(has_dweight, false)
  KILN_CHANGE(from_output, !args.from_output)
  KILN_CHANGE(layout, GluLayout::kPacked)
  if constexpr (requires { args.mask_bytes; })
    KILN_CHANGE(mask, SoftmaxMask::kCausal)
  if constexpr (requires { args.has_weight; }) {
    changed = args;
    changed.has_weight = false;
    if constexpr (!test::kIsGlu<Args> && requires { args.has_bias; })
      changed.has_bias = false;
    use("has_weight", changed);
  }
#undef KILN_CHANGE
}

TEST(EveryOperation, SaysWhichPointersItMissesAndWhichItWouldIgnore) {
  std::string text;
  for_each_call([&](const std::string& operation, const auto& args, Sample sample) {
    ASSERT_EQ(said_of(args), "accepted");
    if (sample == Sample::kFewest)
      return;
    text += fmt::format("{}{}\n  writes{}\n  reads{}\n", operation,
                        sample == Sample::kOther ? ", other" : "",
                        described(operation, args, false),
                        described(operation, args, true));
    for_each_option_changed(args, [&](const char* option, const auto& changed) {
      if (said_of(changed) != "accepted")
        text += fmt::format("  {} changed:{}\n", option,
                            said_until_accepted(operation, changed));
    });
  });
  test::expect_golden("tests/unit/ops/golden/pointers.txt", text);
}

TEST(EveryOperation, WouldIgnoreNoPointerWhereThereAreNoRowsEither) {
  for_each_call([](const std::string& /*operation*/, const auto& args, Sample sample) {
    if constexpr (requires { args.rows; })
      for_each_option_changed(args, [&](const char* option, auto changed) {
        const std::string said = said_of(changed);
        if (sample == Sample::kFewest || !said.ends_with(": it would be ignored"))
          return;
        changed.rows = 0;
        EXPECT_EQ(said_of(changed), said) << option;
      });
  });
}

TEST(EveryOperation, RefusesAnAddressBetweenElements) {
  for_each_call([](const std::string& operation, const auto& args, Sample /*sample*/) {
    for (const Memory& memory : memory_of(args)) {
      const std::size_t element = memory.argument.element_bytes;
      const std::uint64_t odd = memory.begin() + element - 1;
      const std::string wrong =
          fmt::format("{}: {} is at {:#x}, no multiple of an element's {} bytes",
                      operation, memory.argument.label, odd, element);
      const bool is_accepted = element == 1 || memory.argument.size_bytes == 0;
      EXPECT_EQ(said_of(with_address(args, memory.number, odd)),
                is_accepted ? "accepted" : wrong);
    }
  });
}

/// `a` or `b` is written; `a` is before `b` where both are.
std::string overlap(const std::string& operation, const Memory& a, const Memory& b) {
  if (a.is_read() || b.is_read())
    return fmt::format("{}: {} overlaps {}: it works out of place", operation,
                       (a.is_read() ? b : a).argument.label,
                       (a.is_read() ? a : b).argument.label);
  return fmt::format("{}: {} overlaps {}", operation, b.argument.label,
                     a.argument.label);
}

TEST(EveryOperation, RefusesAnOutputThatSharesAnElementWithAnyOtherMemory) {
  for_each_call([](const std::string& operation, const auto& args, Sample /*sample*/) {
    std::vector<Memory> all = memory_of(args);
    std::erase_if(all, [](const Memory& memory) {
      return memory.argument.size_bytes == 0;  // not used
    });
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) {
        if (i == j)
          continue;
        const std::uint64_t element = all[i].argument.element_bytes;
        const std::uint64_t last = (all[j].end() - 1) / element * element;
        const auto moved = [&](std::uint64_t address) {
          return said_of(with_address(args, all[i].number, address));
        };
        const bool may_overlap = all[i].is_read() && all[j].is_read();
        const std::string said =
            may_overlap ? "accepted"
                        : overlap(operation, all[std::min(i, j)], all[std::max(i, j)]);
        EXPECT_EQ(moved(all[j].begin()), said);
        EXPECT_EQ(moved(last), said);
        EXPECT_EQ(moved(last + element), "accepted")
            << all[i].argument.label << " behind " << all[j].argument.label;
      }
    }
  });
}

TEST(EveryOperation, SaysWhichSizeIsNotSetOrNegative) {
  for_each_call([](const std::string& operation, auto args, Sample /*sample*/) {
    const auto expect_named = [&](const char* name, std::int64_t& size) {
      for (const auto& [wrong, said] : {std::pair{kUnsetSize, "is not set"},
                                        std::pair{std::int64_t{-5}, "is -5"}}) {
        const std::int64_t right = std::exchange(size, wrong);
        EXPECT_EQ(said_of(args), fmt::format("{}: {} {}", operation, name, said));
        EXPECT_FALSE(plan(args, kDevice)) << "prepare() looks at no pointer";
        size = right;
      }
    };
#define KILN_SIZE(member)                  \
  if constexpr (requires { args.member; }) \
    expect_named(#member, args.member);
    KILN_SIZE(rows)
    KILN_SIZE(cols)
    KILN_SIZE(vocabulary)
    KILN_SIZE(batch)
    KILN_SIZE(heads)
    KILN_SIZE(sq)
    KILN_SIZE(skv)
    KILN_SIZE(sequence)
    KILN_SIZE(head_dim)
    KILN_SIZE(rotary_dim)
    KILN_SIZE(q.heads)
    KILN_SIZE(k.heads)
    KILN_SIZE(table.positions)
    KILN_SIZE(table.columns)
#undef KILN_SIZE
  });
}

// But for zeros in the gradient of a weight or a bias, for which there are no rows.
TEST(EveryOperation, LaunchesNothingWhereThereIsNothing) {
  for_each_call([](const std::string& /*operation*/, auto args, Sample /*sample*/) {
    const auto expect_nothing = [](const char* size, const auto& empty) {
      const auto launches = plan(empty, kDevice);
      ASSERT_TRUE(launches) << size << ": " << launches.error().message;
      for (const Launch& launch : *launches)
        EXPECT_THAT(launch.entry, testing::EndsWith("_finalize")) << size;
      EXPECT_EQ(said_of(empty), "accepted") << size;
    };
#define KILN_EMPTY(member)                   \
  if constexpr (requires { args.member; }) { \
    auto empty = args;                       \
    empty.member = 0;                        \
    expect_nothing(#member, empty);          \
  }
    KILN_EMPTY(rows)
    if constexpr (!requires { args.dlinear; })  // its weight has a gradient of zeros
      KILN_EMPTY(cols)
    if constexpr (!test::kIsRope<decltype(args)>)  // which may pack its tokens
      KILN_EMPTY(batch)
    KILN_EMPTY(heads)
    KILN_EMPTY(sq)
    KILN_EMPTY(skv)
    KILN_EMPTY(sequence)
#undef KILN_EMPTY
  });
}

TEST(EveryOperation, SaysWhichTypeOrKindIsNotSetOrNone) {
  for_each_call([](const std::string& operation, auto args, Sample /*sample*/) {
    const auto expect_named = [&](const std::string& name, auto& choice,
                                  const std::string& said,
                                  std::initializer_list<int> wrong) {
      for (const int number : wrong) {
        const auto right = std::exchange(
            choice, static_cast<std::remove_reference_t<decltype(choice)>>(number));
        EXPECT_THAT(said_of(args), testing::StartsWith(operation + ": " + name + said));
        choice = right;
      }
    };
    expect_named("dtype", args.dtype, " is not set: f16, bf16 or f32", {0, 77});
#define KILN_CHOICE(member, ...)           \
  if constexpr (requires { args.member; }) \
    expect_named(#member, args.member, __VA_ARGS__);
    KILN_CHOICE(kind, " is not set: one of ", {0, 77})
    KILN_CHOICE(style, " is not set: kHalf or kInterleaved", {0, 77})
    KILN_CHOICE(layout, " is none of GluLayout", {7})
    KILN_CHOICE(mask, " is none of SoftmaxMask", {9})
    KILN_CHOICE(masked_row, " is none of SoftmaxMaskedRow", {2})
    KILN_CHOICE(casting, " is none of RmsNormCasting", {7})
    KILN_CHOICE(target_type, " is none of TargetType", {7})
#undef KILN_CHOICE
  });
}

template <typename Args, typename WorkspaceBytes>
void expect_workspace_checked(const std::string& operation,
                              const WorkspaceBytes& workspace_bytes) {
  SCOPED_TRACE(operation);
  const bool sums = test::kIsGlu<Args>;  // for a bias, and not for a weight
  Args args = test::sample_call<Args>(sums ? Sample::kOther : Sample::kMost);
  const std::uint64_t needed = workspace_bytes(kDevice, args).value();
  ASSERT_GT(needed, 0U);
  for (const std::uint64_t small : {std::uint64_t{0}, needed - 1}) {
    args.workspace_bytes = small;
    EXPECT_EQ(said_of(args), fmt::format("{}: workspace_bytes is {}: {} are needed",
                                         operation, small, needed));
    EXPECT_FALSE(plan(args, kDevice));
  }
  args.workspace_bytes = needed;
  EXPECT_EQ(said_of(args), "accepted");
  args.workspace = nullptr;
  args.workspace_bytes = 0;
  EXPECT_EQ(said_of(args), operation + ": workspace is null");
  EXPECT_TRUE(plan(args, kDevice)) << "prepare() has none";
}

TEST(EveryOperation, RefusesAWorkspaceThatIsTooSmallOrNone) {
#define KILN_EXPECT(function, Args) \
  expect_workspace_checked<Args>(#function, function##_workspace_bytes);
  KILN_EACH_WORKSPACE(KILN_EXPECT)
#undef KILN_EXPECT
}

}  // namespace
}  // namespace kiln::ops::every_operation_checks
