// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shows a running engine to its operator: an endpoint of metrics, a timeline, or both.

#include <memory>
#include <string>
#include <utility>

#include "hotset/cache/cache_metrics.hpp"
#include "hotset/cache/engine_timeline.hpp"
#include "hotset/cache/metrics_endpoint.hpp"
#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/transfer/transfer_observer.hpp"

namespace hotset {

/// Parts without a value are left out.
struct live_view_config {
  std::string metrics{};   ///< address of the endpoint, such as 127.0.0.1:9100
  std::string timeline{};  ///< file
  std::string engine = "hotset";

  [[nodiscard]] bool is_empty() const noexcept { return metrics.empty() && timeline.empty(); }
  [[nodiscard]] validation validate() const {
    return metrics.empty() ? std::nullopt : metrics_endpoint::check(metrics);
  }
};

/// Pass it to the cache's backend as its observer. It outlives the backend and its streams. Between visits, call
/// `metrics().publish`. Threads: as its parts.
class live_view final : public transfer_observer {
 public:
  /// `policy`: name of the eviction policy. Errors: those of metrics_endpoint and engine_timeline.
  static result<std::unique_ptr<live_view>> create(const live_view_config& config,
                                                   const geometry& shape, std::string policy) {
    std::unique_ptr<live_view> made(new live_view(shape, std::move(policy)));
    if (!config.timeline.empty()) {
      auto timeline = engine_timeline::create(config.timeline, config.engine);
      if (!timeline) return timeline.error();
      made->timeline_ = *std::move(timeline);
    }
    if (!config.metrics.empty()) {
      auto endpoint = metrics_endpoint::create(config.metrics,
                                               [of = made.get()] { return of->metrics_.text(); });
      if (!endpoint) return endpoint.error();
      made->endpoint_ = *std::move(endpoint);
    }
    return made;
  }

  void on_copy(const ended_copy& copy) noexcept override {
    metrics_.on_copy(copy);
    if (timeline_) timeline_->on_copy(copy);
  }
  void on_wait(const ended_wait& wait) noexcept override {
    metrics_.on_wait(wait);
    if (timeline_) timeline_->on_wait(wait);
  }
  void on_compute(const engine_timeline::computation& what) noexcept {
    if (timeline_) timeline_->on_compute(what);
  }
  [[nodiscard]] bool has_timeline() const noexcept { return timeline_ != nullptr; }

  [[nodiscard]] cache_metrics& metrics() noexcept { return metrics_; }
  /// URL of the metrics with the chosen port; empty without an endpoint.
  [[nodiscard]] std::string url() const { return endpoint_ ? endpoint_->url() : std::string(); }
  /// Reason why the timeline does not reach its file, if there is one.
  [[nodiscard]] validation problem() const {
    return timeline_ ? timeline_->problem() : std::nullopt;
  }
  /// Ends the timeline. Errors: those of engine_timeline::finish.
  validation finish() { return timeline_ ? timeline_->finish() : std::nullopt; }

 private:
  live_view(const geometry& shape, std::string policy) : metrics_(shape, std::move(policy)) {}

  cache_metrics metrics_;
  std::unique_ptr<engine_timeline> timeline_;
  std::unique_ptr<metrics_endpoint> endpoint_;  ///< last: its thread reads the metrics
};

}  // namespace hotset
