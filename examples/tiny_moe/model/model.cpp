// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/model/model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include <Eigen/Core>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lab/files/input_error.hpp"
#include "lab/files/mapped_file.hpp"

namespace tiny_moe {
namespace {

using hotset::printable;
using hotset::lab::refuse_input;
using json = nlohmann::json;
using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Reads config.json key by key; every error is one line with the file, the key and the range.
class config_reader {
 public:
  explicit config_reader(const std::filesystem::path& path) : file_(path.string()) {
    const hotset::lab::mapped_file text(path);
    const auto bytes = text.bytes();
    const char* const begin = reinterpret_cast<const char*>(bytes.data());
    try {
      root_ = json::parse(begin, begin + bytes.size());
    } catch (const json::parse_error& error) {
      refuse_input(file_, fmt::format("byte {}", error.byte), "is not JSON here", "a JSON object");
    } catch (const json::exception&) {
      refuse_input(file_, "", "holds a number out of range", "a JSON object");
    }
    if (!root_.is_object()) {
      refuse_input(file_, "", fmt::format("holds {}", root_.type_name()), "a JSON object");
    }
  }

  [[nodiscard]] std::size_t integer(const char* key, std::size_t low, std::size_t high,
                                    std::size_t multiple = 1) const {
    const json& value = at(key);
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= low &&
                      value.get<std::uint64_t>() <= high &&
                      value.get<std::uint64_t>() % multiple == 0;
    if (!fits) {
      refuse(key, value,
             multiple == 1 ? fmt::format("an integer in {}..{}", low, high)
                           : fmt::format("a multiple of {} in {}..{}", multiple, low, high));
    }
    return value.get<std::size_t>();
  }

  [[nodiscard]] float real(const char* key, double low, double high) const {
    const json& value = at(key);
    const bool fits =
        value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
    if (!fits) refuse(key, value, fmt::format("a number in {:g}..{:g}", low, high));
    return value.get<float>();
  }

  void equals(const char* key, const json& wanted) const {
    const json& value = at(key);
    if (value != wanted) refuse(key, value, wanted.dump());
  }

 private:
  [[nodiscard]] const json& at(const char* key) const {
    const auto found = root_.find(key);
    if (found == root_.end()) refuse_input(file_, fmt::format("'{}'", key), "is missing", "");
    return *found;
  }

  [[noreturn]] void refuse(const char* key, const json& value, const std::string& accepted) const {
    const std::string shown = value.dump(-1, ' ', true, json::error_handler_t::replace);
    refuse_input(file_, fmt::format("'{}'", key), "is " + printable(shown, 40), accepted);
  }

  std::string file_;
  json root_;
};

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text.append(i == 0 ? "" : ", ").append(std::to_string(shape[i]));
  }
  return text + "]";
}

std::vector<float> transposed(const std::vector<float>& in, std::size_t rows, std::size_t columns) {
  const auto r = static_cast<Eigen::Index>(rows);
  const auto c = static_cast<Eigen::Index>(columns);
  std::vector<float> out(in.size());
  Eigen::Map<matrix>(out.data(), c, r) = Eigen::Map<const matrix>(in.data(), r, c).transpose();
  return out;
}

}  // namespace

std::span<const std::byte> tensor_bytes(const hotset::lab::safetensors_file& file,
                                        std::string_view name, std::string_view dtype,
                                        std::initializer_list<std::uint64_t> shape) {
  const auto& tensor = file.at(name);
  const std::span<const std::uint64_t> wanted(shape.begin(), shape.size());
  if (tensor.dtype != dtype || !std::ranges::equal(tensor.shape, wanted)) {
    refuse_input(file.path().string(), fmt::format("tensor '{}'", name),
                 fmt::format("is {} {}", tensor.dtype, printable(shape_text(tensor.shape))),
                 fmt::format("{} {}", dtype, shape_text(wanted)));
  }
  return tensor.bytes;
}

