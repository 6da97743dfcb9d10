// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/adapter_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "lab/errors.hpp"
#include "lab/files/float_conversion.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/input_files.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/traces/trace_options.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view weights_file = "model.safetensors";
constexpr std::string_view config_file = "expert_cfg.json";
constexpr std::string_view weight_ending = ".safetensors";
constexpr std::string_view prefix = "model.";  // prefix of a name; some files leave it out
constexpr std::uint64_t most_extent = std::uint64_t{1} << 24U;
constexpr std::uint64_t most_matrices = 64;

[[noreturn]] void refuse_format(std::string_view found, std::string_view accepted) {
  throw usage_error(fmt::format("adapter format: {}, accepted: {}", found, accepted));
}

template <class Number>
void require_within(std::string_view name, Number value, std::type_identity_t<Number> least,
                    std::type_identity_t<Number> most) {
  if (value < least || value > most)
    refuse_format(fmt::format("{} = {}", name, value), fmt::format("{}..{}", least, most));
}

bool is_plain(char c) noexcept {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// A validated format.
struct expert_shape {
  float_type type = float_type::bf16;
  std::vector<expert_matrix> matrices{};    ///< matrices of all weights, in sequence
  std::vector<std::size_t> ends{};          ///< end of each weight in `matrices`
  std::vector<std::size_t> weight_bytes{};  ///< by weight

  /// Errors: usage_error for an invalid format.
  explicit expert_shape(const adapter_format& format) {
    require_within("layers", format.base.layers, 1, most_layers);
    require_within("experts", format.base.experts, 1, most_experts);
    if (format.base.first_layer)
      require_within("first_layer", *format.base.first_layer, 0, most_layers - format.base.layers);
    const auto known = parse_float_type(format.dtype);
    if (!known)
      refuse_format(fmt::format("dtype '{}'", printable(format.dtype, 80)), "F16, BF16 or F32");
    type = *known;
    require_within("weights", format.weights.size(), 1, most_matrices);
    for (const auto& weight : format.weights) {
      if (weight.empty()) refuse_format("a weight without matrices", "one or more");
      std::size_t all = 0;
      for (const auto& matrix : weight) {
        add(matrix);
        all += bytes(matrix);
      }
      ends.push_back(matrices.size());
      weight_bytes.push_back(all);
    }
  }

  /// Returns at most 2^50.
  [[nodiscard]] std::size_t bytes(const expert_matrix& matrix) const noexcept {
    return static_cast<std::size_t>(matrix.rows * matrix.columns) * element_bytes(type);
  }

 private:
  void add(const expert_matrix& matrix) {
    const auto& name = matrix.name;
    if (name.empty() || name.size() > 64 || !std::ranges::all_of(name, is_plain))
      refuse_format(fmt::format("matrix '{}'", printable(name, 80)),
                    "names of 1..64 letters, digits and '_'");
    if (std::ranges::find(matrices, name, &expert_matrix::name) != matrices.end())
      refuse_format(fmt::format("matrix '{}' is there twice", name), "each name once");
    require_within(fmt::format("rows of {}", name), matrix.rows, 1, most_extent);
    require_within(fmt::format("columns of {}", name), matrix.columns, 1, most_extent);
    if (matrices.size() == most_matrices)
      refuse_format(fmt::format("more than {} matrices", most_matrices), "as many, or fewer");
    matrices.push_back(matrix);
  }
};

/// Layers numbered from 0, ascending.
std::vector<expert_key> tuned_experts(const esft_config& config) {
  std::vector<expert_key> out;
  for (std::size_t layer = 0; layer < config.tuned.size(); ++layer)
    for (const auto expert : config.tuned[layer])
      out.push_back({static_cast<layer_id>(layer), expert});
  std::ranges::sort(out);
  return out;
}

std::string tensor_name(const esft_config& config, expert_key key, const expert_matrix& matrix) {
  return fmt::format("{}layers.{}.mlp.experts.{}.{}.weight", prefix,
                     config.layer_numbers[index_of(key.layer)], key.expert, matrix.name);
}

/// Sorted by name. Errors: trace_error.
std::vector<fs::path> safetensors_in(const fs::path& folder) {
  auto out = paths_in(folder, weight_ending);
  std::error_code ignored;
  for (const auto& path : out)
    if (!fs::is_regular_file(path, ignored))
      refuse_input(path.string(), "", "is no regular file", "a safetensors file");
  return out;
}

const fs::path& checked_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    refuse_input(folder.string(), "", "is no folder",
                 fmt::format("a folder with {} and weights, *{}", config_file, weight_ending));
  return folder;
}

