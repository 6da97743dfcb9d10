// SPDX-License-Identifier: Apache-2.0
#include "hotset/lab/adapter_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hotset/core/error.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/text/names.hpp"
#include "hotset/trace/native_trace_writer.hpp"
#include "lab/errors.hpp"
#include "lab/files/float_conversion.hpp"
#include "lab/files/input_error.hpp"
#include "lab/files/json_object.hpp"
#include "lab/files/output_file.hpp"
#include "lab/files/safetensors.hpp"
#include "lab/traces/trace_records.hpp"

namespace hotset::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view weights_file = "model.safetensors";
constexpr std::string_view config_file = "expert_cfg.json";
constexpr std::string_view ending = ".safetensors";
constexpr std::uint64_t most_extent = std::uint64_t{1} << 24U;
constexpr std::uint64_t most_matrices = 64;

/// A format that was checked.
struct expert_shape {
  std::string dtype{};
  float_type type = float_type::bf16;
  std::vector<expert_matrix> matrices{};    ///< of all weights, one behind the other
  std::vector<std::size_t> ends{};          ///< of each weight, in `matrices`
  std::vector<std::size_t> weight_bytes{};  ///< by weight

  [[nodiscard]] std::size_t begin(std::size_t weight) const noexcept {
    return weight == 0 ? 0 : ends[weight - 1];
  }
  /// At most 2^50.
  [[nodiscard]] std::size_t bytes(const expert_matrix& matrix) const noexcept {
    return static_cast<std::size_t>(matrix.rows * matrix.columns) * element_bytes(type);
  }
};

[[noreturn]] void refuse_format(std::string_view found, std::string_view accepted) {
  throw usage_error(fmt::format("adapter format: {}, accepted: {}", found, accepted));
}

template <class Number>
void require_within(std::string_view name, Number value, std::type_identity_t<Number> least,
                    std::type_identity_t<Number> most) {
  if (value < least || value > most)
    refuse_format(fmt::format("{} = {}", name, value), fmt::format("{}..{}", least, most));
}

void check_base(const esft_base& base) {
  require_within("layers", base.layers, 1, most_layers);
  require_within("experts", base.experts, 1, most_experts);
  if (base.first_layer)
    require_within("first_layer", *base.first_layer, 0, most_layers - base.layers);
}

bool is_plain(char c) noexcept {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

void add_matrix(expert_shape& shape, const expert_matrix& matrix) {
  const auto& name = matrix.name;
  if (name.empty() || name.size() > 64 || !std::ranges::all_of(name, is_plain))
    refuse_format(fmt::format("matrix '{}'", printable(name, 80)),
                  "names of 1..64 letters, digits and '_'");
  if (std::ranges::find(shape.matrices, name, &expert_matrix::name) != shape.matrices.end())
    refuse_format(fmt::format("matrix '{}' is there twice", name), "each name once");
  require_within(fmt::format("rows of {}", name), matrix.rows, 1, most_extent);
  require_within(fmt::format("columns of {}", name), matrix.columns, 1, most_extent);
  if (shape.matrices.size() == most_matrices)
    refuse_format(fmt::format("more than {} matrices", most_matrices), "as many, or fewer");
  shape.matrices.push_back(matrix);
}

/// Errors: usage_error for a format that is none.
expert_shape shape_of(const adapter_format& format) {
  check_base(format.base);
  const auto type = parse_float_type(format.dtype);
  if (!type)
    refuse_format(fmt::format("dtype '{}'", printable(format.dtype, 80)), "F16, BF16 or F32");
  require_within("weights", format.weights.size(), 1, most_matrices);
  expert_shape out{.dtype = format.dtype, .type = *type};
  for (const auto& weight : format.weights) {
    if (weight.empty()) refuse_format("a weight without matrices", "one or more");
    std::size_t bytes = 0;
    for (const auto& matrix : weight) {
      add_matrix(out, matrix);
      bytes += out.bytes(matrix);
    }
    out.ends.push_back(out.matrices.size());
    out.weight_bytes.push_back(bytes);
  }
  return out;
}

std::string name_of(std::int32_t layer, expert_id expert, const expert_matrix& matrix) {
  return fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, expert, matrix.name);
}

struct parsed_name {
  std::int32_t layer = 0;  ///< the model's number
  expert_id expert = no_expert;
  std::string_view matrix;
};

