// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What past tokens routed, and which of them routed most like a token does now.
///
/// Rule: a row is what one token routed in every layer; the row of the same sequence's next token is its successor. For each
///       running sequence every row has a similarity. At a visit of the sequence, with U its last token's experts,
///       s -= floor(s * d); s += floor(d / |U|) * |U & row|, d = reach / layers: an average over the last visits, which
///       forgets within a fraction of a step. When the sequence goes on to a new token, each row's similarity passes on to
///       its successor. Where a visit brings several tokens of a sequence, similarities begin anew with the last one. A
///       step throughout which nobody asks for them passes on what its own visits say, and nothing of the steps before.
/// Source: ours.
/// Deviations: the rule was found with one ring in which all steps follow one another. Here successors say what follows what: the
///       rows of all sequences share the ring, each running sequence is compared with all of them, and the tokens of a prompt
///       are rows of their own. A row says nothing before its successor's step has ended. Visits whose similarities nobody needs,
///       as where all experts are resident, cost no more than writing them down. docs/which-policy.md has what each brings.
/// Cost: stage and keep O(ids). find_similar O(rows), vectorised, a visit since it was asked last, at most those of two steps. uses_after
///       O(horizon * ids) once a row and layer. A new step O(rows) a sequence that was asked about. Nothing allocates after construction.
/// Memory: rows * layers * experts / 4 bytes, and 4 * rows + 8 * layers * (top_k + 1) a sequence: 1.5 MiB at 48 x 128, 1,024 rows,
///       118 KiB for 16 sequences of top-8.
///       Where first uses are kept, half a byte more for each row, layer and expert: 3 MiB, and 2 bytes a row and token ahead.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotset/core/error.hpp"
#include "hotset/core/geometry.hpp"
#include "hotset/core/ids.hpp"
#include "hotset/core/ids/id_view.hpp"
#include "hotset/core/ids/per_id.hpp"
#include "hotset/core/numbers/unique_ids.hpp"
#include "hotset/core/platform/aligned_vector.hpp"
#include "hotset/core/platform/assert.hpp"
#include "hotset/core/routing_view.hpp"
#include "hotset/predict/history/first_uses.hpp"
#include "hotset/predict/history/live_sequences.hpp"
#include "hotset/predict/history/routed_rows.hpp"
#include "hotset/predict/history/saved_history.hpp"
#include "hotset/predict/history/view_tokens.hpp"
#include "hotset/predict/history/visit_log.hpp"
#include "hotset/predict/kernels/history_kernels.hpp"
#include "hotset/predict/kernels/rank_kernels.hpp"

namespace hotset {

/// A visit is staged before its victims are chosen, and kept when it takes place. Staging leaves no trace: another stage, or the same one
/// again, takes its place. Threads: compatible.
class routing_history {
 public:
  using row_id = routed_rows::row_id;
  static constexpr row_id no_row = std::numeric_limits<row_id>::max();

  struct config {
    std::int32_t rows = 1024;     ///< tokens that are remembered; a multiple of 256
    std::int32_t sequences = 16;  ///< running at one time; those beyond leave no rows
    /// How fast similarities forget: a visit counts 1/e after layers / reach others.
    double reach = 4;

    [[nodiscard]] validation validate() const {
      if (rows < 256 || rows > most_rows || rows % 256 != 0)
        return error{"history rows = " + std::to_string(rows) +
                     ", accepted: a multiple of 256, 256..." + std::to_string(most_rows)};
      if (sequences < 1 || sequences > rows / 2)
        return error{"history sequences = " + std::to_string(sequences) +
                     ", accepted: 1..rows / 2 (" + std::to_string(rows / 2) + ")"};
      if (!(reach > 0 && reach <= 1024))
        return error{"history reach = " + std::to_string(reach) +
                     ", accepted: above 0, at most 1024"};
      return std::nullopt;
    }
  };
  /// A row that routed like the running token.
  struct match {
    row_id row = no_row;
    std::uint16_t similarity = 0;  ///< 0..32768, which is alike throughout
  };
  /// What a row must have to be compared with.
  enum class rows_with : std::uint8_t {
    layers,    ///< all that its token routed: its step has ended
    successor  ///< what came after it, too
  };

