// SPDX-License-Identifier: Apache-2.0
#include "tiny_moe/serving/serving.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "tiny_moe/model/kernels.hpp"

namespace tiny_moe {
namespace {

// A request being served; it keeps its generated tokens when it loses its sequence.
struct session {
  std::size_t request = 0;
  std::vector<std::uint8_t> tokens;  // the prompt, and generated tokens that will be fed
  std::size_t computed = 0;          // maximum tokens that its sequence ever held
  std::optional<sequence_id> sequence;
  bool is_admitted = false;  // on_end will be called
};

class server {
 public:
  server(batch_engine& decoder, std::span<const serving_request> requests,
         const serving_config& config, const between_steps& between)
      : decoder_(decoder),
        pool_(decoder.pool()),
        requests_(requests),
        config_(config),
        between_(between) {
    hotset::require_valid(config.validate(decoder.max_tokens()));
    report_.requests.resize(requests.size());
    running_.reserve(std::min(config.max_sessions, requests.size()));
    std::vector<std::size_t> order(requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return requests[a].arrival < requests[b].arrival;
    });
    for (const std::size_t r : order) {
      session s{.request = r, .tokens = requests[r].prompt, .sequence = {}};
      if (const std::string flaw = flaw_of(s); flaw.empty()) {
        waiting_.push_back(std::move(s));
      } else {
        report_.requests[r].refusal = flaw;
      }
    }
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server() {
    for (session& s : running_) close(s);
  }

  serving_report run() {
    if (config_.clock) began_ = config_.clock();
    while (!waiting_.empty() || !running_.empty()) {
      advance(0);
      if (between_) between_(here());
      admit();
      if (!running_.empty()) {
        step();
      } else if (!waiting_.empty()) {
        skip_to(request_of(waiting_.front()).arrival);
      }
    }
    return std::move(report_);
  }

 private:
  // Rows of one session in the pass.
  struct part {
    std::size_t session = 0;  // index in running_
    std::size_t rows = 0;
  };

  void advance(std::uint64_t passes) {
    now_ = config_.clock ? config_.clock() - began_ : now_ + passes;
  }
  void skip_to(std::uint64_t arrival) {
    now_ = arrival;
    if (config_.clock)
      began_ = config_.clock() - arrival;  // may wrap, as does the later difference
  }

  [[nodiscard]] const serving_request& request_of(const session& s) const noexcept {
    return requests_[s.request];
  }
  [[nodiscard]] std::size_t longest_blocks(const session& s) const noexcept {
    return pool_.blocks_for(request_of(s).longest());
  }
  [[nodiscard]] bool has_arrived(const session& s) const noexcept {
    return request_of(s).arrival <= now_;
  }
  // Tokens that the session has and its sequence lacks.
  [[nodiscard]] std::size_t behind(const session& s) const noexcept {
    return s.tokens.size() - pool_.length(*s.sequence);
  }
  // Whether everything except the last generated token was computed.
  [[nodiscard]] bool decodes(const session& s) const noexcept {
    return s.tokens.size() > request_of(s).prompt.size() && behind(s) == 1;
  }
  // Length after the next pass: the session's tokens, and one more if it generates one.
  [[nodiscard]] std::size_t next_length(const session& s) const noexcept {
    return std::min(s.tokens.size() + 1, request_of(s).longest());
  }

  [[nodiscard]] drained_point here() const {
    drained_point point{.pool = pool_,
                        .stats = report_.stats,
                        .step = now_,
                        .running = running_.size(),
                        .ended = requests_.size() - running_.size() - waiting_.size()};
    const auto count = [&](const session& s) {
      point.least_blocks = std::max<std::uint64_t>(point.least_blocks, longest_blocks(s));
    };
    for (const session& s : running_) count(s);
    for (const session& s : waiting_) {
      if (!has_arrived(s)) break;
      ++point.waiting;
      count(s);
    }
    return point;
  }