bool skip(std::string_view& text, std::string_view part) noexcept {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

/// The number at the front of text, up to the next dot, which it begins with then.
std::optional<std::int32_t> take_number(std::string_view& text, std::int32_t most) {
  const auto digits = text.substr(0, text.find('.'));
  text.remove_prefix(digits.size());
  return numeric_key(digits, most);
}

/// Nothing for what is no matrix of a routed expert.
std::optional<parsed_name> parse_name(std::string_view text) {
  (void)skip(text, "model.");
  if (!skip(text, "layers.")) return std::nullopt;
  const auto layer = take_number(text, most_layers - 1);
  if (!layer || !skip(text, ".mlp.experts.")) return std::nullopt;
  const auto expert = take_number(text, most_experts - 1);
  constexpr std::string_view last = ".weight";
  if (!expert || !skip(text, ".") || !text.ends_with(last)) return std::nullopt;
  text.remove_suffix(last.size());
  return parsed_name{*layer, expert_id{*expert}, text};
}

/// Sorted by name. Errors: trace_error.
std::vector<fs::path> safetensors_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (at->path().extension() != ending) continue;
    std::error_code ignored;
    if (!at->is_regular_file(ignored))
      refuse_input(at->path().string(), "", "is no regular file", "a safetensors file");
    out.push_back(at->path());
  }
  if (code)
    refuse_input(folder.string(), "", "cannot be listed: " + code.message(), "a readable folder");
  std::ranges::sort(out);
  return out;
}

const fs::path& checked_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    refuse_input(folder.string(), "", "is no folder",
                 fmt::format("a folder with {} and weights, *{}", config_file, ending));
  return folder;
}

/// All that a checkpoint holds, checked.
class adapter_folder {
 public:
  adapter_folder(const fs::path& folder, const adapter_format& format)
      : shape_(shape_of(format)),
        config_(read_esft_config(checked_folder(folder), format.base)),
        tuned_(config_.tuned) {
    first_.push_back(0);
    for (auto& experts : tuned_) {
      std::ranges::sort(experts);
      first_.push_back(first_.back() + experts.size());
    }
    take(folder, format.converts);
  }

  [[nodiscard]] const esft_config& config() const noexcept { return config_; }

  [[nodiscard]] bool read(layer_id layer, std::size_t weight, expert_id expert,
                          std::span<std::byte> out) const noexcept {
    if (layer < 0 || index_of(layer) >= tuned_.size()) return false;
    if (weight >= shape_.ends.size() || out.size() != shape_.weight_bytes[weight]) return false;
    const auto at = place_of(index_of(layer), expert);
    if (!at) return false;
    for (auto m = shape_.begin(weight); m < shape_.ends[weight]; ++m) {
      const auto bytes = shape_.bytes(shape_.matrices[m]);
      const auto& matrix = matrices_[*at * shape_.matrices.size() + m];
      if (!matrix.convert(matrix.bytes, out.first(bytes))) return false;
      out = out.subspan(bytes);
    }
    return true;
  }

 private:
  struct stored_matrix {
    std::span<const std::byte> bytes;
    float_converter convert;
  };
  /// A tensor, and which matrix of all it is.
  struct found_matrix {
    std::size_t place;
    std::size_t file;
    const std::string* name;
    stored_matrix stored;
  };

  /// An expert's number among all tuned ones, by layer and expert.
  [[nodiscard]] std::optional<std::size_t> place_of(std::size_t layer,
                                                    expert_id expert) const noexcept {
    const auto& own = tuned_[layer];
    const auto at = std::ranges::lower_bound(own, expert);
    if (at == own.end() || *at != expert) return std::nullopt;
    return first_[layer] + static_cast<std::size_t>(at - own.begin());
  }

  void take(const fs::path& folder, bool converts) {
    const auto paths = safetensors_in(folder);
    if (paths.empty())
      refuse_input(folder.string(), "", "has no weights",
                   fmt::format("one or more files *{} beside {}", ending, config_file));
    files_.reserve(paths.size());
    for (const auto& path : paths) files_.emplace_back(path);
    std::vector<found_matrix> found;
    for (std::size_t f = 0; f < files_.size(); ++f)
      for (const auto& name : files_[f].names()) {
        const auto place = checked_place(files_[f], name);
        found.push_back({place, f, &name, checked_matrix(files_[f], name, place, converts)});
      }
    std::ranges::stable_sort(found, {}, &found_matrix::place);
    refuse_twice(found);
    refuse_missing(folder, found);
    matrices_.reserve(found.size());
    for (const auto& each : found) matrices_.push_back(each.stored);
  }

