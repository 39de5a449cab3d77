// SPDX-License-Identifier: Apache-2.0
#include "src/host/reports/host_metrics.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/byte_budget.h"
#include "src/codec/codec.h"
#include "src/host/reports/metrics_writer.h"
#include "src/host/request_log/request_log.h"
#include "src/host/requests/shadow_lane.h"

namespace processor {
namespace {

constexpr double kSeconds = 1e-9, kMicroseconds = 1e-3;

// One version and its counters.
struct Counted {
  const std::string* model;
  std::string version;
  const VersionStats* stats;

  MetricLabels Labels() const { return {{"model", *model}, {"version", version}}; }
  MetricLabels With(std::string_view name, std::string value) const {
    MetricLabels labels = Labels();
    labels.emplace_back(name, std::move(value));
    return labels;
  }
};

class MetricsText {
 public:
  MetricsText(const ActualState& actual, const RouteTable& table, const HostStats& stats)
      : actual_(actual), table_(table), stats_(stats), kept_(stats.versions()) {
    for (const auto& [key, version] : kept_) counted_.push_back({&key.first, absl::StrCat(key.second), version.get()});
  }

  std::string Write() {
    WriteRequests();
    WriteLatencies();
    WriteChoices();
    WriteShadows();
    WriteLogs();
    WriteStates();
    WriteAliases();
    return writer_.Take();
  }

 private:
  // Adds values with the same bounds.
  static void AddTo(const Histogram::Cumulative& values, Histogram::Cumulative* sum) {
    sum->counts.resize(values.counts.size());
    for (size_t i = 0; i < values.counts.size(); ++i) sum->counts[i] += values.counts[i];
    sum->sum += values.sum;
  }

  using OfProtocol = std::vector<const MethodStats*>;

  void ForEachProtocol(const std::function<void(const Counted&, const std::string&, const OfProtocol&)>& visit) {
    const std::vector<std::string>& protocols = Protocols();
    for (const Counted& version : counted_) {
      for (size_t i = 0; i < protocols.size(); ++i) {
        const OfProtocol stats = version.stats->protocol(static_cast<int>(i));
        if (!stats.empty()) visit(version, protocols[i], stats);
      }
    }
  }

  void ForEachMethod(const std::function<void(const Counted&, const Method&, const MethodStats&)>& visit) {
    for (const Counted& version : counted_) {
      for (size_t i = 0; i < Methods().size(); ++i) {
        const MethodStats* const stats = version.stats->method(static_cast<int>(i));
        if (stats != nullptr) visit(version, Methods()[i], *stats);
      }
    }
  }