  /// `horizon`: tokens after each row that uses_after() tells of. Pre: neither argument's validate() has a reason to refuse, horizon is
  /// at most first_uses::most_horizon.
  routing_history(const geometry& shape, const config& options, std::size_t horizon = 0)
      : layers_(shape.layer_count()),
        experts_(shape.expert_count()),
        top_k_(shape.ranks()),
        rows_(static_cast<std::size_t>(options.rows)),
        fades_(options.reach / shape.layers, top_k_),
        tokens_(shape),
        distinct_(experts_, top_k_),
        live_(static_cast<std::size_t>(options.sequences)),
        routed_(layers_, experts_, rows_),
        first_uses_(layers_, rows_, experts_, horizon),
        later_(rows_ * horizon, no_row),
        later_count_(rows_, 0),
        lagging_(rows_ + 1),
        before_(rows_, no_row),
        after_(rows_, no_row),
        whole_(rows_, 0),
        followed_(rows_, 0),
        seen_(layers_, 1),
        last_(live_.rows(), no_row),
        log_(live_.rows(), layers_, top_k_),
        earlier_(live_.rows(), layers_, top_k_),
        asked_(live_.rows(), 0),
        anew_(live_.rows(), 1),
        goes_on_(live_.rows(), 0),
        candidates_(rows_ + history_kernels::places_beyond),
        ranked_(rows_),
        planes_of_(top_k_) {
    const auto most_tokens = shape.tokens_per_visit();
    const auto most_streams = std::min(live_.rows(), most_tokens);
    streams_.resize(most_streams);
    spare_ = live_.rows() + most_streams;
    similar_.assign(spare_ + 1, aligned_vector<std::uint16_t>(rows_, 0));
    for (std::size_t r = 0; r < live_.rows(); ++r) of_live_.push_back(r);
    for (std::size_t s = 0; s < most_streams; ++s) streams_[s].similar = live_.rows() + s;
    most_pending_ = std::min(most_tokens, rows_ / 2);
    pending_.resize(most_pending_);
    pending_ids_.resize(most_pending_ * top_k_);
    step_rows_.reserve(most_pending_);
    earlier_rows_.reserve(most_pending_);
    preceding_.reserve(most_pending_);
  }

  /// What it takes, but for 200 bytes a sequence. Pre: neither argument's validate() has a reason to refuse.
  static std::uint64_t bytes_for(const geometry& shape, const config& options,
                                 std::size_t horizon = 0) noexcept {
    const auto rows = static_cast<std::uint64_t>(options.rows);
    const auto tokens = std::min(static_cast<std::uint64_t>(shape.max_tokens_per_visit), rows / 2);
    const auto streams = std::min(static_cast<std::uint64_t>(options.sequences), tokens);
    return routed_rows::bytes_for(static_cast<std::uint64_t>(shape.layers),
                                  static_cast<std::uint64_t>(shape.experts), rows) +
           first_uses::bytes_for(static_cast<std::uint64_t>(shape.layers), rows,
                                 static_cast<std::uint64_t>(shape.experts), horizon) +
           rows *
               (19 + 2 * horizon + 2 * (static_cast<std::uint64_t>(options.sequences) + streams)) +
           tokens * (32 + 4 * static_cast<std::uint64_t>(shape.top_k)) +
           2 * visit_log::bytes_for(static_cast<std::uint64_t>(options.sequences),
                                    static_cast<std::uint64_t>(shape.layers),
                                    static_cast<std::uint64_t>(shape.top_k));
  }

  [[nodiscard]] std::size_t layers() const noexcept { return layers_; }
  [[nodiscard]] std::size_t experts() const noexcept { return experts_; }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  /// 64-bit words of a set of experts, an even number.
  [[nodiscard]] std::size_t words() const noexcept { return routed_.words(); }

  /// Looks at a visit that may take place. A view that opens a step, that is none of this geometry, or whose layer was kept in
  /// this step already, stages nothing.
  void stage(const routing_view& view) noexcept {
    drop_stage();
    if (view.layer < 0 || tokens_.check(view) != status::ok || view.experts.empty()) return;
    const bool opens = view.step != step_;
    if (!opens && seen_[view.layer] != 0) return;
    staged_ = view.layer;
    staged_step_ = view.step;
    let_speak(opens);
    if (opens) clear_unseen();
    find_streams(view);
    remember_tokens(view);
  }
  /// The staged visit takes place: its rows are written. Nothing happens where none is staged.
  void keep() noexcept {
    if (staged_ < 0) return;
    if (opens_step()) {
      end_step();
      begin_step();
    }
    bool compared = false;
    for (std::size_t s = 0; s < stream_count_; ++s) {
      compared = compared || streams_[s].compared;
      keep_similarities(streams_[s]);
    }
    write_rows();
    // Who asked at this visit asks at the layer's next one: words that were just written are slow to read as vectors.
    if (compared) routed_.bring_up_to_date(index_of(staged_));
    seen_[staged_] = 1;
    staged_ = before_layers;
    stream_count_ = 0;
  }
  void drop_stage() noexcept {
    staged_ = before_layers;
    stream_count_ = 0;
  }