  void admit() {
    while (!waiting_.empty() && running_.size() < config_.max_sessions) {
      const session& next = waiting_.front();
      if (!has_arrived(next)) return;
      const std::size_t room = running_.empty() ? pool_.available() : pool_.capacity();
      if (longest_blocks(next) > room) {
        refuse_next(fmt::format("{} KV blocks of {} tokens; accepted: 1..{}", longest_blocks(next),
                                pool_.block_tokens(), room));
        continue;
      }
      if (blocks_to_begin(next) + blocks_promised() > pool_.available()) return;
      if (turned_away_ == next.request) return;  // no request has ended since
      if (const auto reason = objection(next); !reason) {
        begin_next();
      } else if (running_.empty()) {
        refuse_next(fmt::format("adapter {}: {}", request_of(next).adapter, reason->message));
      } else {
        turned_away_ = next.request;
        return;
      }
    }
  }
  [[nodiscard]] hotset::validation objection(const session& s) const {
    return config_.on_admit ? config_.on_admit(request_of(s).adapter) : std::nullopt;
  }
  void begin_next() {
    running_.push_back(std::move(waiting_.front()));  // cannot throw: there is room
    waiting_.pop_front();
    session& s = running_.back();
    s.is_admitted = true;
    s.sequence = pool_.open(request_of(s).longest(), request_of(s).adapter);
    reuse(s);
  }
  // Repeated before each chunk: another session may have computed the next blocks meanwhile.
  void reuse(const session& s) {
    report_.stats.reused_tokens += pool_.reuse(*s.sequence, reusable(s, pool_.length(*s.sequence)));
  }
  // Reason why no pool could serve it, or nothing.
  [[nodiscard]] std::string flaw_of(const session& s) const {
    const serving_request& request = request_of(s);
    const auto line = [&](const char* what, std::size_t value, const std::string& accepted) {
      return fmt::format("request {}: {} {}; accepted: {}", s.request, value, what, accepted);
    };
    if (request.prompt.empty()) return line("bytes of prompt", 0, "1 or more");
    if (request.tokens == 0) return line("tokens to generate", 0, "1 or more");
    if (request.longest() > decoder_.max_positions()) {
      return line("positions", request.longest(), fmt::format("1..{}", decoder_.max_positions()));
    }
    return {};
  }
  void refuse_next(const std::string& reason) {
    const session& next = waiting_.front();
    served_request& served = report_.requests[next.request];
    served.refusal = fmt::format("request {}: {}", next.request, reason);
    served.steps = now_ - request_of(next).arrival;
    waiting_.pop_front();
  }
  [[nodiscard]] std::size_t blocks_to_begin(const session& s) const {
    return pool_.blocks_for(next_length(s)) - pool_.shared(reusable(s, 0), request_of(s).adapter);
  }
  [[nodiscard]] std::size_t blocks_promised() const noexcept {
    std::size_t blocks = 0;
    for (const session& s : running_) {
      const std::size_t length = pool_.length(*s.sequence);
      blocks += pool_.needed(*s.sequence, next_length(s) - std::min(next_length(s), length));
    }
    return blocks;
  }
  // Tokens that may come from the cache: all except the last one, whose logits are needed.
  [[nodiscard]] static std::span<const std::uint8_t> reusable(const session& s,
                                                              std::size_t length) noexcept {
    return std::span(s.tokens).first(s.tokens.size() - 1).subspan(length);
  }

  void step() {
    const auto decoding = [this](const session& s) { return decodes(s); };
    const bool any_decodes = std::any_of(running_.begin(), running_.end(), decoding);
    const bool all_decode = std::all_of(running_.begin(), running_.end(), decoding);
    const bool prefill = !all_decode && (!any_decodes || last_was_decode_);
    last_was_decode_ = !prefill;
    rows_.clear();
    users_.clear();
    parts_.clear();
    if (prefill) {
      collect_prompts();
    } else {
      collect_decodes();
    }
    if (rows_.empty()) return;  // the sessions to run were preempted
    report_.stats.peak_blocks = std::max(report_.stats.peak_blocks, pool_.in_use());
    if (config_.on_rows) config_.on_rows(users_);
    take_logits(decoder_.forward(rows_, prefill ? request_kind::prefill : request_kind::decode),
                prefill);
  }
  void collect_decodes() {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (decodes(running_[i]) && make_room(i, 1)) add_rows(i, 1);
    }
  }
  void collect_prompts() {
    for (std::size_t i = 0; i < running_.size() && rows_.size() < config_.max_tokens; ++i) {
      if (decodes(running_[i])) continue;
      reuse(running_[i]);
      const std::size_t rows = std::min(config_.max_tokens - rows_.size(), behind(running_[i]));
      if (make_room(i, rows)) add_rows(i, rows);
    }
  }
  // Preempts from the back until the blocks are available. Returns false if this session itself was preempted.
  // Sessions that already have rows are before it, and stay.
  bool make_room(std::size_t i, std::size_t tokens) {
    while (!pool_.reserve(*running_[i].sequence, tokens)) {
      preempt_last();
      if (i == running_.size()) return false;
    }
    return true;
  }
  void preempt_last() {
    session& last = running_.back();
    close(last);
    ++report_.stats.preemptions;
    ++report_.requests[last.request].preemptions;
    waiting_.push_front(std::move(last));
    running_.pop_back();
  }
  void add_rows(std::size_t i, std::size_t rows) {
    const session& s = running_[i];
    const std::size_t length = pool_.length(*s.sequence);
    for (std::size_t t = length; t < length + rows; ++t)
      rows_.push_back({*s.sequence, s.tokens[t]});
    users_.insert(users_.end(), rows, request_of(s).user);
    parts_.push_back({.session = i, .rows = rows});
  }

