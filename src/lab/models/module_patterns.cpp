// SPDX-License-Identifier: Apache-2.0
#include "lab/models/module_patterns.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "hotset/registry/parameters.hpp"
#include "lab/files/text_scan.hpp"

namespace hotset::lab {
namespace {

using enum model_module;

constexpr std::size_t longest_pattern = 1024;
constexpr std::size_t most_alternatives = 256;

constexpr module_set mlp_modules = expert_modules | shared_modules | dense_modules;

/// Words, separated by spaces, and the modules that each of them selects in a name.
struct module_words {
  std::string_view words;
  module_set modules;
};
/// Last parts of names. If one word contains another, the longer one comes first.
constexpr auto projections = std::to_array<module_words>({
    {"gate_up_proj", set_of(expert_gate, expert_up, shared_gate, shared_up, dense_gate, dense_up)},
    {"input_linear", set_of(expert_gate, expert_up, shared_gate, shared_up)},
    {"output_linear", set_of(expert_down, shared_down)},
    {"gate_proj w1", set_of(expert_gate, shared_gate, dense_gate)},
    {"up_proj w3", set_of(expert_up, shared_up, dense_up)},
    {"down_proj w2", set_of(expert_down, shared_down, dense_down)},
    {"in_proj_ba in_proj_b in_proj_a", set_of(linear_gates)},
    {"in_proj_qkv in_proj_z in_proj", set_of(linear_in)},
    {"out_proj", set_of(output, linear_out)},
    {"output_gate", set_of(output_gate)},
    {"query_key_value wqkv", set_of(query, key, value)},
    {"attention.dense wo_a wo_b", set_of(output)},
    {"wkv_b embed_q unembed_out", set_of(key_value)},
    {"wkv", set_of(key_value_low)},
    {"wq_a", set_of(query_low)},
    {"wq_b", set_of(query)},
    {"qkv_a_proj", set_of(query_low, key_value_low)},
    {"q_a_proj", set_of(query_low)},
    {"q_b_proj", set_of(query)},
    {"kv_a_proj", set_of(key_value_low)},
    {"kv_b_proj", set_of(key_value)},
    {"qkv_proj", set_of(query, key, value)},
    {"q_proj", set_of(query)},
    {"k_proj", set_of(key)},
    {"v_proj", set_of(value)},
    {"o_proj", set_of(output)},
});
/// Parts of a decoder.
constexpr auto parts = std::to_array<module_words>({
    {"shared_expert shared_mlp share_expert", shared_modules},
    {"experts switch_mlp block_sparse_moe.input_linear block_sparse_moe.output_linear",
     expert_modules},
    {"linear_attn", linear_attention_modules},
    {"self_attn", attention_modules},
    {"attn", attention_modules | linear_attention_modules},
    {"attention", attention_modules},
});
/// Weights that are never quantised, or that no plan counts.
constexpr std::array<std::string_view, 18> uncounted = {
    "vision", "visual",      "multi_modal", "projector", "audio",    "norm",
    "mtp",    "nextn",       "eh_proj",     "conv1d",    "rotary",   "correction_bias",
    "index",  "latent_proj", "patch_merge", "talker",    "code2wav", "shared_head"};

bool has(std::string_view text, std::string_view word) noexcept {
  return text.find(word) != text.npos;
}
/// Removes suffixes that mean the weight itself or everything below it.
std::string_view without_tail(std::string_view text) noexcept {
  while (true) {
    const auto size = text.size();
    for (const std::string_view tail : {".weight", "$", "*", "."})
      if (text.ends_with(tail)) text.remove_suffix(tail.size());
    if (text.size() == size) return text;
  }
}

/// Removes characters that only regular expressions have, and lowers case, so that class names look like names.
std::string plain_text(std::string_view pattern) {
  for (const std::string_view mark : {"re:", "+:", "-:"})
    if (pattern.starts_with(mark)) pattern.remove_prefix(mark.size());
  auto out = lower_case(pattern);
  std::erase(out, '\\');
  return out;
}

/// Spells classes of digits out: "2[0-3]" as "2(0|1|2|3)", and "[0-9]+" as "d+".
std::string without_classes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto end = text.find(']');
    const auto digits = text[0] == '[' && end != text.npos ? text.substr(1, end - 1) : "";
    if (digits.empty() || digits.find_first_not_of("0123456789-") != digits.npos) {
      out.push_back(text[0]);
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(end + 1);
    if (digits == "0-9" && text.find_first_of("+*{") == 0) {
      out.push_back('d');
      continue;
    }
    out.push_back('(');
    for (char c = '0'; c <= '9'; ++c) {
      bool is_member = false;
      for (std::size_t i = 0; i < digits.size(); ++i)
        is_member |= digits[i] == c || (digits[i] == '-' && i > 0 && i + 1 < digits.size() &&
                                        digits[i - 1] < c && c < digits[i + 1]);
      if (is_member) out.append({c, '|'});
    }
    out.back() = ')';
  }
  return out;
}

/// Appends the texts for all choices of "(a|b)" groups, innermost first; a top-level "|" also separates texts.
/// Returns false for another kind of group, or for too many texts.
bool add_alternatives(const std::string& text, std::vector<std::string>& out) {
  const auto end = text.find(')');
  const bool is_whole = end == text.npos;
  const auto begin = is_whole ? text.find('(') : text.rfind('(', end);
  if (is_whole != (begin == text.npos)) return false;
  auto inside =
      is_whole ? std::string_view(text) : std::string_view(text).substr(begin + 1, end - begin - 1);
  if (inside.starts_with("?:")) inside.remove_prefix(2);
  if (inside.starts_with('?')) return false;
  for (const auto part : detail::split_at(inside, '|')) {
    const std::string choice(part);
    if (is_whole)
      out.push_back(choice);
    else if (!add_alternatives(text.substr(0, begin) + choice + text.substr(end + 1), out))
      return false;
    if (out.size() > most_alternatives) return false;
  }
  return true;
}

/// The number after "layers." or "experts.": unknown, all, or one.
struct place_number {
  bool is_understood = true;
  std::optional<std::uint64_t> number{};
  std::string_view rest{};  ///< text after the number
};
place_number number_behind(std::string_view text, std::string_view before) {
  const auto at = text.find(before);
  if (at == text.npos) return {};
  const auto rest = text.substr(at + before.size());
  const auto digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits > 0) {
    const auto after = rest.substr(digits);
    const bool ends_there = after.empty() || after[0] == '.' || after[0] == '*' || after[0] == '$';
    const auto number = parse_number<std::uint64_t>(rest.substr(0, digits));
    return {ends_there && number, number, after};
  }
  for (const std::string_view any :
       {"*", ".*", ".+", "d+", "d*", "d{1,2}", "d{1,3}", "[^.]+", "[^.]*"})
    if (rest.starts_with(any)) return {};
  // A name may follow directly: "experts.gate_up_proj" is a stack of all experts. A single "d" was "\d", one digit.
  const auto is_letter = [&](std::size_t place) {
    return place < rest.size() && rest[place] >= 'a' && rest[place] <= 'z';
  };
  return {rest.empty() || (is_letter(0) && (rest[0] != 'd' || is_letter(1)))};
}
/// Whether a number appears elsewhere than after "layers." and "experts.": "\.18\." may be either.
bool has_other_number(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool begins = text[at] >= '0' && text[at] <= '9' && at > 0 && text[at - 1] == '.';
    if (!begins) continue;
    const auto before = text.substr(0, at);
    if (!before.ends_with("layers.") && !before.ends_with("experts.")) return true;
  }
  return false;
}