  /// Sequences of the staged visit that may be compared.
  [[nodiscard]] std::size_t streams() const noexcept { return stream_count_; }
  /// The rows that are most similar to a stream's, at most out.size(), most similar first, of equals the latest; returns how many.
  /// Rows without any similarity are left out. Pre: of < streams().
  std::size_t find_similar(std::size_t of, rows_with need, std::span<match> out) noexcept {
    auto& asked = streams_[of];
    if (!asked.compared) compare(asked);
    return find(similar_[asked.similar], need, out);
  }
  /// As above, of what was kept last for a sequence; none for one that is not known.
  std::size_t find_similar_to(sequence_id sequence, rows_with need, std::span<match> out) noexcept {
    const auto r = live_.find(sequence);
    if (r == live_sequences::none) return 0;
    asked_[r] = 1;
    return find(catch_up(r), need, out);
  }
  /// Whether the sequence is one of those that are followed.
  [[nodiscard]] bool follows(sequence_id sequence) const noexcept {
    return live_.find(sequence) != live_sequences::none;
  }
  [[nodiscard]] std::size_t most_sequences() const noexcept { return live_.rows(); }
  /// The row of the same sequence's next token, or no_row where its step has not ended.
  [[nodiscard]] row_id successor(row_id row) const noexcept {
    return followed_[history_kernels::place_of(row)] == 0 ? no_row : after_[row];
  }
  /// How soon the tokens after a row first used a layer's experts, as first_uses has it; `tokens` of them are known.
  struct later_uses {
    const std::uint32_t* numbers = nullptr;
    std::size_t tokens = 0;
  };
  /// Pre, of the three: the history looks ahead.
  [[nodiscard]] later_uses uses_after(layer_id layer, row_id row) noexcept {
    const auto l = index_of(layer);
    if (lags(l, row)) look_ahead(l, row);
    return {first_uses_.of(l, row), first_uses_.known(l, row)};
  }
  /// uses_after() will be asked for of these: which lag behind is found out before, for nobody can foretell it one by one.
  void look_ahead(layer_id layer, std::span<const match> rows) noexcept {
    const auto l = index_of(layer);
    std::size_t count = 0;
    for (const auto& one : rows) {
      lagging_[count] = one.row;
      count += lags(l, one.row) ? 1U : 0U;
    }
    for (const auto row : std::span(lagging_).first(count)) look_ahead(l, row);
  }
  /// uses_after() will be asked for soon.
  void fetch_uses_after(layer_id layer, row_id row) const noexcept {
    first_uses_.fetch(index_of(layer), row);
  }
  /// Experts that uses_after() has numbers of: these, filled up.
  [[nodiscard]] std::size_t numbered_experts() const noexcept { return first_uses_.experts(); }
  /// What a row routed in a layer, a bit an expert. Shape: [words()].
  [[nodiscard]] std::span<const std::uint64_t> set(layer_id layer, row_id row) const noexcept {
    return routed_.set(index_of(layer), row);
  }
  /// Writes the rows whose steps have ended; those of the running step are not whole. Pre: `to` is of this geometry.
  void save(saved_history& to) const {
    std::vector<std::uint32_t> place_of_row(rows_, saved_history::none);
    to.before.clear();
    to.ids.clear();
    for (std::size_t age = 0; age < rows_; ++age) {
      const auto row = static_cast<row_id>((oldest_ + age) % rows_);
      const auto place = history_kernels::place_of(row);
      if (whole_[place] == 0) continue;
      place_of_row[row] = static_cast<std::uint32_t>(to.before.size());
      to.before.push_back(before_[place] == no_row
                              ? saved_history::none
                              : place_of_row[history_kernels::row_at(before_[place])]);
      for (std::size_t l = 0; l < layers_; ++l) save_ids(l, row, to.ids);
    }
  }
  /// Its rows are the saved ones, the newest that there is room for. Whoever runs begins anew. Allocates nothing.
  /// Pre: saved.check() has no reason to refuse.
  void restore(const saved_history& saved) noexcept {
    forget_all();
    const auto first = saved.rows() - std::min(saved.rows(), rows_);
    for (auto r = first; r < saved.rows(); ++r) {
      const auto row = static_cast<row_id>(r - first);
      const auto ids = std::span(saved.ids).subspan(r * layers_ * top_k_, layers_ * top_k_);
      if (saved.before[r] != saved_history::none && saved.before[r] >= first) {
        const auto previous = static_cast<row_id>(saved.before[r] - first);
        follow(previous, row);
        followed_[history_kernels::place_of(previous)] = 0xffff;
        add_as_later(row);
      }
      for (std::size_t l = 0; l < layers_; ++l)
        routed_.write(l, row, ids.subspan(l * top_k_, top_k_));
      whole_[history_kernels::place_of(row)] = 0xffff;
    }
    oldest_ = (saved.rows() - first) % rows_;
  }
  /// The sequence has had its last token: its rows stay, its similarities are forgotten.
  void end_sequence(sequence_id sequence) noexcept {
    if (const auto r = live_.find(sequence); r != live_sequences::none) live_.leave(r);
  }

