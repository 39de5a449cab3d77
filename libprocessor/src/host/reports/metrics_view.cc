// SPDX-License-Identifier: Apache-2.0
#include "src/host/reports/metrics_view.h"

#include "absl/strings/str_cat.h"

namespace processor {

MetricsView::MetricsView(const ActualState& actual, const RouteTable& table, const HostStats& stats)
    : actual_(actual), table_(table), stats_(stats), kept_(stats.versions()) {
  for (const auto& [key, version] : kept_) counted_.push_back({&key.first, absl::StrCat(key.second), version.get()});
}

void MetricsView::ForEachProtocol(
    const std::function<void(const Counted&, const std::string&, const OfProtocol&)>& visit) const {
  const std::vector<std::string>& protocols = Protocols();
  for (const Counted& version : counted_) {
    for (size_t i = 0; i < protocols.size(); ++i) {
      const OfProtocol stats = version.stats->protocol(static_cast<int>(i));
      if (!stats.empty()) visit(version, protocols[i], stats);
    }
  }
}

void MetricsView::ForEachMethod(
    const std::function<void(const Counted&, const Method&, const MethodStats&)>& visit) const {
  for (const Counted& version : counted_) {
    for (size_t i = 0; i < Methods().size(); ++i) {
      const MethodStats* const stats = version.stats->method(static_cast<int>(i));
      if (stats != nullptr) visit(version, Methods()[i], *stats);
    }
  }
}

void MetricsView::ForEachLoaded(const std::function<void(const MetricLabels&, const HostedVersion&)>& visit) const {
  for (const auto& model : table_.models()) {
    for (const auto& [number, route] : model->versions) {
      if (route.servable == nullptr) continue;
      visit({{"model", model->name}, {"version", absl::StrCat(number)}}, *route.servable->version);
    }
  }
}

void MetricsView::ForEachActual(const std::function<void(const MetricLabels&, const ActualVersion&)>& visit) const {
  for (const auto& [model, versions] : actual_.models) {
    for (const auto& [number, entry] : versions) {
      visit({{"model", model}, {"version", absl::StrCat(number)}}, entry.version);
    }
  }
}

void AddTo(const Histogram::Cumulative& values, Histogram::Cumulative* sum) {
  sum->counts.resize(values.counts.size());
  for (size_t i = 0; i < values.counts.size(); ++i) sum->counts[i] += values.counts[i];
  sum->sum += values.sum;
}

}  // namespace processor