/// Modules of an MLP without a more specific name: includes the experts' weights if the text ends here or a wildcard
/// follows.
module_set below_mlp(std::string_view text, std::string_view name, bool mlp_is_dense) {
  const auto rest = without_tail(text.substr(text.find(name) + name.size()));
  const bool is_dense = mlp_is_dense || (!rest.empty() && rest.find_first_of("*+") == rest.npos);
  return is_dense ? dense_modules : mlp_modules;
}

/// Whether a name follows the part, not only numbers and wildcards.
bool has_name_behind(std::string_view text, std::string_view part) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  text = without_tail(text.substr(text.find(part) + part.size()));
  for (std::size_t at = 1; at < text.size(); ++at)
    if (text[at - 1] == '.' && is_letter(text[at]) &&
        (text[at] != 'd' || (at + 1 < text.size() && is_letter(text[at + 1]))))
      return true;
  return false;
}

/// Modules of a text without alternatives, or of its whole layer; nothing if no word is known.
std::optional<module_set> modules_in(std::string_view text, const place_number& layer,
                                     bool mlp_is_dense) {
  const auto is = [&](std::string_view word) { return has(text, word); };
  const auto is_any = [&](std::string_view words) {
    return std::ranges::any_of(detail::split_at(words, ' '), is);
  };
  if (std::ranges::any_of(uncounted, is)) return module_set{0};
  if (is("embed") && !is_any("embed_q unembed_out")) return set_of(embeddings);
  if (is("lm_head") || without_tail(text) == "head") return set_of(head);
  if (is("router") || (without_tail(text).ends_with("gate") && !is("output_gate")))
    return set_of(router);
  std::optional<module_set> found;
  const auto* const part = std::ranges::find_if(parts, is_any, &module_words::words);
  if (part != parts.end())
    found = part->modules;
  else if (without_tail(text).ends_with("block_sparse_moe"))
    found = mlp_modules;
  else
    for (const std::string_view name : {"mlp", "feed_forward"})
      if (is(name)) found = below_mlp(text, name, mlp_is_dense);
  if (const auto* const last = std::ranges::find_if(projections, is_any, &module_words::words);
      last != projections.end())
    found = found.value_or(last->modules) & last->modules;
  else if (part != parts.end() &&
           std::ranges::any_of(detail::split_at(part->words, ' '),
                               [&](auto word) { return is(word) && has_name_behind(text, word); }))
    return module_set{0};  // a small weight of the part, such as a gate
  if (!found && layer.number && without_tail(layer.rest).empty()) return layer_modules;
  return found;
}

}  // namespace

std::optional<std::vector<named_modules>> modules_named(std::string_view pattern,
                                                        bool mlp_is_dense) {
  if (pattern.size() > longest_pattern) return std::nullopt;
  std::vector<std::string> texts;
  if (!add_alternatives(without_classes(plain_text(pattern)), texts) || texts.empty())
    return std::nullopt;
  std::vector<named_modules> out;
  for (const auto& text : texts) {
    const auto layer = number_behind(text, "layers.");
    const auto expert = number_behind(text, "experts.");
    const auto modules = modules_in(text, layer, mlp_is_dense);
    if (!modules || !layer.is_understood || !expert.is_understood || has_other_number(text))
      return std::nullopt;
    named_modules named{*modules, layer.number, {}};
    if ((*modules & expert_modules) != 0) named.expert = expert.number;
    out.push_back(named);
  }
  return out;
}

}  // namespace hotset::lab