 private:
  static constexpr std::int32_t most_rows = 32768;
  static constexpr std::size_t most_ranked = 64;  ///< more candidates than that are sorted

  struct fading {
    fading(double share, std::size_t top_k)
        : decay(static_cast<std::uint16_t>(std::clamp(share * 65536, 1.0, 65535.0))), gains{0} {
      for (std::size_t experts = 1; experts <= top_k; ++experts)
        gains.push_back(static_cast<std::uint16_t>(decay / 2U / experts));
    }
    std::uint16_t decay;
    std::vector<std::uint16_t> gains;  ///< [experts] a row that matches for ever comes to `alike`
  };
  /// A sequence of the staged visit.
  struct stream {
    sequence_id sequence = 0;
    std::size_t tokens = 0;
    std::size_t remembered = 0;  ///< of its tokens, the last ones
    std::size_t last = 0;        ///< of its tokens the last one, in pending_
    std::size_t similar = 0;     ///< in similar_
    bool compared = false;       ///< its similarities are those after the staged visit
  };
  struct token {
    sequence_id sequence = 0;
    row_id row = no_row;
  };
  /// Takes in what has come after the row since it was asked about last.
  void look_ahead(std::size_t layer, row_id row) noexcept {
    std::array<const std::uint64_t*, first_uses::most_horizon> fresh;
    std::size_t count = 0;
    for (auto t = first_uses_.known(layer, row); t < later_count_[row]; ++t)
      fresh[count++] = routed_.set(layer, later_[row * first_uses_.horizon() + t]).data();
    first_uses_.add(layer, row, std::span(fresh).first(count), level_);
  }
  [[nodiscard]] bool lags(std::size_t layer, row_id row) const noexcept {
    return first_uses_.known(layer, row) < later_count_[row];
  }
  /// The row may speak of what its sequence routed: those before it know of it.
  void add_as_later(row_id row) noexcept {
    const auto horizon = first_uses_.horizon();
    auto place = before_[history_kernels::place_of(row)];
    for (std::size_t tokens = 0; tokens < horizon && place != no_row; ++tokens) {
      const auto earlier = history_kernels::row_at(place);
      if (later_count_[earlier] == tokens) {
        later_[earlier * horizon + tokens] = row;
        ++later_count_[earlier];
      }
      place = before_[place];
    }
  }
  /// Of those that follow a row no more than so many are known.
  void forget_later(std::size_t row, std::size_t tokens) noexcept {
    if (first_uses_.horizon() == 0) return;
    first_uses_.forget_beyond(row, tokens);
    later_count_[row] = std::min(later_count_[row], static_cast<std::uint8_t>(tokens));
  }

  // --- staging

