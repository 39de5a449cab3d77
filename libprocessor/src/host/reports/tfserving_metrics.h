// SPDX-License-Identifier: Apache-2.0
// The metrics of TensorFlow Serving, for its dashboards, with the version as an additional label.
#ifndef PROCESSOR_HOST_REPORTS_TFSERVING_METRICS_H_
#define PROCESSOR_HOST_REPORTS_TFSERVING_METRICS_H_

#include "src/host/reports/metrics_view.h"
#include "src/host/reports/metrics_writer.h"

namespace processor {

/// Writes the metrics. Histograms are in microseconds. Methods of the REST API have their names in URLs, those of gRPC
/// their own.
void WriteTfServingMetrics(const MetricsView& view, MetricsWriter* writer);

}  // namespace processor

#endif  // PROCESSOR_HOST_REPORTS_TFSERVING_METRICS_H_
