// SPDX-License-Identifier: Apache-2.0
#include "src/host/reports/host_metrics.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/byte_budget.h"
#include "src/host/reports/metrics_view.h"
#include "src/host/reports/metrics_writer.h"
#include "src/host/reports/tfserving_metrics.h"
#include "src/host/request_log/request_log.h"
#include "src/host/requests/shadow_lane.h"

namespace processor {
namespace {

constexpr double kSeconds = 1e-9;

// Writes the metrics of this library.
class MetricsText {
 public:
  MetricsText(const MetricsView& view, MetricsWriter* writer) : view_(view), writer_(*writer) {}

  void Write() {
    WriteRequests();
    WriteLatencies();
    WriteChoices();
    WriteShadows();
    WriteLogs();
    WriteStates();
    WriteLive();
    WriteTiers();
  }

 private:
  using Counted = MetricsView::Counted;
  using OfProtocol = MetricsView::OfProtocol;

  void WriteRequests() {
    writer_.Metric("recprocessor_requests_total", "counter", "Requests that ended, by the name of their status.");
    view_.ForEachProtocol([&](const Counted& version, const std::string& protocol, const OfProtocol& stats) {
      for (int code = 0; code < kStatusCodes; ++code) {
        uint64_t count = 0;
        for (const MethodStats* method : stats) count += method->outcomes.at(code);
        if (count == 0) continue;
        MetricLabels labels = version.With("protocol", protocol);
        labels.emplace_back("outcome", CodeName(code));
        writer_.Count(labels, count);
      }
    });
    const std::vector<std::string>& protocols = Protocols();
    for (int place = 0; place <= kMaxProtocols; ++place) {
      const bool known = static_cast<size_t>(place) < protocols.size();
      for (int code = 0; code < kStatusCodes; ++code) {
        const uint64_t count = view_.stats().unrouted(place).at(code);
        if (count == 0) continue;
        writer_.Count({{"model", ""},
                       {"version", ""},
                       {"protocol", known ? protocols[static_cast<size_t>(place)] : ""},
                       {"outcome", CodeName(code)}},
                      count);
      }
    }
  }

  void WriteLatencies() {
    writer_.Metric("recprocessor_request_duration_seconds", "histogram", "Time from admission to the response.");
    view_.ForEachProtocol([&](const Counted& version, const std::string& protocol, const OfProtocol& stats) {
      Histogram::Cumulative all;
      for (const MethodStats* method : stats) AddTo(method->duration.Below(DurationBounds()), &all);
      writer_.Distribution(version.With("protocol", protocol), all, DurationBounds(), kSeconds);
    });
    writer_.Metric("recprocessor_queue_duration_seconds", "histogram", "Time of waiting for a session.");
    for (const Counted& version : view_.counted())
      writer_.Durations(version.Labels(), version.stats->queue(), kSeconds);
    writer_.Metric("recprocessor_run_duration_seconds", "histogram", "Time in TensorFlow.");
    for (const Counted& version : view_.counted()) writer_.Durations(version.Labels(), version.stats->run(), kSeconds);
  }