  /// Before a new step, rows whose successors are of the step that ends may speak; within it they may not.
  void let_speak(bool step_has_ended) noexcept {
    if (step_has_ended == step_rows_speak_) return;
    step_rows_speak_ = step_has_ended;
    const auto as = static_cast<std::uint16_t>(step_has_ended ? 0xffff : 0);
    for (const auto row : preceding_)
      if (after_[row] != no_row) {  // not overwritten since
        followed_[history_kernels::place_of(row)] = as;
        if (step_has_ended) add_as_later(after_[row]);
      }
    for (const auto& one : step_rows_) {
      whole_[history_kernels::place_of(one.row)] = as;
      if (!step_has_ended) forget_as_later(one.row);
    }
  }
  /// Rows before this one know nothing of it any more.
  void forget_as_later(row_id row) noexcept {
    auto place = before_[history_kernels::place_of(row)];
    for (std::size_t tokens = 0; tokens < first_uses_.horizon() && place != no_row; ++tokens) {
      forget_later(history_kernels::row_at(place), tokens);
      place = before_[place];
    }
  }
  /// In a layer that the step has left out its rows still hold what was there before them. Done again it changes nothing, and
  /// a visit that comes after all writes its rows as ever.
  void clear_unseen() noexcept {
    for (const auto l : seen_.ids())
      if (seen_[l] == 0)
        for (const auto& one : step_rows_) routed_.clear(index_of(l), one.row);
  }
  /// In the order of their last tokens, the last one first; those beyond what there is room for are left out.
  void find_streams(const routing_view& view) noexcept {
    for (auto t = tokens_.tokens(view); t-- > 0;) {
      const auto sequence = sequence_of(view, t);
      std::size_t s = 0;
      while (s < stream_count_ && streams_[s].sequence != sequence) ++s;
      if (s == streams_.size()) continue;
      auto& found = streams_[s];
      if (s == stream_count_) {
        ++stream_count_;
        found.sequence = sequence;
        found.tokens = 0;
        found.compared = false;
      }
      ++found.tokens;
    }
    for (std::size_t s = 0; s < stream_count_; ++s)
      streams_[s].remembered = streams_[s].tokens == 1 ? 1 : most_remembered(streams_[s].tokens);
  }
  /// A long prompt must not push out all rows, nor those of others.
  [[nodiscard]] std::size_t most_remembered(std::size_t tokens) const noexcept {
    return std::min(tokens, std::max<std::size_t>(1, rows_ / 2 / stream_count_));
  }
  /// Copies what will be the rows: the view need not last until the visit is kept.
  void remember_tokens(const routing_view& view) noexcept {
    pending_count_ = 0;
    for (std::size_t t = 0; t < tokens_.tokens(view); ++t) {
      const auto sequence = sequence_of(view, t);
      std::size_t s = 0;
      while (s < stream_count_ && streams_[s].sequence != sequence) ++s;
      if (s == stream_count_ || streams_[s].tokens-- > streams_[s].remembered) continue;
      const auto ids = tokens_.ids_of(view, t);
      ids.copy_to(pending_ids_.data() + pending_count_ * top_k_);
      streams_[s].last = pending_count_;
      pending_[pending_count_++] = {sequence, no_row};
    }
  }

  // --- comparing