  void take_logits(std::span<const float> logits, bool prefill) {
    advance(1);
    serving_stats& stats = report_.stats;
    ++stats.steps;
    (prefill ? stats.prefilled_tokens : stats.decoded_tokens) += rows_.size();
    std::size_t end = 0;
    for (const part& p : parts_) {
      session& s = running_[p.session];
      end += p.rows;
      const std::size_t length = pool_.length(*s.sequence);
      stats.recomputed_tokens +=
          std::min(length, s.computed) - std::min(length - p.rows, s.computed);
      s.computed = std::max(s.computed, length);
      if (length == s.tokens.size()) {
        constexpr std::size_t size = model_config::vocabulary;
        take_token(s, static_cast<std::uint8_t>(largest(logits.subspan((end - 1) * size, size))));
      }
    }
    std::erase_if(running_, [](const session& s) { return !s.sequence; });
  }
  void take_token(session& s, std::uint8_t token) {
    served_request& served = report_.requests[s.request];
    const std::uint64_t steps = now_ - request_of(s).arrival;
    if (served.output.empty()) served.first_token = steps;
    served.output.push_back(token);
    if (served.output.size() < request_of(s).tokens) {
      s.tokens.push_back(token);
    } else {
      served.steps = steps;
      close(s);
    }
  }
  void close(session& s) noexcept {
    if (s.sequence) decoder_.close(*s.sequence);
    s.sequence.reset();
    turned_away_.reset();
    if (std::exchange(s.is_admitted, false) && config_.on_end)
      config_.on_end(request_of(s).adapter);
  }

  batch_engine& decoder_;
  kv_pool& pool_;
  std::span<const serving_request> requests_;
  serving_config config_;
  const between_steps& between_;
  serving_report report_;
  std::deque<session> waiting_;             // preempted ones first, then by arrival
  std::vector<session> running_;            // in the order of their admission
  std::vector<token_row> rows_;             // rows of one pass
  std::vector<std::uint32_t> users_;        // [rows]
  std::vector<part> parts_;                 // parts of one pass, in the order of the rows
  std::optional<std::size_t> turned_away_;  // the request that waits for another request's end
  std::uint64_t began_ = 0;                 // on the clock
  std::uint64_t now_ = 0;
  bool last_was_decode_ = true;
};

}  // namespace

std::size_t serving_request::longest() const noexcept {
  const std::size_t fed = tokens == 0 ? 0 : tokens - 1;
  const std::size_t room = std::numeric_limits<std::size_t>::max() - prompt.size();
  return prompt.size() + std::min(fed, room);
}

hotset::validation serving_config::validate(std::size_t engine_tokens) const {
  const auto refuse = [&](const char* name, std::size_t value) {
    return hotset::error{
        fmt::format("serving {} = {}, accepted: 1..{}", name, value, engine_tokens)};
  };
  if (max_sessions < 1 || max_sessions > engine_tokens) return refuse("max_sessions", max_sessions);
  if (max_tokens < 1 || max_tokens > engine_tokens) return refuse("max_tokens", max_tokens);
  return std::nullopt;
}

serving_report serve(batch_engine& decoder, std::span<const serving_request> requests,
                     const serving_config& config, const between_steps& between) {
  return server(decoder, requests, config, between).run();
}

}  // namespace tiny_moe
