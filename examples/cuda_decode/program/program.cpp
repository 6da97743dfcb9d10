// SPDX-License-Identifier: Apache-2.0
#include "cuda_decode/program/program.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <ostream>

#include "cuda_decode/model/reference_decode.hpp"
#include "cuda_decode/program/arms.hpp"
#include "cuda_decode/program/ceiling.hpp"
#include "cuda_decode/program/copy_rate.hpp"
#include "cuda_decode/program/report.hpp"
#include "hotset/trace/file_writer.hpp"
#include "hotset/version.hpp"

namespace cuda_decode {
namespace {

constexpr std::uint64_t device_headroom = std::uint64_t{256} << 20U;  // activations, graphs, driver
constexpr std::uint64_t rate_bytes = std::uint64_t{4} << 30U;

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): path, then contents
void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  hotset::file_writer file(path);
  file.write(text);
  if (const auto bad = file.finish()) throw std::runtime_error(bad->message);
}

// Reason why nothing can run, or nothing. Errors: usage_error if there are devices, but not this one.
std::optional<std::string> trouble_with_device(hotset::cuda::runtime& api, int device) {
  int count = 0;
  if (const auto code = api.device_count(count); code != hotset::cuda::error_code::success)
    return hotset::cuda::describe(api, {code, "cudaGetDeviceCount"}).message;
  if (count == 0) return "cudaGetDeviceCount found no device";
  if (device >= count)
    throw usage_error("--device: '" + std::to_string(device) + "', accepted: 0.." +
                      std::to_string(count - 1));
  return std::nullopt;
}

model_shape shape_asked(const program_options& asked) {
  auto shape = [&] {
    try {
      return shape_named(asked.shape);
    } catch (const hotset::invalid_config& bad) {
      throw usage_error("--shape: " + std::string(bad.what()));
    }
  }();
  if (asked.layers > shape.layers)
    throw usage_error("--layers: '" + std::to_string(asked.layers) + "', accepted: 1.." +
                      std::to_string(shape.layers) + " (" + shape.name + ")");
  if (asked.layers != 0) shape.layers = asked.layers;
  return shape;
}

std::vector<std::int32_t> caps_asked(const program_options& asked, const model_shape& shape) {
  if (asked.caps.empty()) return default_caps(shape);
  auto caps = asked.caps;
  for (auto& cap : caps) {
    if (cap == 0) cap = shape.experts;
    if (cap < shape.top_k || cap > shape.experts)
      throw usage_error("--caps: '" + std::to_string(cap) +
                        "', accepted: " + std::to_string(shape.top_k) + " (top_k).." +
                        std::to_string(shape.experts) + " or all");
  }
  return caps;
}

decode_routing routing_asked(const program_options& asked, const model_shape& shape,
                             const program_parts& parts) {
  const auto steps = asked.warmup + asked.steps;
  if (asked.trace.empty()) return synthetic_routing(shape, asked.statistics, steps);
  return decode_routing(parts.read_trace(asked.trace), shape, steps);
}

std::string routing_text(const program_options& asked) {
  if (!asked.trace.empty()) return "trace " + asked.trace;
  const auto short_number = [](double x) {
    auto s = std::to_string(x);
    s.erase(s.find_last_not_of('0') + 1);
    if (s.back() == '.') s.pop_back();
    return s;
  };
  return "synthetic, zipf " + short_number(asked.statistics.zipf) + ", stickiness " +
         short_number(asked.statistics.stickiness) + ", seed " +
         std::to_string(asked.statistics.seed);
}

std::int32_t layers_within(const model_shape& shape, std::uint64_t budget) {
  const auto a_layer = host_weights::bytes_for(shape) / static_cast<std::uint64_t>(shape.layers);
  const auto most = static_cast<std::uint64_t>(shape.layers);
  return static_cast<std::int32_t>(std::min(budget / a_layer, most));
}

void require_host_budget(const model_shape& shape, std::uint64_t budget) {
  const auto needed = host_weights::bytes_for(shape);
  if (needed <= budget) return;
  const auto layers = layers_within(shape, budget);
  throw infeasible_error(
      "the weights of " + std::to_string(shape.layers) + " layers take " + std::to_string(needed) +
      " bytes of page-locked memory, the budget is " + std::to_string(budget) +
      (layers == 0 ? std::string("; raise --host-budget")
                   : "; --layers " + std::to_string(layers) + " fits, or raise --host-budget"));
}

// Prints each arm's row and writes the file after each arm, so that an interruption loses only the running arm.
void run_arms(const comparison& with, std::span<const arm> arms, decode_report& report,
              const std::string& json, std::ostream& out) {
  for (const auto& what : arms) {
    const auto name = what.name(with.shape) + " (" + std::string(name_of(what.mode)) + ")";
    std::size_t free = 0;
    std::size_t total = 0;
    require(with.parts.api, with.parts.api.memory_info(free, total), "cudaMemGetInfo");
    const auto needed = slot_bytes(what, with.shape, with.fetch) + device_headroom;
    if (needed > free) {
      report.left_out.emplace_back(name, "needs " + std::to_string(needed) +
                                             " bytes of device memory, " + std::to_string(free) +
                                             " are free");
      continue;
    }
    report.results.push_back(run_arm(with, what));
    report.differences = differences(report.results, with.shape);
    out << text_of(report.results.back(), report) << std::flush;
    write_file(json, json_of(report));
  }
  if (report.results.empty())
    throw infeasible_error(report.left_out.front().first + " " + report.left_out.front().second);
}