  void WriteRequests() {
    writer_.Metric("recprocessor_requests_total", "counter", "Requests that ended, by the name of their status.");
    ForEachProtocol([&](const Counted& version, const std::string& protocol, const OfProtocol& stats) {
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
        const uint64_t count = stats_.unrouted(place).at(code);
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
    writer_.Metric("recprocessor_request_duration_seconds", "histogram", "From admission to the answer.");
    ForEachProtocol([&](const Counted& version, const std::string& protocol, const OfProtocol& stats) {
      Histogram::Cumulative all;
      for (const MethodStats* method : stats) AddTo(method->duration.Below(DurationBounds()), &all);
      writer_.Distribution(version.With("protocol", protocol), all, DurationBounds(), kSeconds);
    });
    writer_.Metric("recprocessor_queue_duration_seconds", "histogram", "Waiting for a session.");
    for (const Counted& version : counted_) Durations(version.Labels(), version.stats->queue(), kSeconds);
    writer_.Metric("recprocessor_run_duration_seconds", "histogram", "Inside TensorFlow.");
    for (const Counted& version : counted_) Durations(version.Labels(), version.stats->run(), kSeconds);
  }

  void WriteChoices() {
    writer_.Metric("recprocessor_arm_requests_total", "counter", "Requests by why their version was chosen.");
    for (const Counted& version : counted_) {
      for (int reason = 0; reason < kChoiceReasons; ++reason) {
        if (version.stats->chosen(reason) == 0) continue;
        writer_.Count({{"model", *version.model},
                       {"arm", ChoiceName(static_cast<ChoiceReason>(reason))},
                       {"version", version.version}},
                      version.stats->chosen(reason));
      }
    }
    writer_.Metric("recprocessor_scores_total", "counter", "Numbers in the first float output of answers.");
    for (const Counted& version : counted_) {
      const ScoreCounts& scores = version.stats->scores();
      if (scores.answers() == 0) continue;
      const uint64_t nan = scores.nan(), infinite = scores.infinite();
      const uint64_t finite = std::max(scores.scores(), nan + infinite) - nan - infinite;
      writer_.Count(version.With("kind", "finite"), finite);
      writer_.Count(version.With("kind", "nan"), nan);
      writer_.Count(version.With("kind", "infinite"), infinite);
    }
    writer_.Metric("recprocessor_shed_total", "counter", "Requests that were refused at admission.");
    for (const Counted& version : counted_) {
      for (int reason = 0; reason < kShedReasons; ++reason) {
        if (version.stats->shed(reason) == 0) continue;
        writer_.Count(version.With("reason", ShedName(static_cast<ShedReason>(reason))), version.stats->shed(reason));
      }
    }
    if (stats_.draining() > 0) {
      writer_.Count({{"model", ""}, {"version", ""}, {"reason", ShedName(ShedReason::kDraining)}}, stats_.draining());
    }
  }

  void WriteShadows() {
    writer_.Metric("recprocessor_shadow_total", "counter", "Copies of requests for shadow versions.");
    for (const auto& model : table_.models()) {
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
    writer_.Metric("recprocessor_request_log_total", "counter", "Sampled requests that were to be written down.");
    for (const auto& model : table_.models()) {
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
      ForEachActual(
          [&](const MetricLabels& labels, const ActualVersion& version) { writer_.Sample(labels, value(version)); });
    };
    writer_.Metric("recprocessor_model_state", "gauge", "1 for the state that a version is in.");
    ForEachActual([&](MetricLabels labels, const ActualVersion& version) {
      labels.emplace_back("state", VersionStateName(StateNow(version)));
      writer_.Sample(labels, 1);
    });
    gauge("recprocessor_model_memory_bytes", "Estimate of what a version takes.",
          [](const ActualVersion& version) { return static_cast<double>(version.memory_bytes); });
    gauge("recprocessor_in_flight", "Requests that wait or run.", [](const ActualVersion& version) {
      return version.load == nullptr ? 0.0 : static_cast<double>(version.load->in_flight.load());
    });
    writer_.Metric("recprocessor_queued", "gauge", "Requests that wait for a session.");
    ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      writer_.Sample(labels, static_cast<double>(version.queued()));
    });
    writer_.Metric("recprocessor_batch_rows", "histogram", "Rows of a run, of versions that put requests together.");
    ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      writer_.Sizes(labels, version.model().batch_stats().rows);
    });
    writer_.Metric("recprocessor_batch_requests", "histogram", "Requests of such a run.");
    ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      writer_.Sizes(labels, version.model().batch_stats().requests);
    });
    WriteBatchChecks();
    WriteRequestBytes();
    writer_.Metric("recprocessor_host_generation", "gauge", "The applied generation.");
    writer_.Sample({}, static_cast<double>(actual_.generation));
  }

  void WriteBatchChecks() {
    writer_.Metric("recprocessor_batch_checks_total", "counter",
                   "Runs of several requests of which one was run alone as well, and compared.");
    ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      if (const auto loaded = version.model().version(); loaded != nullptr) {
        writer_.Count(labels, loaded->output_rows.checks());
      }
    });
    writer_.Metric("recprocessor_batch_differs", "gauge",
                   "1 where a check has shown that rows depend on others: requests run alone.");
    ForEachLoaded([&](const MetricLabels& labels, const HostedVersion& version) {
      if (const auto loaded = version.model().version(); loaded != nullptr) {
        writer_.Sample(labels, loaded->output_rows.differed() ? 1 : 0);
      }
    });
  }

  // Metrics of the whole process.
  void WriteRequestBytes() {
    const ByteBudget& budget = ByteBudget::Requests();
    writer_.Metric("recprocessor_request_bytes", "gauge", "Memory that requests in flight hold, by what for.");
    ForEachUse([&](const MetricLabels& labels, ByteBudget::Use use) {
      writer_.Sample(labels, static_cast<double>(budget.in_use(use)));
    });
    writer_.Metric("recprocessor_request_bytes_limit", "gauge", "Memory that requests in flight may hold together.");
    writer_.Sample({}, static_cast<double>(budget.limit()));
    writer_.Metric("recprocessor_request_bytes_peak", "gauge", "The most that they have held.");
    writer_.Sample({}, static_cast<double>(budget.peak()));
    writer_.Metric("recprocessor_request_bytes_refused_total", "counter", "Claims that found no room, by what for.");
    ForEachUse([&](const MetricLabels& labels, ByteBudget::Use use) { writer_.Count(labels, budget.refused(use)); });
  }

  static void ForEachUse(const std::function<void(const MetricLabels&, ByteBudget::Use)>& visit) {
    for (int i = 0; i < ByteBudget::kUses; ++i) {
      const auto use = static_cast<ByteBudget::Use>(i);
      visit({{"use", ByteBudget::UseName(use)}}, use);
    }
  }

  // The metrics of TensorFlow Serving, for its dashboards, with the version as an additional label. Histograms are in
  // microseconds. Methods of the REST API have their names in URLs, those of gRPC their own.
  void WriteAliases() {
    writer_.Metric(":tensorflow:serving:request_count", "counter", "Requests that ended.");
    ForEachMethod([&](const Counted& version, const Method& method, const MethodStats& stats) {
      for (int code = 0; code < kStatusCodes; ++code) {
        if (stats.outcomes.at(code) == 0) continue;
        MetricLabels labels = AliasLabels(version, method);
        labels.emplace_back("status", CodeName(code));
        writer_.Count(labels, stats.outcomes.at(code));
      }
    });
    writer_.Metric(":tensorflow:serving:request_latency", "histogram", "From admission to the answer, microseconds.");
    ForEachMethod([&](const Counted& version, const Method& method, const MethodStats& stats) {
      Durations(AliasLabels(version, method), stats.duration, kMicroseconds);
    });
    writer_.Metric(":tensorflow:serving:runtime_latency", "histogram", "Inside TensorFlow, microseconds.");
    std::map<std::pair<const Counted*, std::string_view>, Histogram::Cumulative> runs;
    ForEachMethod([&](const Counted& version, const Method& method, const MethodStats& stats) {
      AddTo(stats.run.Below(DurationBounds()), &runs[{&version, KindOf(method)}]);
    });
    for (const auto& [key, values] : runs) {
      const Counted& version = *key.first;
      const std::string kind(key.second);
      writer_.Distribution(
          {{"model_name", *version.model}, {"version", version.version}, {"API", kind}, {"runtime", "TF1"}}, values,
          DurationBounds(), kMicroseconds);
    }
    writer_.Metric(":tensorflow:serving:model_warmup_latency", "gauge", "Loading and warming up, microseconds.");
    ForEachActual([&](const MetricLabels& labels, const ActualVersion& version) {
      if (version.load_ms == 0) return;
      writer_.Sample({{"model_path", version.path}, {"status", "OK"}, labels[1]}, version.load_ms * 1e3);
    });
    writer_.Metric(":tensorflow:core:graph_runs", "counter", "Requests that were run.");
    for (const Counted& version : counted_) {
      writer_.Count({{"model_name", *version.model}, {"version", version.version}},
                    version.stats->run().Below({}).counts.back());
    }
  }

  // The kind of run, whatever the protocol.
  static std::string_view KindOf(const Method& method) {
    if (method.name == "Classify" || method.name == "classify") return "Classify";
    if (method.name == "Regress" || method.name == "regress") return "Regress";
    return method.name == "MultiInference" ? "MultiInference" : "Predict";
  }

  static MetricLabels AliasLabels(const Counted& version, const Method& method) {
    const bool is_rest = IsJson(method.protocol) || method.protocol == "eas";
    return {{"model_name", *version.model},
            {"version", version.version},
            {"API", std::string(method.protocol == "eas" ? method.protocol : method.name)},
            {"entrypoint", is_rest ? "REST" : "GRPC"}};
  }

  void Durations(const MetricLabels& labels, const Histogram& histogram, double scale) {
    writer_.Distribution(labels, histogram.Below(DurationBounds()), DurationBounds(), scale);
  }

  void ForEachLoaded(const std::function<void(const MetricLabels&, const HostedVersion&)>& visit) {
    for (const auto& model : table_.models()) {
      for (const auto& [number, route] : model->versions) {
        if (route.servable == nullptr) continue;
        visit({{"model", model->name}, {"version", absl::StrCat(number)}}, *route.servable->version);
      }
    }
  }

  void ForEachActual(const std::function<void(const MetricLabels&, const ActualVersion&)>& visit) {
    for (const auto& [model, versions] : actual_.models) {
      for (const auto& [number, entry] : versions) {
        visit({{"model", model}, {"version", absl::StrCat(number)}}, entry.version);
      }
    }
  }

  const ActualState& actual_;
  const RouteTable& table_;
  const HostStats& stats_;
  const std::map<HostStats::Key, std::shared_ptr<const VersionStats>> kept_;
  std::vector<Counted> counted_;
  MetricsWriter writer_;
};

}  // namespace

const std::vector<int64_t>& DurationBounds() {
  static const auto* const bounds = [] {
    auto* const all = new std::vector<int64_t>;
    for (int64_t decade = 10000; decade < int64_t{10} * 1000000000; decade *= 10) {
      for (const int64_t tenths : {10, 25, 50}) all->push_back(decade / 10 * tenths);
    }
    all->push_back(int64_t{10} * 1000000000);
    return all;
  }();
  return *bounds;
}

std::string CodeName(int code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

std::string HostMetricsText(const ActualState& actual, const RouteTable& table, const HostStats& stats) {
  return MetricsText(actual, table, stats).Write();
}

}  // namespace processor
