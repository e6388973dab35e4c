// Attention problems in few words, for tables in tests: "9.0 9.4.0 bwd d=192/128
// causal".

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "attention/condition.h"
#include "tests/support/attention_problem.h"

namespace kiln::test {

/// "a/b" or "a,b"; one number is both.
inline std::pair<std::int64_t, std::int64_t> pair_of(const std::string& value) {
  const std::size_t middle = value.find_first_of("/,");
  const auto number = [](const std::string& digits) {
    return std::strtoll(digits.c_str(), nullptr, 10);
  };
  const std::int64_t first = number(value);
  return {first,
          middle == std::string::npos ? first : number(value.substr(middle + 1))};
}

/// One word of a feature: "dropout=0.5", "deterministic". False: it is none.
inline bool read_feature(attention::Problem& problem, const std::string& name,
                         const std::string& value) {
  if (name == "d")
    std::tie(problem.dqk, problem.dv) = pair_of(value);
  else if (name == "s")
    std::tie(problem.sq, problem.skv) = pair_of(value);
  else if (name == "heads")
    std::tie(problem.heads, problem.kv_heads) = pair_of(value);
  else if (name == "window")
    std::tie(problem.window_left, problem.window_right) = pair_of(value);
  else if (name == "batch")
    problem.batch = pair_of(value).first;
  else if (name == "dropout")
    problem.dropout = std::strtod(value.c_str(), nullptr);
  else if (name == "gradient")
    problem.bias_gradient = true;
  else if (name == "deterministic")
    problem.deterministic = true;
  else if (name == "capture")
    problem.capture = true;
  else if (name == "training")
    problem.training = true;
  else
    return false;
  return true;
}

/// What cannot be said by a layout: "mixed" has key and value in another order than the
/// query, "interleaved" query, key and value in one tensor.
inline void edit_strides(attention::Problem& problem, const std::string& how) {
  using attention::Layout;
  if (how == "mixed") {
    attention::Problem other = problem;
    other.layout = problem.layout == Layout::kSbhd ? Layout::kBshd : Layout::kSbhd;
    set_strides(other);
    problem.k = other.k;
    problem.v = other.v;
  } else if (how == "interleaved") {
    for (attention::Strides* const each : {&problem.q, &problem.k, &problem.v}) {
      each->batch *= 3;
      each->sequence *= 3;
    }
  }
}

/// "b1ss": batch, heads, queries and keys of a bias; 1 where it is alike.
inline void set_bias_sizes(attention::Problem& problem, const std::string& sizes) {
  std::int64_t row = problem.skv;
  problem.bias = {.dim = 1};
  if (sizes.at(2) == 's')
    problem.bias.sequence = std::exchange(row, row * problem.sq);
  if (sizes.at(1) == 'h')
    problem.bias.head = std::exchange(row, row * problem.heads);
  if (sizes.at(0) == 'b')
    problem.bias.batch = row;
}

/// `text` says what differs from usual_attention_problem().
inline attention::Problem problem_in_words(const std::string& text) {
  attention::Problem problem = usual_attention_problem();
  std::istringstream words(text);
  std::string word, strides, bias_sizes;
  while (words >> word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    if (const auto pass = parse_word<attention::Pass>(word))
      problem.pass = *pass;
    else if (const auto dtype = parse_word<ops::DType>(word))
      problem.dtype = *dtype;
    else if (const auto mask = parse_word<attention::Mask>(word))
      problem.mask = *mask;
    else if (const auto layout = parse_word<attention::Layout>(word))
      problem.layout = *layout;
    else if (const auto bias = parse_word<attention::Bias>(word))
      problem.bias_kind = *bias;
    else if (word == "mixed" || word == "interleaved")
      strides = word;
    else if (name == "bias")
      bias_sizes = value;
    else if (!read_feature(problem, name, value))
      ADD_FAILURE() << "what is " << word << '?';
  }
  problem.training = problem.training || problem.pass == attention::Pass::kBackward;
  set_strides(problem);
  edit_strides(problem, strides);
  if (!bias_sizes.empty())
    set_bias_sizes(problem, bias_sizes);
  const auto valid = validate(problem);
  EXPECT_TRUE(valid) << text << ": " << (valid ? "" : valid.error().message);
  return problem;
}

/// "9.0" as a compute capability.
inline ComputeCapability capability_in_words(const std::string& text) {
  const std::size_t dot = text.find('.');
  return {std::stoi(text.substr(0, dot)), std::stoi(text.substr(dot + 1))};
}

/// "9.0 9.4.0 bwd d=192/128 causal": architecture, cuDNN, problem.
inline attention::RuleQuestion question(const std::string& text) {
  std::istringstream words(text);
  std::string arch, cudnn, problem;
  words >> arch >> cudnn;
  std::getline(words, problem);
  const auto version = attention::parse_cudnn_version(cudnn);
  EXPECT_TRUE(version) << cudnn;
  return {.problem = problem_in_words(problem),
          .arch = capability_in_words(arch),
          .cudnn = version.value_or(attention::CudnnVersion{})};
}

}  // namespace kiln::test
