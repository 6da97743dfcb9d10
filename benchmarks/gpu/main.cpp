// SPDX-License-Identifier: Apache-2.0
// Runs the device benchmarks and writes one JSON file. Without a device the file contains the reason, and the exit
// code is 0.
//   hotset_gpu_bench --out FILE [--quick] [--only NAME]
#include <cmath>
#include <cstdio>
#include <ctime>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "hotset/trace/file_writer.hpp"
#include "hotset/version.hpp"

namespace {

using namespace hotset;
using facts = std::vector<std::pair<std::string, std::string>>;

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  std::ostringstream out;
  out.precision(6);
  out << value;
  return out.str();
}
std::string object(const facts& members, const std::string& indent) {
  std::string out = "{";
  for (const auto& [key, text] : members)
    out += (out.size() > 1 ? "," : "") + ("\n" + indent + "  ") + json_string(key) + ": " +
           json_string(text);
  return out + (members.empty() ? "}" : "\n" + indent + "}");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}
std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

facts describe_device() {
  cudaDeviceProp device{};
  HOTSET_REQUIRE(cudaGetDeviceProperties(&device, 0));
  char bus[32] = "";
  HOTSET_REQUIRE(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  return {{"name", device.name},
          {"compute_capability", std::to_string(device.major) + "." + std::to_string(device.minor)},
          {"memory_bytes", std::to_string(device.totalGlobalMem)},
          {"multiprocessors", std::to_string(device.multiProcessorCount)},
          {"copy_engines", std::to_string(device.asyncEngineCount)},
          {"pci_bus", bus},
          {"batched_copies", cuda::system_runtime().has_copy_batch() ? "yes" : "no"}};
}

std::string rows_of(const gpu_bench::results& found) {
  std::string out = "[";
  for (const auto& r : found.rows())
    out += std::string(out.size() > 1 ? "," : "") + "\n    {\"name\": " + json_string(r.name) +
           ", \"unit\": " + json_string(r.unit) + ", \"median\": " + number(r.median) +
           ", \"lowest\": " + number(r.lowest) + ", \"highest\": " + number(r.highest) +
           ", \"rounds\": " + std::to_string(r.rounds) + "}";
  return out + (out.size() > 1 ? "\n  ]" : "]");
}

int usage(const std::string& problem) {
  std::fprintf(stderr,
               "hotset_gpu_bench: %s\nusage: hotset_gpu_bench --out FILE [--quick] [--only NAME]\n",
               problem.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  std::string only;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      quick = true;
      continue;
    }
    if (argument != "--out" && argument != "--only")
      return usage("unknown argument '" + argument + "'");
    if (++i == argc) return usage(argument + " needs a value");
    const std::string value = argv[i];
    if (argument == "--out") file = value;
    if (argument == "--only") only = value;
  }
  if (file.empty()) return usage("--out is needed");
  if (std::string names; !only.empty()) {
    for (const auto& bench : gpu_bench::all_benches()) names += " " + bench.name;
    if ((names + " ").find(" " + only + " ") == std::string::npos)
      return usage("--only: no benchmark '" + only + "', accepted:" + names);
  }

  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const std::string no_device = gpu::why_no_device();
  gpu_bench::results found(quick);
  facts device;
  facts failed;
  if (no_device.empty()) {
    try {
      device = describe_device();
    } catch (const std::exception& e) {
      failed.emplace_back("device", e.what());
    }
    for (const auto& bench : gpu_bench::all_benches()) {
      if (!only.empty() && only != bench.name) continue;
      std::printf("== %s\n", bench.name.c_str());
      const auto first = found.rows().size();
      try {
        bench.run(found);
      } catch (const std::exception& e) {
        failed.emplace_back(bench.name, e.what());
        std::printf("failed: %s\n", e.what());
      }
      for (auto i = first; i < found.rows().size(); ++i) {
        const auto& r = found.rows()[i];
        std::printf("%-56s %12.4g %s (%.4g..%.4g)\n", r.name.c_str(), r.median, r.unit.c_str(),
                    r.lowest, r.highest);
      }
      std::fflush(stdout);
    }
  } else {
    std::printf("no device: %s\n", no_device.c_str());
  }

  std::string json = "{\n  \"format\": \"hotset.gpu-bench/1\",\n";
  const auto add = [&json](std::string_view key, const std::string& value) {
    json += "  " + json_string(key) + ": " + value + ",\n";
  };
  add("hotset", json_string(std::to_string(HOTSET_VERSION_MAJOR) + "." +
                            std::to_string(HOTSET_VERSION_MINOR) + "." +
                            std::to_string(HOTSET_VERSION_PATCH)));
  add("date", json_string(today()));
  add("driver", driver == 0 ? "null" : json_string("CUDA " + dotted(driver)));
  add("runtime", json_string("CUDA " + dotted(runtime)));
  add("device", no_device.empty() ? object(device, "  ") : "null");
  add("no_device", no_device.empty() ? "null" : json_string(no_device));
  add("quick", quick ? "true" : "false");
  add("left_out", object(found.left_out(), "  "));
  add("failed", object(failed, "  "));
  json += "  \"results\": " + rows_of(found) + "\n}\n";
  file_writer out(file);
  out.write(json);
  if (const auto bad = out.finish()) {
    std::fprintf(stderr, "hotset_gpu_bench: %s\n", bad->message.c_str());
    return 1;
  }
  return failed.empty() ? 0 : 1;
}