/// Errors: usage_error for a configuration that would read back differently.
void check_config(const esft_config& config, const esft_base& base) {
  const std::string who = "adapter configuration";
  const auto layers = static_cast<std::size_t>(base.layers);
  if (config.layer_numbers.size() != layers || config.tuned.size() != layers)
    throw usage_error(fmt::format("{}: layers = {} with {} numbers, accepted: {}", who,
                                  config.tuned.size(), config.layer_numbers.size(), layers));
  if (!std::ranges::is_sorted(config.layer_numbers))
    throw usage_error(fmt::format("{}: layers {}, accepted: ascending numbers", who,
                                  fmt::join(config.layer_numbers, ", ")));
  try {
    (void)parse_esft_config(format_esft_config(config), who, base);
  } catch (const trace_error& bad) {
    throw usage_error(bad.what());
  }
}

void check_size(const expert_shape& shape, std::size_t experts) {
  const auto each =
      std::reduce(shape.weight_bytes.begin(), shape.weight_bytes.end(), std::uint64_t{0});
  if (experts > most_described_bytes / each)
    throw usage_error(fmt::format("adapter weights: {} experts of {} bytes, accepted: {} bytes",
                                  experts, each, most_described_bytes));
}

/// Refuses a folder with other weights: they would be read together with the new ones.
void refuse_other_weights(const fs::path& folder) {
  for (const auto& path : safetensors_in(folder))
    if (path.filename() != weights_file)
      throw std::runtime_error(input_message(path.string(), "", "is in the adapter's folder, too",
                                             "a folder without other weights"));
}

void write_files(const fs::path& folder, const adapter_format& format, const expert_shape& shape,
                 const esft_config& config, const matrix_source& source) {
  refuse_other_weights(folder);
  output_file data(folder / weights_file, output_content::binary);
  output_file names(folder / config_file);
  const auto tuned = tuned_experts(config);
  safetensors_header header;
  for (const auto key : tuned)
    for (const auto& matrix : shape.matrices)
      header.add(tensor_name(config, key, matrix), format.dtype,
                 std::array{matrix.rows, matrix.columns}, element_bytes(shape.type));
  data.write(header.bytes({{"format", "pt"}}));  // some readers require it
  for (const auto key : tuned)
    for (const auto& matrix : shape.matrices) {
      const auto bytes = source(key.layer, key.expert, matrix);
      if (bytes.size() != shape.bytes(matrix))
        throw usage_error(fmt::format("source of {}: {} bytes, accepted: {}",
                                      tensor_name(config, key, matrix), bytes.size(),
                                      shape.bytes(matrix)));
      data.writer().write(bytes);
      data.check();
    }
  names.write(format_esft_config(config));
  // Moves neither file to its path before both are completely written.
  for (auto* const file : {&data, &names}) {
    file->writer().flush();
    file->check();
  }
  data.commit();
  names.commit();
}

}  // namespace

/// Validated contents of a checkpoint.
class adapter_checkpoint::contents {
 public:
  contents(const fs::path& folder, const adapter_format& format)
      : shape_(format),
        config_(read_esft_config(checked_folder(folder), format.base)),
        tuned_(tuned_experts(config_)) {
    const auto paths = safetensors_in(folder);
    if (paths.empty())
      refuse_input(folder.string(), "", "has no weights",
                   fmt::format("one or more files *{} beside {}", weight_ending, config_file));
    for (const auto& path : paths) files_.emplace_back(path);
    take(folder, format);
  }

  [[nodiscard]] const esft_config& config() const noexcept { return config_; }

  [[nodiscard]] bool read(expert_key key, std::size_t weight,
                          std::span<std::byte> out) const noexcept {
    if (weight >= shape_.ends.size() || out.size() != shape_.weight_bytes[weight]) return false;
    const auto at = std::ranges::lower_bound(tuned_, key);
    if (at == tuned_.end() || *at != key) return false;
    const auto row = static_cast<std::size_t>(at - tuned_.begin()) * shape_.matrices.size();
    for (auto m = weight == 0 ? 0 : shape_.ends[weight - 1]; m < shape_.ends[weight]; ++m) {
      const auto bytes = shape_.bytes(shape_.matrices[m]);
      const auto& stored = matrices_[row + m];
      if (!convert_floats(stored.type, stored.bytes, shape_.type, out.first(bytes))) return false;
      out = out.subspan(bytes);
    }
    return true;
  }

 private:
  struct stored_matrix {
    std::span<const std::byte> bytes;
    float_type type;
  };
  /// A tensor in one of the files.
  struct place {
    const safetensors_file* file;
    const std::string* name;
  };

  /// All tensors by name without the prefix.
  [[nodiscard]] std::map<std::string_view, place> tensors() const {
    std::map<std::string_view, place> out;
    for (const auto& file : files_)
      for (const auto& name : file.names()) {
        const auto skipped = name.starts_with(prefix) ? prefix.size() : 0;
        const auto [at, fresh] =
            out.try_emplace(std::string_view(name).substr(skipped), place{&file, &name});
        const auto& first = at->second;
        if (!fresh)
          refuse({&file, &name},
                 fmt::format("is in {} too, as '{}'", first.file->path().filename().string(),
                             *first.name),
                 "each matrix once");
      }
    return out;
  }

