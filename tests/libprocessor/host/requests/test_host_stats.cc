// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/host_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "src/codec/protocols.h"
#include "src/host/reports/host_metrics.h"
#include "src/host/reports/metrics_writer.h"

namespace processor {
namespace {

RequestTiming Timing(int64_t queue_ns, int64_t run_ns, int64_t total_ns) {
  RequestTiming timing;
  timing.queue_ns = queue_ns;
  timing.run_ns = run_ns;
  timing.total_ns = total_ns;
  return timing;
}

// The place of a method in Methods().
int PlaceOf(std::string_view protocol, std::string_view method) {
  return static_cast<int>(FindMethod(protocol, method) - Methods().data());
}

bool Has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(MetricsWriter, WritesTheExpositionFormat) {
  MetricsWriter writer;
  writer.Metric("a_total", "counter", "Of what.");
  writer.Count({}, 7);
  writer.Count({{"model", "m"}, {"path", "a\"b\\c\nd"}}, 18446744073709551615u);
  writer.Metric("b", "gauge", "Of size.");
  writer.Sample({{"x", ""}}, 0.25);
  EXPECT_EQ(writer.Take(), R"(# HELP a_total Of what.
# TYPE a_total counter
a_total 7
a_total{model="m",path="a\"b\\c\nd"} 18446744073709551615
# HELP b Of size.
# TYPE b gauge
b{x=""} 0.25
)");
}

TEST(MetricsWriter, DistributionsAreCumulative) {
  Histogram histogram;
  for (const int64_t us : {5, 15, 15, 2000}) histogram.Record(us * 1000);
  MetricsWriter writer;
  writer.Metric("t_seconds", "histogram", "Time.");
  const std::vector<int64_t> bounds = {10000, 20000, 1000000};
  writer.Distribution({{"m", "x"}}, histogram.Below(bounds), bounds, 1e-9);
  EXPECT_EQ(writer.Take(), R"(# HELP t_seconds Time.
# TYPE t_seconds histogram
t_seconds_bucket{m="x",le="1e-05"} 1
t_seconds_bucket{m="x",le="2e-05"} 3
t_seconds_bucket{m="x",le="0.001"} 3
t_seconds_bucket{m="x",le="+Inf"} 4
t_seconds_sum{m="x"} 0.002035
t_seconds_count{m="x"} 4
)");
}

TEST(VersionStats, CountsOutcomesByProtocol) {
  VersionStats stats;
  const int eas = ProtocolPlace("eas"), tfserving = ProtocolPlace("tfserving");
  const int predict = PlaceOf("eas", "predict"), multi = PlaceOf("tfserving", "MultiInference"),
            other = PlaceOf("tfserving", "Predict");
  ASSERT_NE(eas, tfserving);
  ASSERT_NE(multi, other);
  EXPECT_EQ(FindMethod("eas", "sing"), nullptr);
  EXPECT_EQ(PlaceOf("tfserving", ""), other);
  ASSERT_LE(Methods().size(), static_cast<size_t>(kMaxMethods));
  EXPECT_EQ(ProtocolPlace("morse"), kMaxProtocols);
  ASSERT_LE(Protocols().size(), static_cast<size_t>(kMaxProtocols));
  EXPECT_TRUE(stats.protocol(eas).empty());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        stats.Record(i % 2 == 0 ? predict : (i % 4 == 1 ? multi : other), ChoiceReason::kArm,
                     i % 10 == 0 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk,
                     Timing(1000, i % 10 == 0 ? 0 : 50000, 60000), /*rows=*/3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(stats.protocol(eas).size(), 1u);
  EXPECT_EQ(stats.protocol(eas)[0], stats.method(predict));
  EXPECT_EQ(stats.method(predict)->outcomes.at(0), 1600u);
  EXPECT_EQ(stats.method(predict)->outcomes.at(3), 400u);
  EXPECT_EQ(stats.method(predict)->duration.Below({}).counts.back(), 2000u);
  EXPECT_EQ(stats.method(predict)->run.Below({}).counts.back(), 1600u);
  ASSERT_EQ(stats.protocol(tfserving).size(), 2u) << "of both methods";
  EXPECT_EQ(stats.method(multi)->outcomes.at(0) + stats.method(other)->outcomes.at(0), 2000u);
  EXPECT_EQ(stats.run().Below({}).counts.back(), 3600u) << "what did not run is no run";
  EXPECT_EQ(stats.chosen(static_cast<int>(ChoiceReason::kArm)), 4000u);
  const InferenceTotals::Value totals = stats.totals().Get();
  EXPECT_EQ(totals.succeeded, 3600u);
  EXPECT_EQ(totals.failed, 400u);
  EXPECT_EQ(totals.rows, 3 * 3600u) << "of those that succeeded";
  EXPECT_EQ(totals.succeeded_ns, 3600u * 60000);
  EXPECT_EQ(totals.failed_ns, 400u * 60000);
  EXPECT_EQ(totals.queue_ns, 3600u * 1000);
  EXPECT_EQ(totals.run_ns, 3600u * 50000);
  EXPECT_GT(totals.last_ms, 0u);
}

TEST(HostStats, AreKeptForAVersionNumberUntilItIsForgotten) {
  HostStats stats;
  const std::shared_ptr<VersionStats> first = stats.Of("m", 1);
  EXPECT_EQ(stats.Of("m", 1), first);
  EXPECT_NE(stats.Of("m", 2), first);
  stats.Keep({{"m", 1}});
  EXPECT_EQ(stats.versions().size(), 1u);
  EXPECT_EQ(stats.Of("m", 1), first);
}

TEST(HostMetrics, ContainAllCounters) {
  HostStats stats;
  ActualState actual;
  actual.generation = 42;
  actual.host = "host-0";
  ActualVersion& version = actual.models["m"][3].version;
  version.state = VersionState::kReady;
  version.memory_bytes = 1000;
  version.path = "/m/3";
  version.load_ms = 1.5;
  version.load = std::make_shared<VersionLoad>();
  const std::shared_ptr<VersionStats> counted = stats.Of("m", 3);
  counted->Record(PlaceOf("eas", "predict"), ChoiceReason::kBaseline, absl::StatusCode::kOk,
                  Timing(2000, 30000, 40000));
  counted->RecordShed(ShedReason::kInFlight);
  stats.RecordUnrouted(ProtocolPlace("eas"), absl::NotFoundError(""), false);
  stats.RecordUnrouted(ProtocolPlace("nothing"), absl::UnavailableError(""), true);

  const std::string text = HostMetricsText(actual, RouteTable(), stats);
  for (const char* line : {
           R"(recprocessor_requests_total{model="m",version="3",protocol="eas",outcome="OK"} 1)",
           R"(recprocessor_requests_total{model="",version="",protocol="eas",outcome="NOT_FOUND"} 1)",
           R"(recprocessor_requests_total{model="",version="",protocol="",outcome="UNAVAILABLE"} 1)",
           R"(recprocessor_request_duration_seconds_count{model="m",version="3",protocol="eas"} 1)",
           R"(recprocessor_request_duration_seconds_bucket{model="m",version="3",protocol="eas",le="2.5e-05"} 0)",
           R"(recprocessor_request_duration_seconds_bucket{model="m",version="3",protocol="eas",le="5e-05"} 1)",
           R"(recprocessor_queue_duration_seconds_sum{model="m",version="3"} 2e-06)",
           R"(recprocessor_run_duration_seconds_sum{model="m",version="3"} 3e-05)",
           R"(recprocessor_arm_requests_total{model="m",arm="baseline",version="3"} 1)",
           R"(recprocessor_shed_total{model="m",version="3",reason="in_flight"} 1)",
           R"(recprocessor_shed_total{model="",version="",reason="draining"} 1)",
           R"(recprocessor_model_state{model="m",version="3",state="ready"} 1)",
           R"(recprocessor_model_memory_bytes{model="m",version="3"} 1000)",
           R"(recprocessor_in_flight{model="m",version="3"} 0)",
           "recprocessor_host_generation 42",
           R"(:tensorflow:serving:request_count{model_name="m",version="3",API="eas",entrypoint="REST",status="OK"} 1)",
           R"(:tensorflow:serving:request_latency_count{model_name="m",version="3",API="eas",entrypoint="REST"} 1)",
           R"(:tensorflow:serving:runtime_latency_count{model_name="m",version="3",API="Predict",runtime="TF1"} 1)",
           R"(:tensorflow:serving:model_warmup_latency{model_path="/m/3",status="OK",version="3"} 1500)",
           R"(:tensorflow:core:graph_runs{model_name="m",version="3"} 1)",
       }) {
    EXPECT_TRUE(Has(text, line)) << line << "\nnot in\n" << text;
  }

  const nlohmann::json json = nlohmann::json::parse(HostStatsJson(actual, RouteTable(), stats));
  const nlohmann::json& told = json["models"]["m"]["versions"]["3"];
  EXPECT_EQ(json["generation"], 42);
  EXPECT_EQ(told["requests"], 1);
  EXPECT_EQ(told["outcomes"], nlohmann::json({{"OK", 1}}));
  EXPECT_EQ(told["protocols"]["eas"], nlohmann::json({{"OK", 1}}));
  EXPECT_EQ(told["run_us"]["count"], 1);
  EXPECT_EQ(told["run_us"]["buckets"][1], nlohmann::json({25, 0}));
  EXPECT_EQ(told["run_us"]["buckets"][2], nlohmann::json({50, 1}));
  // Four a doubling: 10 us, and a request of some microseconds is below all of them.
  ASSERT_EQ(told["duration_us"]["buckets"].size(), 91);
  EXPECT_EQ(told["duration_us"]["buckets"][0][0], 10.0);
  EXPECT_EQ(told["duration_us"]["buckets"][4][0], 20.0);
  EXPECT_EQ(told["duration_us"]["buckets"][90][1], 1);
  EXPECT_EQ(told["arms"]["baseline"], 1);
  EXPECT_EQ(told["shed"]["in_flight"], 1);
}

}  // namespace
}  // namespace processor