  [[nodiscard]] bool opens_step() const noexcept { return staged_step_ != step_; }
  [[nodiscard]] id_view<expert_id> pending_ids(std::size_t i) const noexcept {
    return std::span(pending_ids_).subspan(i * top_k_, top_k_);
  }
  void compare(stream& of) noexcept {
    const std::span now(similar_[of.similar]);
    move_on(staged_, pending_ids(of.last), similar_before(of, now), now);
    if (!opens_step()) clear_rows(step_rows_, now);
    of.compared = true;
  }
  void move_on(layer_id layer, id_view<expert_id> ids, std::span<const std::uint16_t> from,
               std::span<std::uint16_t> to) noexcept {
    const auto l = index_of(layer);
    routed_.bring_up_to_date(l);
    const auto count = distinct_.collect(ids, [&](std::size_t at, expert_id id) {
      planes_of_[at] = routed_.plane(l, index_of(id));
    });
    const std::span<const std::uint64_t* const> planes(planes_of_.data(), count);
    history_kernels::move_on({planes, fades_.decay, fades_.gains[count]}, from, to, level_);
  }
  /// A running step's rows still hold what was there before them in layers that it has not visited.
  static void clear_rows(const std::vector<token>& rows,
                         std::span<std::uint16_t> similar) noexcept {
    for (const auto& one : rows) similar[history_kernels::place_of(one.row)] = 0;
  }
  /// What a stream's similarities go on from; `room` is written where that stands nowhere yet. Of a sequence that nobody has asked
  /// about in its step nothing else is changed: the visit may not take place.
  [[nodiscard]] std::span<const std::uint16_t> similar_before(
      const stream& of, std::span<std::uint16_t> room) noexcept {
    const auto r = live_.find(of.sequence);
    if (r == live_sequences::none || of.remembered > 1) {
      std::fill_n(room.data(), rows_, std::uint16_t{0});
      return room;
    }
    if (!opens_step()) return asked_[r] != 0 || is_up_to_date(r) ? catch_up(r) : made_up(r, room);
    if (asked_[r] != 0) {
      pass_on(catch_up(r), room);
      return room;
    }
    pass_on_alone(log_, step_rows_, r, room);
    forget_after_next_rows(room);
    return room;
  }
  /// What was similar to a sequence's last token is what its successors are to the next one.
  void pass_on(std::span<const std::uint16_t> from, std::span<std::uint16_t> to) const noexcept {
    for (std::size_t place = 0; place < rows_; ++place)
      to[place] = before_[place] == no_row ? std::uint16_t{0} : from[before_[place]];
  }
  /// What a step's visits say by themselves, passed on.
  void pass_on_alone(const visit_log& visits, const std::vector<token>& rows_of_step, std::size_t r,
                     std::span<std::uint16_t> to) noexcept {
    const std::span alone(similar_[spare_]);
    std::fill_n(alone.data(), rows_, std::uint16_t{0});
    take_in(visits, rows_of_step, r, alone);
    pass_on(alone, to);
  }
  /// The rows that the step will take pass nothing on, for once it has begun nobody knows them.
  void forget_after_next_rows(std::span<std::uint16_t> similar) const noexcept {
    for (std::size_t i = 0; i < pending_count_; ++i)
      if (const auto after = after_[(oldest_ + i) % rows_]; after != no_row)
        similar[history_kernels::place_of(after)] = 0;
  }
  [[nodiscard]] bool is_up_to_date(std::size_t r) const noexcept {
    return anew_[r] == 0 && log_.is_empty(r);
  }
  /// A running sequence's similarities after all of its visits that took place, written to `out`.
  std::span<const std::uint16_t> made_up(std::size_t r, std::span<std::uint16_t> out) noexcept {
    if (anew_[r] == 0) {
      std::copy_n(similar_[of_live_[r]].data(), rows_, out.data());
    } else {
      pass_on_alone(earlier_, earlier_rows_, r, out);
    }
    take_in(log_, step_rows_, r, out);
    return out;
  }
  void take_in(const visit_log& visits, const std::vector<token>& rows_of_step, std::size_t r,
               std::span<std::uint16_t> similar) noexcept {
    visits.each(
        r, [&](layer_id layer, id_view<expert_id> ids) { move_on(layer, ids, similar, similar); });
    clear_rows(rows_of_step, similar);
  }
  /// The same where they stand.
  std::span<std::uint16_t> catch_up(std::size_t r) noexcept {
    const std::span similar(similar_[of_live_[r]]);
    if (is_up_to_date(r)) return similar;
    if (anew_[r] != 0)
      made_up(r, similar);
    else
      take_in(log_, step_rows_, r, similar);
    keep_up(r);
    return similar;
  }
  /// They show all visits.
  void keep_up(std::size_t r) noexcept {
    anew_[r] = 0;
    log_.clear(r);
    earlier_.clear(r);
  }
  void begin_anew(std::size_t r) noexcept {
    keep_up(r);
    anew_[r] = 1;
  }

  // --- keeping