model_config model_config::from_file(const std::filesystem::path& path) {
  const config_reader reader(path);
  reader.equals("model_type", "tiny_moe");
  reader.equals("vocab_size", vocabulary);
  reader.equals("norm_topk_prob", true);
  reader.equals("tie_word_embeddings", true);
  reader.equals("hidden_act", "silu");
  reader.equals("rope_style", "rotate_half");

  model_config config;
  config.layers = reader.integer("num_hidden_layers", 1, 512);
  config.hidden_size = reader.integer("hidden_size", lanes, 16384, lanes);
  config.heads = reader.integer("num_attention_heads", 1, 512);
  config.head_size = reader.integer("head_dim", lanes, 512, lanes);
  config.experts = reader.integer("num_experts", lanes, 4096, lanes);
  config.top_k = reader.integer("num_experts_per_tok", 1, config.experts);
  config.inner_size = reader.integer("moe_intermediate_size", lanes, 65536, lanes);
  config.max_positions = reader.integer("max_position_embeddings", 1, 1U << 20U);
  config.norm_epsilon = reader.real("rms_norm_eps", 1e-12, 1.0);
  config.rope_theta = reader.real("rope_theta", 1.0, 1e9);
  return config;
}

model::model(const std::filesystem::path& folder)
    : config_(model_config::from_file(folder / "config.json")),
      file_(folder / "model.safetensors") {
  const std::uint64_t hidden = config_.hidden_size;
  const std::uint64_t width = config_.heads * config_.head_size;
  const std::uint64_t inner = config_.inner_size;
  const std::uint64_t experts = config_.experts;

  embedding_ = dense("model.embed_tokens.weight", {model_config::vocabulary, hidden});
  unembedding_ = transposed(embedding_, model_config::vocabulary, hidden);
  final_norm_ = dense("model.norm.weight", {hidden});

  const auto projection = [&](const std::string& name, std::uint64_t outputs,
                              std::uint64_t inputs) {
    return transposed(dense(name, {outputs, inputs}), outputs, inputs);
  };
  layers_.reserve(config_.layers);
  experts_.reserve(config_.layers * config_.experts);
  for (std::size_t l = 0; l < config_.layers; ++l) {
    const std::string prefix = fmt::format("model.layers.{}.", l);
    layers_.push_back({
        .attention_norm = dense(prefix + "input_layernorm.weight", {hidden}),
        .query = projection(prefix + "self_attn.q_proj.weight", width, hidden),
        .key = projection(prefix + "self_attn.k_proj.weight", width, hidden),
        .value = projection(prefix + "self_attn.v_proj.weight", width, hidden),
        .output = projection(prefix + "self_attn.o_proj.weight", hidden, width),
        .expert_norm = dense(prefix + "post_attention_layernorm.weight", {hidden}),
        .router = projection(prefix + "mlp.gate.weight", experts, hidden),
    });
    for (std::size_t e = 0; e < config_.experts; ++e) {
      const std::string expert = fmt::format("{}mlp.experts.{}.", prefix, e);
      experts_.push_back({
          .gate = halves(expert + "gate_proj.weight", {inner, hidden}),
          .up = halves(expert + "up_proj.weight", {inner, hidden}),
          .down = halves(expert + "down_proj.weight", {hidden, inner}),
      });
    }
  }
}

std::array<std::span<const std::byte>, 3> model::expert_bytes(std::size_t layer,
                                                              std::size_t expert) const noexcept {
  const expert_tensors& tensors = this->expert(layer, expert);
  const std::size_t count = config_.hidden_size * config_.inner_size;
  return {std::as_bytes(std::span(tensors.gate, count)),
          std::as_bytes(std::span(tensors.up, count)),
          std::as_bytes(std::span(tensors.down, count))};
}

std::vector<float> model::dense(std::string_view name,
                                std::initializer_list<std::uint64_t> shape) const {
  const auto halves =
      hotset::lab::copy_elements<std::uint16_t>(tensor_bytes(file_, name, "F16", shape));
  std::vector<float> out(halves.size());
  half_to_float(halves, out.data());
  const auto bad =
      std::find_if_not(out.begin(), out.end(), [](float x) { return std::isfinite(x); });
  if (bad != out.end()) {
    refuse_input(file_.path().string(), fmt::format("tensor '{}'", name),
                 fmt::format("element {} is {}", bad - out.begin(), *bad), "finite numbers");
  }
  return out;
}

const std::uint16_t* model::halves(std::string_view name,
                                   std::initializer_list<std::uint64_t> shape) {
  const auto bytes = tensor_bytes(file_, name, "F16", shape);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint16_t) == 0) {
    return reinterpret_cast<const std::uint16_t*>(bytes.data());
  }
  return realigned_.emplace_back(hotset::lab::copy_elements<std::uint16_t>(bytes)).data();
}

}  // namespace tiny_moe
