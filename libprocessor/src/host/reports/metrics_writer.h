// SPDX-License-Identifier: Apache-2.0
// Writes metrics in the exposition format of Prometheus.
#ifndef PROCESSOR_HOST_REPORTS_METRICS_WRITER_H_
#define PROCESSOR_HOST_REPORTS_METRICS_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/runtime/stats/histogram.h"
#include "src/runtime/stats/size_histogram.h"

namespace processor {

/// Names and values, in order.
using MetricLabels = std::vector<std::pair<std::string_view, std::string>>;

/// Returns the upper ends of the buckets of durations, in nanoseconds: 10 us to 10 s.
const std::vector<int64_t>& DurationBounds();

/// For one thread. The caller owns the text.
class MetricsWriter {
 public:
  /// Begins a metric: all samples up to the next call belong to it. `type`: "counter", "gauge" or "histogram".
  void Metric(std::string_view name, std::string_view type, std::string_view help);

  void Sample(const MetricLabels& labels, double value);
  void Count(const MetricLabels& labels, uint64_t value);

  /// Writes a histogram with the buckets `bounds`, in the histogram's unit; `scale` converts it to the metric's unit.
  void Distribution(const MetricLabels& labels, const Histogram::Cumulative& values, const std::vector<int64_t>& bounds,
                    double scale);

  /// Writes durations, in the buckets DurationBounds(); `scale` converts nanoseconds to the metric's unit.
  void Durations(const MetricLabels& labels, const Histogram& histogram, double scale) {
    Distribution(labels, histogram.Below(DurationBounds()), DurationBounds(), scale);
  }

  /// Writes sizes, in buckets of powers of two.
  void Sizes(const MetricLabels& labels, const SizeHistogram& sizes);

  std::string Take() { return std::move(text_); }

 private:
  void Line(std::string_view suffix, const MetricLabels& labels, std::string_view bound, std::string_view value);

  std::string text_;
  std::string name_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REPORTS_METRICS_WRITER_H_
