// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/experts/adapter_files.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hotset/core/ids.hpp"
#include "lab/files/input_error.hpp"

namespace tiny_moe {
namespace {

/// In the order of adapter_weights.
constexpr std::array<std::string_view, 3> matrix_names{"gate_proj", "up_proj", "down_proj"};

const std::uint16_t* matrix_of(const expert_tensors& expert, std::string_view name) noexcept {
  if (name == matrix_names[0]) return expert.gate;
  return name == matrix_names[1] ? expert.up : expert.down;
}

}  // namespace

hotset::lab::adapter_format format_of(const model_config& shape) {
  const auto weight = [](std::string_view name, std::size_t rows, std::size_t columns) {
    return std::vector<hotset::lab::expert_matrix>{{std::string(name), rows, columns}};
  };
  hotset::lab::adapter_format out;
  out.base = {.layers = static_cast<std::int32_t>(shape.layers),
              .experts = static_cast<std::int32_t>(shape.experts),
              .first_layer = 0};
  out.weights = {weight(matrix_names[0], shape.inner_size, shape.hidden_size),
                 weight(matrix_names[1], shape.inner_size, shape.hidden_size),
                 weight(matrix_names[2], shape.hidden_size, shape.inner_size)};
  out.dtype = "F16";
  return out;
}

std::string adapter_name(const std::filesystem::path& folder) {
  const auto whole = std::filesystem::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

adapter_weights read_adapter(const model_config& shape, const std::filesystem::path& folder) {
  const hotset::lab::adapter_checkpoint checkpoint(folder, format_of(shape));
  auto tuned = checkpoint.config().tuned;
  std::size_t count = 0;
  for (auto& of_layer : tuned) {
    std::ranges::sort(of_layer);
    count += of_layer.size();
  }
  std::vector<std::uint16_t> halves(count * shape.expert_bytes() / sizeof(std::uint16_t));
  auto rest = std::as_writable_bytes(std::span(halves));
  for (std::size_t l = 0; l < tuned.size(); ++l)
    for (const auto expert : tuned[l])
      for (std::size_t w = 0; w < matrix_names.size(); ++w) {
        const auto matrix = rest.first(shape.expert_bytes() / matrix_names.size());
        rest = rest.subspan(matrix.size());
        if (!checkpoint.read(static_cast<hotset::layer_id>(l), w, expert, matrix))
          hotset::lab::refuse_input(
              folder.string(), fmt::format("layer {}: expert {}: {}", l, expert, matrix_names[w]),
              "has a value that does not fit", "16-bit floats");
      }
  return {shape, adapter_name(folder), std::move(tuned), std::move(halves)};
}

void write_adapter(const std::filesystem::path& folder, const model_config& shape,
                   const adapter_weights& adapter) {
  hotset::lab::esft_config config{std::vector<std::int32_t>(shape.layers), adapter.tuned()};
  std::iota(config.layer_numbers.begin(), config.layer_numbers.end(), 0);
  const auto source = [&](hotset::layer_id layer, hotset::expert_id expert,
                          const hotset::lab::expert_matrix& matrix) {
    const auto l = index_of(layer);
    const auto& tuned = adapter.tuned()[l];
    const auto place =
        static_cast<std::size_t>(std::ranges::lower_bound(tuned, expert) - tuned.begin());
    return std::as_bytes(std::span(matrix_of(adapter.expert(l, place), matrix.name),
                                   shape.hidden_size * shape.inner_size));
  };
  hotset::lab::write_adapter_checkpoint(folder, format_of(shape), config, source);
}

}  // namespace tiny_moe
