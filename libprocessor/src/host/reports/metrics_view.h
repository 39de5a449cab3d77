// SPDX-License-Identifier: Apache-2.0
// The input of a host's metrics: its actual state, its route table and its counters, at one moment. The writer of the
// metrics owns the view and uses it on one thread; the objects that it shows outlive it.
#ifndef PROCESSOR_HOST_REPORTS_METRICS_VIEW_H_
#define PROCESSOR_HOST_REPORTS_METRICS_VIEW_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/codec/protocols.h"
#include "src/host/reports/actual_state.h"
#include "src/host/reports/metrics_writer.h"
#include "src/host/requests/host_stats.h"
#include "src/host/requests/route_table.h"
#include "src/host/versions/hosted_version.h"

namespace processor {

class MetricsView {
 public:
  MetricsView(const ActualState& actual, const RouteTable& table, const HostStats& stats);

  /// One version and its counters.
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

  /// The counters of the methods of one protocol.
  using OfProtocol = std::vector<const MethodStats*>;

  const ActualState& actual() const { return actual_; }
  const RouteTable& table() const { return table_; }
  const HostStats& stats() const { return stats_; }
  const std::vector<Counted>& counted() const { return counted_; }

  /// Visit the protocols and methods that requests of each version have used.
  void ForEachProtocol(const std::function<void(const Counted&, const std::string&, const OfProtocol&)>& visit) const;
  void ForEachMethod(const std::function<void(const Counted&, const Method&, const MethodStats&)>& visit) const;
  /// Visits the versions that requests can reach.
  void ForEachLoaded(const std::function<void(const MetricLabels&, const HostedVersion&)>& visit) const;
  /// Visits all versions, in any state.
  void ForEachActual(const std::function<void(const MetricLabels&, const ActualVersion&)>& visit) const;

 private:
  const ActualState& actual_;
  const RouteTable& table_;
  const HostStats& stats_;
  const std::map<HostStats::Key, std::shared_ptr<const VersionStats>> kept_;
  std::vector<Counted> counted_;
};

/// Adds values with the same bounds.
void AddTo(const Histogram::Cumulative& values, Histogram::Cumulative* sum);

}  // namespace processor

#endif  // PROCESSOR_HOST_REPORTS_METRICS_VIEW_H_