  void WriteChoices() {
    writer_.Metric("recprocessor_arm_requests_total", "counter",
                   "Requests, by the reason for the choice of their version.");
    for (const Counted& version : view_.counted()) {
      for (int reason = 0; reason < kChoiceReasons; ++reason) {
        if (version.stats->chosen(reason) == 0) continue;
        writer_.Count({{"model", *version.model},
                       {"arm", ChoiceName(static_cast<ChoiceReason>(reason))},
                       {"version", version.version}},
                      version.stats->chosen(reason));
      }
    }
    writer_.Metric("recprocessor_scores_total", "counter", "Numbers in the first float output of responses, by kind.");
    for (const Counted& version : view_.counted()) {
      const ScoreCounts& scores = version.stats->scores();
      if (scores.answers() == 0) continue;
      const uint64_t nan = scores.nan(), infinite = scores.infinite();
      const uint64_t finite = std::max(scores.scores(), nan + infinite) - nan - infinite;
      writer_.Count(version.With("kind", "finite"), finite);
      writer_.Count(version.With("kind", "nan"), nan);
      writer_.Count(version.With("kind", "infinite"), infinite);
    }
    writer_.Metric("recprocessor_shed_total", "counter", "Requests that were refused at admission.");
    for (const Counted& version : view_.counted()) {
      for (int reason = 0; reason < kShedReasons; ++reason) {
        if (version.stats->shed(reason) == 0) continue;
        writer_.Count(version.With("reason", ShedName(static_cast<ShedReason>(reason))), version.stats->shed(reason));
      }
    }
    if (view_.stats().draining() > 0) {
      writer_.Count({{"model", ""}, {"version", ""}, {"reason", ShedName(ShedReason::kDraining)}},
                    view_.stats().draining());
    }
  }

  void WriteShadows() {
    writer_.Metric("recprocessor_shadow_total", "counter", "Mirrored requests, by outcome.");
    for (const auto& model : view_.table().models()) {
      for (const ShadowRoute& shadow : model->shadows) {
        const auto count = [&](const char* outcome, uint64_t value) {
          writer_.Count({{"model", model->name}, {"version", absl::StrCat(shadow.version)}, {"outcome", outcome}},
                        value);
        };
        count("compared", shadow.lane->compared());
        count("dropped", shadow.lane->dropped());
        count("failed", shadow.lane->failed());
      }
    }
  }

  void WriteLogs() {
    writer_.Metric("recprocessor_request_log_total", "counter", "Sampled requests for the request log, by outcome.");
    for (const auto& model : view_.table().models()) {
      if (model->log == nullptr) continue;
      const auto count = [&](const char* outcome, uint64_t value) {
        writer_.Count({{"model", model->name}, {"outcome", outcome}}, value);
      };
      count("written", model->log->written());
      count("dropped", model->log->dropped());
      count("unsupported", model->log->unsupported());
    }
  }