  [[noreturn]] static void refuse(const safetensors_file& file, const std::string& name,
                                  const std::string& what, const std::string& accepted) {
    refuse_input(file.path().string(), fmt::format("tensor '{}'", name), what, accepted);
  }

  std::size_t checked_place(const safetensors_file& file, const std::string& name) const {
    const auto parsed = parse_name(name);
    const auto& all = shape_.matrices;
    const auto matrix =
        parsed ? std::ranges::find(all, parsed->matrix, &expert_matrix::name) : all.end();
    if (matrix == all.end())
      refuse(file, name, "is no matrix of a routed expert",
             fmt::format("[model.]layers.L.mlp.experts.E.M.weight, M one of {}", matrix_names()));
    const auto& numbers = config_.layer_numbers;
    const auto layer = std::ranges::lower_bound(numbers, parsed->layer);
    if (layer == numbers.end() || *layer != parsed->layer)
      refuse(file, name, fmt::format("layer {} is no MoE layer", parsed->layer),
             fmt::format("{} layers in {}..{}", numbers.size(), numbers.front(), numbers.back()));
    const auto l = static_cast<std::size_t>(layer - numbers.begin());
    const auto expert = place_of(l, parsed->expert);
    if (!expert)
      refuse(file, name,
             fmt::format("expert {} of layer {} is not tuned", parsed->expert, parsed->layer),
             fmt::format("those that {} names: [{}]", config_file, fmt::join(tuned_[l], ", ")));
    return *expert * all.size() + static_cast<std::size_t>(matrix - all.begin());
  }

  stored_matrix checked_matrix(const safetensors_file& file, const std::string& name,
                               std::size_t place, bool converts) const {
    const auto& tensor = file.at(name);
    const auto& matrix = shape_.matrices[place % shape_.matrices.size()];
    const auto type = parse_float_type(tensor.dtype);
    const bool known = type && (converts || *type == shape_.type);
    const std::array extents{matrix.rows, matrix.columns};
    const auto types = converts ? std::string("F16, BF16 or F32") : shape_.dtype;
    if (!known || !std::ranges::equal(tensor.shape, extents))
      refuse(file, name, fmt::format("is {} [{}]", tensor.dtype, fmt::join(tensor.shape, ", ")),
             fmt::format("{} [{}]", types, fmt::join(extents, ", ")));
    return {tensor.bytes, converter(*type, shape_.type)};
  }

  void refuse_twice(const std::vector<found_matrix>& found) const {
    const auto same = [](const auto& a, const auto& b) { return a.place == b.place; };
    const auto first = std::adjacent_find(found.begin(), found.end(), same);
    if (first == found.end()) return;
    const auto& second = *std::next(first);
    refuse(files_[second.file], *second.name,
           fmt::format("is in {} too, as '{}'", files_[first->file].path().filename().string(),
                       *first->name),
           "each matrix once");
  }

  /// Pre: found is ascending.
  void refuse_missing(const fs::path& folder, const std::vector<found_matrix>& found) const {
    const auto wanted = first_.back() * shape_.matrices.size();
    std::size_t place = 0;
    while (place < found.size() && found[place].place == place) ++place;
    if (place == wanted) return;
    const auto expert = place / shape_.matrices.size();
    const auto after = std::ranges::upper_bound(first_, expert);
    const auto l = static_cast<std::size_t>(after - first_.begin()) - 1;
    const auto name = name_of(config_.layer_numbers[l], tuned_[l][expert - first_[l]],
                              shape_.matrices[place % shape_.matrices.size()]);
    refuse_input(folder.string(), fmt::format("tensor '{}'", name), "is missing",
                 fmt::format("all {} of the experts that {} names, with or without 'model.'",
                             wanted, config_file));
  }

  [[nodiscard]] std::string matrix_names() const {
    std::vector<std::string> names;
    for (const auto& matrix : shape_.matrices) names.push_back(matrix.name);
    return listed(names);
  }

  expert_shape shape_;
  esft_config config_;
  std::vector<std::vector<expert_id>> tuned_;  ///< ascending
  std::vector<std::size_t> first_{};           ///< tuned experts before each layer, and all
  std::vector<safetensors_file> files_{};
  std::vector<stored_matrix> matrices_{};  ///< Shape: [tuned experts of all layers, matrices]
};

/// Errors: usage_error for a configuration that would not be read back as it is.
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

