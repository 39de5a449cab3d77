// SPDX-License-Identifier: Apache-2.0
#include "src/host/reports/metrics_writer.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

void AppendEscaped(std::string_view value, std::string* text) {
  for (const char c : value) {
    if (c == '\\' || c == '"') text->push_back('\\');
    if (c == '\n') {
      text->append("\\n");
    } else {
      text->push_back(c);
    }
  }
}

void AppendLabel(std::string_view name, std::string_view value, std::string* text) {
  absl::StrAppend(text, text->back() == '{' ? "" : ",", name, "=\"");
  AppendEscaped(value, text);
  text->push_back('"');
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

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

void MetricsWriter::Metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void MetricsWriter::Line(std::string_view suffix, const MetricLabels& labels, std::string_view bound,
                         std::string_view value) {
  absl::StrAppend(&text_, name_, suffix);
  if (!labels.empty() || !bound.empty()) {
    text_.push_back('{');
    for (const auto& [name, label] : labels) AppendLabel(name, label, &text_);
    if (!bound.empty()) AppendLabel("le", bound, &text_);
    text_.push_back('}');
  }
  absl::StrAppend(&text_, " ", value, "\n");
}

void MetricsWriter::Sample(const MetricLabels& labels, double value) { Line("", labels, "", Number(value)); }

void MetricsWriter::Count(const MetricLabels& labels, uint64_t value) { Line("", labels, "", absl::StrCat(value)); }

void MetricsWriter::Distribution(const MetricLabels& labels, const Histogram::Cumulative& values,
                                 const std::vector<int64_t>& bounds, double scale) {
  for (size_t i = 0; i < bounds.size(); ++i) {
    Line("_bucket", labels, Number(static_cast<double>(bounds[i]) * scale), absl::StrCat(values.counts[i]));
  }
  const std::string count = absl::StrCat(values.counts.back());
  Line("_bucket", labels, "+Inf", count);
  Line("_sum", labels, "", Number(static_cast<double>(values.sum) * scale));
  Line("_count", labels, "", count);
}

void MetricsWriter::Sizes(const MetricLabels& labels, const SizeHistogram& sizes) {
  uint64_t count = 0;
  for (int i = 0; i < SizeHistogram::kBuckets; ++i) {
    count += sizes.count(i);
    const bool last = i + 1 == SizeHistogram::kBuckets;
    Line("_bucket", labels, last ? "+Inf" : absl::StrCat(int64_t{1} << i), absl::StrCat(count));
  }
  Line("_sum", labels, "", absl::StrCat(sizes.sum()));
  Line("_count", labels, "", absl::StrCat(count));
}

}  // namespace processor
