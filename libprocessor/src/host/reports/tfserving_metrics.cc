// SPDX-License-Identifier: Apache-2.0
#include "src/host/reports/tfserving_metrics.h"

#include <map>
#include <string>
#include <utility>

#include "src/host/reports/host_metrics.h"

namespace processor {
namespace {

constexpr double kToMicroseconds = 1e-3;

// Returns the kind of run of a method, which is the same in all protocols.
std::string_view RunKindOf(const Method& method) {
  if (method.name == "Classify" || method.name == "classify") return "Classify";
  if (method.name == "Regress" || method.name == "regress") return "Regress";
  return method.name == "MultiInference" ? "MultiInference" : "Predict";
}

MetricLabels AliasLabels(const MetricsView::Counted& version, const Method& method) {
  const bool is_rest = IsJson(method.protocol) || method.protocol == "eas";
  return {{"model_name", *version.model},
          {"version", version.version},
          {"API", std::string(method.protocol == "eas" ? method.protocol : method.name)},
          {"entrypoint", is_rest ? "REST" : "GRPC"}};
}

}  // namespace

void WriteTfServingMetrics(const MetricsView& view, MetricsWriter* writer) {
  writer->Metric(":tensorflow:serving:request_count", "counter", "Requests that ended.");
  view.ForEachMethod([&](const MetricsView::Counted& version, const Method& method, const MethodStats& stats) {
    for (int code = 0; code < kStatusCodes; ++code) {
      if (stats.outcomes.at(code) == 0) continue;
      MetricLabels labels = AliasLabels(version, method);
      labels.emplace_back("status", CodeName(code));
      writer->Count(labels, stats.outcomes.at(code));
    }
  });
  writer->Metric(":tensorflow:serving:request_latency", "histogram",
                 "Time from admission to the response, in microseconds.");
  view.ForEachMethod([&](const MetricsView::Counted& version, const Method& method, const MethodStats& stats) {
    writer->Durations(AliasLabels(version, method), stats.duration, kToMicroseconds);
  });
  writer->Metric(":tensorflow:serving:runtime_latency", "histogram", "Time in TensorFlow, in microseconds.");
  std::map<std::pair<const MetricsView::Counted*, std::string_view>, Histogram::Cumulative> runs;
  view.ForEachMethod([&](const MetricsView::Counted& version, const Method& method, const MethodStats& stats) {
    AddTo(stats.run.Below(DurationBounds()), &runs[{&version, RunKindOf(method)}]);
  });
  for (const auto& [key, values] : runs) {
    const MetricsView::Counted& version = *key.first;
    const std::string kind(key.second);
    writer->Distribution(
        {{"model_name", *version.model}, {"version", version.version}, {"API", kind}, {"runtime", "TF1"}}, values,
        DurationBounds(), kToMicroseconds);
  }
  writer->Metric(":tensorflow:serving:model_warmup_latency", "gauge", "Time of loading and warm-up, in microseconds.");
  view.ForEachActual([&](const MetricLabels& labels, const ActualVersion& version) {
    if (version.load_ms == 0) return;
    writer->Sample({{"model_path", version.path}, {"status", "OK"}, labels[1]}, version.load_ms * 1e3);
  });
  writer->Metric(":tensorflow:core:graph_runs", "counter", "Requests that were run.");
  for (const MetricsView::Counted& version : view.counted()) {
    writer->Count({{"model_name", *version.model}, {"version", version.version}},
                  version.stats->run().Below({}).counts.back());
  }
}

}  // namespace processor