  void WriteStates() {
    using Value = std::function<double(const ActualVersion&)>;
    const auto gauge = [&](std::string_view name, std::string_view help, const Value& value) {
      writer_.Metric(name, "gauge", help);
      view_.ForEachActual(
          [&](const MetricLabels& labels, const ActualVersion& version) { writer_.Sample(labels, value(version)); });
    };
    writer_.Metric("recprocessor_model_state", "gauge", "1 for the state that a version is in.");
    view_.ForEachActual([&](MetricLabels labels, const ActualVersion& version) {
      labels.emplace_back("state", VersionStateName(StateNow(version)));
      writer_.Sample(labels, 1);
    });
    gauge("recprocessor_model_memory_bytes", "Estimated memory of a version.",
          [](const ActualVersion& version) { return static_cast<double>(version.memory_bytes); });
    gauge("recprocessor_in_flight", "Requests that wait or run.", [](const ActualVersion& version) {
      return version.load == nullptr ? 0.0 : static_cast<double>(version.load->in_flight.load());
    });
    writer_.Metric("recprocessor_queued", "gauge", "Requests that wait for a session.");
    view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      writer_.Sample(labels, static_cast<double>(version.queued()));
    });
    writer_.Metric("recprocessor_batch_rows", "histogram", "Rows of a run of a version with batching.");
    view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      writer_.Sizes(labels, version.model().batch_stats().rows);
    });
    writer_.Metric("recprocessor_batch_requests", "histogram", "Requests of a run of a version with batching.");
    view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      writer_.Sizes(labels, version.model().batch_stats().requests);
    });
    WriteBatchChecks();
    WriteRequestBytes();
    writer_.Metric("recprocessor_host_generation", "gauge", "The applied generation.");
    writer_.Sample({}, static_cast<double>(view_.actual().generation));
  }

  void WriteBatchChecks() {
    writer_.Metric("recprocessor_batch_checks_total", "counter",
                   "Batches of which one request was also run alone, to compare the outputs.");
    view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      if (const auto loaded = version.model().version(); loaded != nullptr) {
        writer_.Count(labels, loaded->output_rows.checks());
      }
    });
    writer_.Metric("recprocessor_batch_differs", "gauge",
                   "1 if a check has shown that rows depend on other rows; then requests run alone.");
    view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      if (const auto loaded = version.model().version(); loaded != nullptr) {
        writer_.Sample(labels, loaded->output_rows.differed() ? 1 : 0);
      }
    });
  }

  // Metrics of versions that follow timelines.
  void WriteLive() {
    using Value = std::function<std::optional<double>(const FollowState&)>;
    const auto write = [&](std::string_view name, std::string_view type, std::string_view help, const Value& value) {
      bool first = true;
      view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
        const std::optional<FollowState> live = version.model().following();
        const std::optional<double> found = live.has_value() ? value(*live) : std::nullopt;
        if (!found.has_value()) return;
        if (std::exchange(first, false)) writer_.Metric(name, type, help);
        writer_.Sample(labels, *found);
      });
    };
    write("recprocessor_live_epoch", "gauge", "The epoch of its timeline that a version serves.",
          [](const FollowState& state) { return static_cast<double>(state.live.served.epoch); });
    write("recprocessor_live_held", "gauge", "1 if a rollback holds a version at its epoch.",
          [](const FollowState& state) { return state.live.held ? 1.0 : 0.0; });
    write("recprocessor_live_age_seconds", "gauge", "Time since the newest sample that the served epoch knows of.",
          [](const FollowState& state) {
            if (state.live.served.knows_us() == 0) return std::optional<double>();
            return std::optional<double>(
                static_cast<double>(std::max<int64_t>(UnixUs() - state.live.served.knows_us(), 0)) / 1e6);
          });
    write("recprocessor_live_rows_total", "counter", "Rows that were changed or deleted.",
          [](const FollowState& state) { return static_cast<double>(state.live.applied_rows); });
    write("recprocessor_live_overlay_bytes", "gauge", "Memory of changed rows.",
          [](const FollowState& state) { return static_cast<double>(state.live.overlay_bytes); });
    write("recprocessor_live_refused_total", "counter", "Segments of deltas, and timelines, that were refused.",
          [](const FollowState& state) { return static_cast<double>(state.refused); });
    const auto of_precision = [](const FollowState& state, auto&& value) {
      return state.precision.has_value() ? std::optional<double>(value(*state.precision)) : std::nullopt;
    };
    write("recprocessor_live_precision_checks_total", "counter",
          "Checks of the precision of a version with recorded requests.", [&](const FollowState& state) {
            return of_precision(state, [](const PrecisionState& found) { return static_cast<double>(found.checks); });
          });
    write("recprocessor_live_precision_fell_back", "gauge",
          "1 if a check has failed, so that a version computes in more precise arithmetic than it was deployed with.",
          [&](const FollowState& state) {
            return of_precision(state, [](const PrecisionState& found) { return found.fell_back ? 1.0 : 0.0; });
          });
  }

  // Metrics of versions with tiered or resident tables.
  void WriteTiers() {
    WriteTiered();
    const auto write = [&](std::string_view name, std::string_view help, auto&& value) {
      WriteTables(name, "gauge", help, true, [&](const TierState& state) { return value(*state.resident); });
    };
    write("recprocessor_table_bytes", "Memory of resident tables.",
          [](const TierState::Resident& state) { return state.bytes; });
    write("recprocessor_table_huge_bytes", "Memory of resident tables in huge pages.",
          [](const TierState::Resident& state) { return state.huge_bytes; });
    write("recprocessor_table_received_bytes", "Memory of resident tables that another process has filled.",
          [](const TierState::Resident& state) { return state.received_bytes; });
  }

  // Writes a metric of the versions whose tables are resident, or tiered.
  template <typename Value>
  void WriteTables(std::string_view name, std::string_view type, std::string_view help, bool resident, Value&& value) {
    bool first = true;
    view_.ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      const auto loaded = version.model().version();
      const std::optional<TierState> tiers = loaded == nullptr ? std::nullopt : loaded->tiers();
      if (!tiers.has_value() || tiers->resident.has_value() != resident) return;
      if (std::exchange(first, false)) writer_.Metric(name, type, help);
      writer_.Sample(labels, static_cast<double>(value(*tiers)));
    });
  }

  void WriteTiered() {
    const auto write = [&](std::string_view name, std::string_view type, std::string_view help, auto&& value) {
      WriteTables(name, type, help, false, value);
    };
    write("recprocessor_table_warming", "gauge", "1 while blocks of tiered tables have not been checked.",
          [](const TierState& state) { return state.rows.warming(); });
    write("recprocessor_table_index_bytes", "gauge", "Memory of the indexes of tiered tables.",
          [](const TierState& state) { return state.index_bytes; });
    write("recprocessor_table_cache_bytes", "gauge", "Memory of the caches of tiered tables when they are full.",
          [](const TierState& state) { return state.rows.cache_bytes; });
    write("recprocessor_table_cached_rows", "gauge", "Rows in the caches of tiered tables.",
          [](const TierState& state) { return state.rows.cached_rows; });
    write("recprocessor_table_lookups_total", "counter", "Rows of tiered tables that requests needed.",
          [](const TierState& state) { return state.rows.lookups; });
    write("recprocessor_table_hits_total", "counter", "Rows of these that were in a cache.",
          [](const TierState& state) { return state.rows.hits; });
    write("recprocessor_table_reads_total", "counter", "Reads of the files of tiered tables.",
          [](const TierState& state) { return state.rows.reads; });
    write("recprocessor_table_read_bytes_total", "counter", "Bytes of these reads.",
          [](const TierState& state) { return state.rows.read_bytes; });
    write("recprocessor_table_bad_blocks_total", "counter", "Blocks of tiered tables that were read and are damaged.",
          [](const TierState& state) { return state.rows.bad_blocks; });
  }

  // Metrics of the whole process.
  void WriteRequestBytes() {
    const ByteBudget& budget = ByteBudget::Requests();
    writer_.Metric("recprocessor_request_bytes", "gauge", "Memory of requests in flight, by use.");
    ForEachUse([&](const MetricLabels& labels, ByteBudget::Use use) {
      writer_.Sample(labels, static_cast<double>(budget.in_use(use)));
    });
    writer_.Metric("recprocessor_request_bytes_limit", "gauge", "Limit of the memory of requests in flight.");
    writer_.Sample({}, static_cast<double>(budget.limit()));
    writer_.Metric("recprocessor_request_bytes_peak", "gauge", "Peak of the memory of requests in flight.");
    writer_.Sample({}, static_cast<double>(budget.peak()));
    writer_.Metric("recprocessor_request_bytes_refused_total", "counter",
                   "Refused claims of memory for requests, by use.");
    ForEachUse([&](const MetricLabels& labels, ByteBudget::Use use) { writer_.Count(labels, budget.refused(use)); });
  }

  static void ForEachUse(const std::function<void(const MetricLabels&, ByteBudget::Use)>& visit) {
    for (int i = 0; i < ByteBudget::kUses; ++i) {
      const auto use = static_cast<ByteBudget::Use>(i);
      visit({{"use", ByteBudget::UseName(use)}}, use);
    }
  }

  const MetricsView& view_;
  MetricsWriter& writer_;
};

}  // namespace

std::string CodeName(int code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

std::string HostMetricsText(const ActualState& actual, const RouteTable& table, const HostStats& stats) {
  const MetricsView view(actual, table, stats);
  MetricsWriter writer;
  MetricsText(view, &writer).Write();
  WriteTfServingMetrics(view, &writer);
  return writer.Take();
}

}  // namespace processor