// Compares the host's decode of the requested steps with a device run over them.
void check_on_host(const comparison& with, std::size_t steps, decode_report& report) {
  const auto wanted = reference_decode(with.shape, with.source, with.routing, steps);
  report.checked_steps = steps;
  static_config setup{.fetch = with.fetch, .device = with.parts.device};
  auto stream = hotset::cuda::stream::create(with.parts.api, with.parts.device).value();
  static_experts experts(with.parts.api, with.shape.geometry(), {with.shape.layout()}, with.source,
                         with.pages, setup, stream);
  decoder loop(with.parts, with.shape, experts, decode_mode::eager, with.known);
  for (std::size_t s = 0; s < wanted.size(); ++s) {
    const auto hidden = loop.step(with.routing.ids(s), with.routing.weights(s));
    if (hashed(0, hidden) == hashed(0, wanted[s])) continue;
    report.differences.push_back("step " + std::to_string(s) +
                                 " on the device differs from the host's");
    return;
  }
}

int compare(const program_options& asked, const program_parts& parts, std::ostream& out,
            std::ostream& err) {
  auto shape = shape_asked(asked);
  if (asked.fit_layers)
    shape.layers = std::max(layers_within(shape, asked.host_budget), std::int32_t{1});
  const auto caps = caps_asked(asked, shape);
  (void)eviction_for(asked.eviction, shape.geometry());
  if (!asked.trace.empty() && !parts.read_trace)
    throw usage_error("--trace: this program was built without hotset::lab, which reads traces");
  if (const auto reason = trouble_with_device(parts.api, asked.device)) {
    write_file(asked.json, json_of_skip(*reason));
    out << "cuda_decode: skipped: " << *reason << "\n";
    return ok;
  }
  const hotset::cuda::device_scope scope(parts.api, asked.device);
  require(parts.api, scope.what().code, "cudaSetDevice");
  require_host_budget(shape, asked.host_budget);
  const auto routing = routing_asked(asked, shape, parts);
  hotset::cuda::pinned_memory pages(parts.api, asked.host_budget);
  const host_weights weights(shape, pages, asked.statistics.seed);

  const device_parts device{parts.api, parts.kernels, parts.graphs, asked.device};
  const comparison with{device,       shape,       weights.source(), pages,         routing,
                        asked.warmup, asked.known, asked.fetch,      asked.eviction};
  decode_report report;
  report.shape = shape;
  report.layers_of_model = shape_named(asked.shape).layers;
  report.routing = routing_text(asked);
  report.warmup = asked.warmup;
  report.steps = asked.steps;
  report.known = asked.known;
  report.fetch = asked.fetch;
  report.eviction = asked.eviction;
  report.page_locked_bytes = pages.bytes();
  report.host_budget = asked.host_budget;
  report.plain_rate = plain_copy_rate(parts.api, asked.device, shape, weights.source(),
                                      std::min(rate_bytes, shape.all_bytes()));
  report.turnover_bytes =
      turnover_bytes_per_step(routing, asked.warmup, routing.steps(), shape.expert_bytes());
  out << text_before_arms(report) << std::flush;
  run_arms(with, arms_of(shape, caps, asked.modes, asked.fetch), report, asked.json, out);
  if (asked.check_steps != 0)
    check_on_host(with, std::min(asked.check_steps, routing.steps()), report);
  report.finished = true;

  out << text_after_arms(report);
  write_file(asked.json, json_of(report));
  if (report.differences.empty()) return ok;
  err << "cuda_decode: bits differ: " << report.differences.front() << "\n";
  return failure;
}

int tiny(const program_options& asked, const program_parts& parts, std::ostream& out) {
  (void)eviction_named(asked.eviction);
  if (!parts.run_tiny)
    throw usage_error("tiny: this program was built without examples/tiny_moe, which it needs");
  if (const auto reason = trouble_with_device(parts.api, asked.device)) {
    out << "cuda_decode: skipped: " << *reason << "\n";
    return ok;
  }
  const hotset::cuda::device_scope scope(parts.api, asked.device);
  require(parts.api, scope.what().code, "cudaSetDevice");
  return parts.run_tiny(asked, {parts.api, parts.kernels, parts.graphs, asked.device}, out);
}

}  // namespace

int run_program(std::span<const std::string> arguments, const program_parts& parts,
                std::ostream& out, std::ostream& err) {
  const auto report = [&](const std::exception& what, exit_code code) {
    err << "cuda_decode: " << what.what() << "\n";
    return code;
  };
  try {
    const auto asked = read_options(arguments);
    switch (asked.what) {
      case subcommand::help: out << help_text(); return ok;
      case subcommand::version:
        out << "cuda_decode (hotset) " HOTSET_VERSION_TEXT << '\n';
        return ok;
      case subcommand::tiny: return tiny(asked, parts, out);
      case subcommand::compare: break;
    }
    return compare(asked, parts, out, err);
  } catch (const usage_error& bad) {
    return report(bad, usage);
  } catch (const infeasible_error& bad) {
    return report(bad, infeasible);
  } catch (const hotset::trace_error& bad) {
    return report(bad, bad_input);
  } catch (const std::exception& bad) {
    return report(bad, failure);
  }
}

}  // namespace cuda_decode