  void take(const fs::path& folder, const adapter_format& format) {
    auto left = tensors();
    for (const auto key : tuned_)
      for (const auto& matrix : shape_.matrices) {
        const auto name = tensor_name(config_, key, matrix);
        const auto at = left.find(std::string_view(name).substr(prefix.size()));
        if (at == left.end())
          refuse_input(folder.string(), fmt::format("tensor '{}'", name), "is missing",
                       fmt::format("all {} of the experts that {} names, with or without '{}'",
                                   tuned_.size() * shape_.matrices.size(), config_file, prefix));
        matrices_.push_back(checked(at->second, matrix, format));
        left.erase(at);
      }
    if (left.empty()) return;
    std::vector<std::string> names;
    for (const auto& matrix : shape_.matrices) names.push_back(matrix.name);
    refuse(left.begin()->second, "is no matrix of a tuned expert",
           fmt::format("[{}]layers.L.mlp.experts.E.M.weight, M one of {}; L: [E] as {} names "
                       "them: {}",
                       prefix, listed(names), config_file, tuned_text()));
  }

  [[nodiscard]] stored_matrix checked(const place& at, const expert_matrix& matrix,
                                      const adapter_format& format) const {
    const auto& tensor = at.file->at(*at.name);
    const auto type = parse_float_type(tensor.dtype);
    const std::array extents{matrix.rows, matrix.columns};
    if (!type || !(format.converts || *type == shape_.type) ||
        !std::ranges::equal(tensor.shape, extents))
      refuse(at, fmt::format("is {} [{}]", tensor.dtype, fmt::join(tensor.shape, ", ")),
             fmt::format("{} [{}]", format.converts ? "F16, BF16 or F32" : format.dtype,
                         fmt::join(extents, ", ")));
    return {tensor.bytes, *type};
  }

  [[noreturn]] static void refuse(const place& at, std::string_view found,
                                  std::string_view accepted) {
    refuse_input(at.file->path().string(), fmt::format("tensor '{}'", *at.name), found, accepted);
  }
  /// Formats "1: [2, 5], 2: [7]", with the model's numbers.
  [[nodiscard]] std::string tuned_text() const {
    std::string out;
    for (std::size_t i = 0; i < tuned_.size(); ++i) {
      const auto [layer, expert] = tuned_[i];
      if (i > 0 && layer == tuned_[i - 1].layer)
        out += fmt::format(", {}", expert);
      else
        out += fmt::format("{}{}: [{}", i == 0 ? "" : "], ", config_.layer_numbers[index_of(layer)],
                           expert);
    }
    return out + (out.empty() ? "" : "]");
  }

  expert_shape shape_;
  esft_config config_;
  std::vector<expert_key> tuned_;
  std::deque<safetensors_file> files_{};
  std::vector<stored_matrix> matrices_{};  ///< Shape: [tuned experts, matrices]
};

std::vector<std::size_t> adapter_format::expert_bytes() const {
  return expert_shape(*this).weight_bytes;
}

adapter_checkpoint::adapter_checkpoint(const std::filesystem::path& folder,
                                       const adapter_format& format)
    : contents_(std::make_unique<contents>(folder, format)) {}
adapter_checkpoint::adapter_checkpoint(adapter_checkpoint&&) noexcept = default;
adapter_checkpoint& adapter_checkpoint::operator=(adapter_checkpoint&&) noexcept = default;
adapter_checkpoint::~adapter_checkpoint() = default;

const esft_config& adapter_checkpoint::config() const noexcept {
  HOTSET_ASSERT(contents_ != nullptr);
  return contents_->config();
}

bool adapter_checkpoint::read(layer_id layer, std::size_t weight, expert_id expert,
                              std::span<std::byte> out) const noexcept {
  HOTSET_ASSERT(contents_ != nullptr);
  return contents_->read({layer, expert}, weight, out);
}

void write_adapter_checkpoint(const std::filesystem::path& folder, const adapter_format& format,
                              const esft_config& config, const matrix_source& source) {
  if (!source) throw usage_error("adapter weights: no source, accepted: a function");
  const expert_shape shape(format);
  check_config(config, format.base);
  check_size(shape, tuned_experts(config).size());
  std::error_code code;
  const bool made = fs::create_directories(folder, code);
  if (code)
    throw std::runtime_error(input_message(folder.string(), "",
                                           "cannot be created: " + code.message(),
                                           "a folder that is there or can be made"));
  try {
    write_files(folder, format, shape, config, source);
  } catch (...) {
    if (made) fs::remove(folder, code);  // removes an empty folder only
    throw;
  }
}

}  // namespace hotset::lab
