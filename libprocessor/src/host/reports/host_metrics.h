// SPDX-License-Identifier: Apache-2.0
// Writes the statistics of a host as texts: for Prometheus, and as stats.json.
#ifndef PROCESSOR_HOST_REPORTS_HOST_METRICS_H_
#define PROCESSOR_HOST_REPORTS_HOST_METRICS_H_

#include <string>

#include "src/host/reports/actual_state.h"
#include "src/host/requests/host_stats.h"
#include "src/host/requests/route_table.h"

namespace processor {

/// Returns the name of a status code, such as "INVALID_ARGUMENT".
std::string CodeName(int code);

/// Returns the metrics that docs/model_host.md lists under "Statistics".
std::string HostMetricsText(const ActualState& actual, const RouteTable& table, const HostStats& stats);

/// Returns the text of stats.json.
std::string HostStatsJson(const ActualState& actual, const RouteTable& table, const HostStats& stats);

}  // namespace processor

#endif  // PROCESSOR_HOST_REPORTS_HOST_METRICS_H_