/// A folder that goes away again, with those above it that were made for it, unless it is kept.
class new_folder {
 public:
  explicit new_folder(const fs::path& path) {
    std::error_code code;
    const auto is_missing = [&](const fs::path& at) {
      return !at.empty() && fs::status(at, code).type() == fs::file_type::not_found;
    };
    for (auto at = path; is_missing(at); at = at.parent_path()) made_.push_back(at);
    fs::create_directories(path, code);
    if (!code) return;
    remove();
    throw std::runtime_error(input_message(path.string(), "",
                                           "cannot be created: " + code.message(),
                                           "a folder that is there or can be made"));
  }
  ~new_folder() { remove(); }
  new_folder(const new_folder&) = delete;
  new_folder& operator=(const new_folder&) = delete;

  void keep() noexcept { made_.clear(); }

 private:
  void remove() noexcept {
    std::error_code ignored;
    for (const auto& path : made_) fs::remove(path, ignored);  // what is empty, and nothing else
  }
  std::vector<fs::path> made_{};  ///< innermost first
};

/// Writes the matrices of all tuned experts, by layer and by ascending expert.
class weights_writer {
 public:
  weights_writer(const adapter_format& format, const esft_config& config)
      : shape_(shape_of(format)), config_(config) {
    check_config(config, format.base);
    for (auto& experts : config_.tuned) std::ranges::sort(experts);
    check_size();
  }

  void write(output_file& file, const matrix_source& source) const {
    safetensors_header header;
    for_each([&](std::size_t layer, expert_id expert, const expert_matrix& matrix) {
      header.add(name_of(config_.layer_numbers[layer], expert, matrix), shape_.dtype,
                 std::array{matrix.rows, matrix.columns}, element_bytes(shape_.type));
    });
    file.write(header.bytes({{"format", "pt"}}));  // other readers ask for it
    for_each([&](std::size_t layer, expert_id expert, const expert_matrix& matrix) {
      const auto bytes = source(static_cast<layer_id>(layer), expert, matrix);
      if (bytes.size() != shape_.bytes(matrix))
        throw usage_error(fmt::format("source of {}: {} bytes, accepted: {}",
                                      name_of(config_.layer_numbers[layer], expert, matrix),
                                      bytes.size(), shape_.bytes(matrix)));
      file.writer().write(bytes);
      file.check();
    });
  }

 private:
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t l = 0; l < config_.tuned.size(); ++l)
      for (const auto expert : config_.tuned[l])
        for (const auto& matrix : shape_.matrices) visit(l, expert, matrix);
  }
  void check_size() const {
    std::uint64_t experts = 0;
    for (const auto& layer : config_.tuned) experts += layer.size();
    const auto each =
        std::reduce(shape_.weight_bytes.begin(), shape_.weight_bytes.end(), std::uint64_t{0});
    if (each != 0 && experts > most_described_bytes / each)
      throw usage_error(fmt::format("adapter weights: {} experts of {} bytes, accepted: {} bytes",
                                    experts, each, most_described_bytes));
  }

  expert_shape shape_;
  esft_config config_;  ///< experts ascending
};

/// What lies there, too, would be read with the new weights.
void refuse_other_weights(const fs::path& folder) {
  for (const auto& path : safetensors_in(folder))
    if (path.filename() != weights_file)
      throw std::runtime_error(input_message(path.string(), "", "is in the adapter's folder, too",
                                             "a folder without other weights"));
}

}  // namespace

std::vector<std::size_t> adapter_format::expert_bytes() const {
  return shape_of(*this).weight_bytes;
}

struct adapter_checkpoint::contents : adapter_folder {
  using adapter_folder::adapter_folder;
};

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
  return contents_->read(layer, weight, expert, out);
}

void write_adapter_checkpoint(const std::filesystem::path& folder, const adapter_format& format,
                              const esft_config& config, const matrix_source& source) {
  if (!source) throw usage_error("adapter weights: no source, accepted: a function");
  const weights_writer weights(format, config);
  new_folder made(folder);
  refuse_other_weights(folder);
  output_file data(folder / weights_file, output_content::binary);
  output_file names(folder / config_file);
  weights.write(data, source);
  names.write(format_esft_config(config));
  // Neither takes its place before all of both is written.
  for (auto* const file : {&data, &names}) {
    file->writer().flush();
    file->check();
  }
  data.commit();
  names.commit();
  made.keep();
}

}  // namespace hotset::lab