  /// The rows that the next step takes are still what they were.
  void end_step() noexcept {
    for (std::size_t s = 0; s < stream_count_; ++s)
      if (const auto r = live_.find(streams_[s].sequence); r != live_sequences::none)
        go_on(r, streams_[s]);
    for (std::size_t r = 0; r < live_.rows(); ++r) {
      if (goes_on_[r] == 0) {
        if (asked_[r] != 0)
          catch_up(r);
        else
          begin_anew(r);
      }
      goes_on_[r] = 0;
    }
  }
  /// The sequence of a stream has a token in the next step, too.
  void go_on(std::size_t r, stream& of) noexcept {
    if (asked_[r] == 0) {
      earlier_.copy(r, log_);
      log_.clear(r);
      anew_[r] = 1;
    } else if (!of.compared) {
      pass_on(catch_up(r), similar_[of.similar]);
      std::swap(of_live_[r], of.similar);
    }
    asked_[r] = 0;
    goes_on_[r] = 1;
  }
  void begin_step() noexcept {
    std::ranges::fill(seen_, std::uint8_t{0});
    step_ = staged_step_;
    std::swap(step_rows_, earlier_rows_);
    step_rows_.clear();
    preceding_.clear();
    step_rows_speak_ = false;
    for (std::size_t i = 0; i < pending_count_; ++i) {
      const auto r = live_.enter(
          pending_[i].sequence, step_, [](std::size_t) {},
          [this](std::size_t row) {
            last_[row] = no_row;
            asked_[row] = 0;
            begin_anew(row);
          });
      const auto row = r == live_sequences::none ? no_row : append(r);
      step_rows_.push_back({pending_[i].sequence, row});
    }
    std::erase_if(step_rows_, [](const token& one) { return one.row == no_row; });
  }
  /// The oldest row becomes the last of a running sequence.
  row_id append(std::size_t r) noexcept {
    const auto row = static_cast<row_id>(oldest_);
    oldest_ = oldest_ + 1 == rows_ ? 0 : oldest_ + 1;
    retire(row);
    if (last_[r] != no_row) {
      follow(last_[r], row);
      preceding_.push_back(last_[r]);
    }
    last_[r] = row;
    return row;
  }
  void follow(row_id previous, row_id row) noexcept {
    after_[previous] = row;
    before_[history_kernels::place_of(row)] =
        static_cast<row_id>(history_kernels::place_of(previous));
  }
  /// What came before the oldest row is gone already.
  void retire(row_id row) noexcept {
    const auto place = history_kernels::place_of(row);
    HOTSET_ASSERT(before_[place] == no_row);
    if (after_[row] != no_row) before_[history_kernels::place_of(after_[row])] = no_row;
    after_[row] = no_row;
    whole_[place] = followed_[place] = 0;
    forget_later(row, 0);
    for (auto& last : last_)
      if (last == row) last = no_row;
    for (auto& all : similar_) all[place] = 0;
  }
  void keep_similarities(stream& of) noexcept {
    const auto r = live_.find(of.sequence);
    if (r == live_sequences::none) return;
    if (!of.compared) {
      if (of.remembered > 1) begin_anew(r);
      log_.add(r, staged_, pending_ids(of.last));
      return;
    }
    std::swap(of_live_[r], of.similar);
    keep_up(r);
    asked_[r] = 1;
  }
  /// The step's rows are those of its first visit's tokens: others have none.
  void write_rows() noexcept {
    std::size_t at = 0;
    for (std::size_t i = 0; i < pending_count_ && at < step_rows_.size(); ++i) {
      if (step_rows_[at].sequence != pending_[i].sequence) continue;
      routed_.write(index_of(staged_), step_rows_[at++].row, pending_ids(i));
    }
  }

  // --- saving

  void save_ids(std::size_t layer, row_id row, std::vector<expert_id>& to) const {
    const auto end = to.size() + top_k_;
    const auto bits = routed_.set(layer, row);
    for (std::size_t w = 0; w < bits.size(); ++w)
      for (auto left = bits[w]; left != 0; left &= left - 1)
        to.push_back(
            static_cast<expert_id>(w * 64 + static_cast<std::size_t>(std::countr_zero(left))));
    to.resize(end, no_expert);
  }
  void forget_all() noexcept {
    drop_stage();
    routed_.clear_all();
    first_uses_.forget_all();
    std::ranges::fill(later_count_, std::uint8_t{0});
    for (auto* rows : {&before_, &after_, &last_}) std::ranges::fill(*rows, no_row);
    std::ranges::fill(whole_, std::uint16_t{0});
    std::ranges::fill(followed_, std::uint16_t{0});
    std::ranges::fill(seen_, std::uint8_t{1});
    for (std::size_t r = 0; r < live_.rows(); ++r) {
      if (live_.is_live(r)) live_.leave(r);
      asked_[r] = 0;
      begin_anew(r);
    }
    step_ = std::numeric_limits<step_id>::max();
    step_rows_.clear();
    earlier_rows_.clear();
    preceding_.clear();
    step_rows_speak_ = false;
    oldest_ = 0;
  }

  // --- finding

  std::size_t find(std::span<const std::uint16_t> similar, rows_with need,
                   std::span<match> out) noexcept {
    const std::span<const std::uint16_t> usable(need == rows_with::successor ? followed_ : whole_);
    const auto count =
        history_kernels::candidates(similar, usable, out.size(), candidates_, level_);
    for (std::size_t i = 0; i < count; ++i) {
      const auto row = history_kernels::row_at(candidates_[i]);
      const auto age = in_ring(static_cast<std::int32_t>(row) - static_cast<std::int32_t>(oldest_));
      ranked_[i] = std::uint32_t{similar[candidates_[i]]} << 16U | age;
    }
    const auto found = std::min(count, out.size());
    const auto keys = std::span(ranked_).first(count);
    if (count <= most_ranked) {
      std::array<std::uint32_t, most_ranked> places;
      std::array<std::uint32_t, most_ranked> sorted;
      rank_kernels::rank(keys, places, level_);
      for (std::size_t i = 0; i < count; ++i) sorted[places[i]] = keys[i];
      for (std::size_t i = 0; i < found; ++i) out[i] = match_of(sorted[i]);
      return found;
    }
    std::ranges::partial_sort(keys, keys.begin() + static_cast<std::ptrdiff_t>(found),
                              std::greater<>());
    for (std::size_t i = 0; i < found; ++i) out[i] = match_of(keys[i]);
    return found;
  }
  /// Without a branch: nobody can foretell which half of the ring a row is in.
  [[nodiscard]] std::uint32_t in_ring(std::int32_t n) const noexcept {
    return static_cast<std::uint32_t>(n + ((n >> 31) & static_cast<std::int32_t>(rows_)));
  }
  [[nodiscard]] match match_of(std::uint32_t key) const noexcept {
    const auto past_end =
        static_cast<std::int32_t>((key & 0xffffU) + oldest_) - static_cast<std::int32_t>(rows_);
    return {static_cast<row_id>(in_ring(past_end)), static_cast<std::uint16_t>(key >> 16U)};
  }

  std::size_t layers_;
  std::size_t experts_;
  std::size_t top_k_;
  std::size_t rows_;
  fading fades_;
  vector_level level_ = history_kernels::level_in_use();
  view_tokens tokens_;
  unique_ids distinct_;
  live_sequences live_;
  routed_rows routed_;
  first_uses first_uses_;
  std::vector<row_id> later_;              ///< [row, horizon] the rows that follow it
  std::vector<std::uint8_t> later_count_;  ///< [row] of them that there are and may speak
  std::vector<row_id> lagging_;            ///< scratch
  std::vector<row_id> before_;             ///< [place] of the row before in the sequence, its place
  std::vector<row_id> after_;              ///< [row] the next one in the sequence
  aligned_vector<std::uint16_t> whole_;    ///< [place] 0xffff: its step has ended
  aligned_vector<std::uint16_t> followed_;  ///< [place] 0xffff: its successor's step has ended
  per_layer<std::uint8_t> seen_;            ///< [layer] 1: visited in this step
  std::vector<row_id> last_;                ///< [running sequence] its last row
  visit_log log_;                           ///< of the running sequences
  visit_log earlier_;                       ///< of the step before, while anew_
  std::vector<std::uint8_t> asked_;         ///< [running sequence] 1: about, since its step began
  std::vector<std::uint8_t> anew_;          ///< [running sequence] 1: before the logs all are 0
  std::vector<std::uint8_t> goes_on_;       ///< [running sequence] 1: into the next step, scratch
  std::vector<std::uint16_t> candidates_;
  std::vector<std::uint32_t> ranked_;
  std::vector<const std::uint64_t*> planes_of_;
  /// [running sequences, streams, spare][place]
  std::vector<aligned_vector<std::uint16_t>> similar_;
  std::size_t spare_ = 0;             ///< in similar_
  std::vector<std::size_t> of_live_;  ///< [running sequence] in similar_
  std::size_t oldest_ = 0;            ///< the next row to be written
  step_id step_ = std::numeric_limits<step_id>::max();
  std::vector<token> step_rows_;     ///< of this step
  std::vector<token> earlier_rows_;  ///< of the one before
  std::vector<row_id> preceding_;    ///< rows whose successors are of this step
  bool step_rows_speak_ = false;     ///< as if it had ended
  // What is staged.
  layer_id staged_ = layer_id{-1};
  step_id staged_step_ = 0;
  std::vector<stream> streams_;
  std::size_t stream_count_ = 0;
  std::size_t most_pending_ = 0;
  std::size_t pending_count_ = 0;
  std::vector<token> pending_;
  std::vector<expert_id> pending_ids_;  ///< [pending, top_k]
};

}  // namespace hotset
