// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_plan.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "naive.h"

namespace processor {
namespace {

// The plan of docs/fused_ops.md, of an op with seven features, three tables and three outputs.
const char kPlan[] = R"({"version": 1,
 "outputs": [{"width": 45}, {"width": 1, "initial": [0.5]}, {"width": 32, "sequence": 0}],
 "keys": [
   {"feature": 0, "ignore": "", "steps": [{"op": "fast_hash", "buckets": 1000}]},
   {"feature": 1, "layout": "sparse", "indices": 2, "shape": 3}],
 "columns": [
   {"kind": "copy", "feature": 5, "output": 0, "offset": 0, "width": 13},
   {"kind": "lookup", "key": 0, "table": 0, "output": 0, "offset": 13},
   {"kind": "lookup", "key": 1, "table": 1, "output": 0, "offset": 29, "combiner": "mean", "weights": 4},
   {"kind": "lookup", "key": 0, "table": 2, "output": 1, "offset": 0, "accumulate": true},
   {"kind": "linear", "feature": 5, "output": 1, "offset": 0, "weights": [[0.25], [0.5]]}]})";

absl::Status Parse(const std::string& text, EmbeddingPlan* plan) { return ParseEmbeddingPlan(text, 7, 3, 3, plan); }

// The message for the plan with one text in the place of another, or "".
std::string Message(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kPlan, {{from, to}});
  EXPECT_NE(text, kPlan) << from;
  EmbeddingPlan plan;
  return std::string(Parse(text, &plan).message());
}

TEST(EmbeddingPlan, ReadsThePlanOfTheDocumentation) {
  EmbeddingPlan plan;
  const absl::Status parsed = Parse(kPlan, &plan);
  ASSERT_TRUE(parsed.ok()) << parsed;
  ASSERT_EQ(plan.outputs.size(), 3);
  EXPECT_EQ(plan.outputs[1].initial, std::vector<float>{0.5f});
  EXPECT_EQ(plan.outputs[2].sequence, 0);
  ASSERT_EQ(plan.keys.size(), 2);
  EXPECT_EQ(plan.keys[0].ignore, IgnoreKind::kString);
  ASSERT_EQ(plan.keys[0].steps.size(), 1);
  EXPECT_EQ(plan.keys[0].steps[0].first, 1000);
  EXPECT_EQ(plan.keys[1].layout, KeyLayout::kSparse);
  EXPECT_EQ(plan.keys[1].structure, 2);
  EXPECT_EQ(plan.keys[1].extent, 3);
  ASSERT_EQ(plan.columns.size(), 5);
  EXPECT_EQ(plan.columns[2].combiner, Combiner::kMean);
  EXPECT_EQ(plan.columns[2].weights, 4);
  EXPECT_TRUE(plan.columns[3].accumulate);
  EXPECT_EQ(plan.columns[4].matrix, (std::vector<float>{0.25f, 0.5f}));
  EXPECT_EQ(plan.columns[4].width, 1);
}

TEST(EmbeddingPlan, ErrorsNameFieldAndExpectedValue) {
  const std::vector<std::vector<std::string>> faults = {
      {"\"version\": 1", "\"version\": 2", "embedding plan: version: 2 found, expected 1"},
      {"\"width\": 45", "\"width\": 0", "outputs[0].width: 0"},
      {"\"width\": 45", "\"width\": 99999999999", "outputs[0].width: "},
      {"\"width\": 45", "\"width\": 45.0", "outputs[0].width: 45.0"},
      {"\"initial\": [0.5]", "\"initial\": [0.5, 1]", "outputs[1].initial: 2 numbers, expected 1"},
      {"\"initial\": [0.5]", "\"initial\": [1e99]", "outputs[1].initial[0]: 1e+99 found"},
      {"\"sequence\": 0", "\"sequence\": 2", "outputs[2].sequence: 2"},
      {"\"sequence\": 0", "\"sequence\": 1", "outputs[2]: sequence of key 1, which is not dense"},
      {"\"feature\": 0", "\"feature\": 7", "keys[0].feature: 7 found, expected an integer from 0 to 6"},
      {"\"feature\": 0", "\"feature\": -1", "keys[0].feature: -1"},
      {"\"feature\": 0", "\"feature\": 18446744073709551615", "keys[0].feature: "},
      {"\"ignore\": \"\"", "\"ignore\": 1.5", "keys[0].ignore: 1.5"},
      {"\"ignore\": \"\"", "\"ignored\": \"\"", "keys[0].ignored: unknown field"},
      {"fast_hash", "slow_hash", "keys[0].steps[0].op: \"slow_hash\""},
      {"\"buckets\": 1000", "\"buckets\": 0", "keys[0].steps[0].buckets: 0"},
      {"\"op\": \"fast_hash\"", "\"op\": \"strong_hash\", \"key\": [1]", "two numbers"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"mod\", \"by\": 0", "by: 0 found"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"wrap_negative\", \"by\": 0", "by: 0 found"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"divide\", \"by\": 0", "by: 0 found"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"xor_shift\", \"by\": 64", "by: 64 found"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"bits\", \"first\": 0, \"count\": 64", "count: 64"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"bits\", \"first\": 60, \"count\": 5", "no bit beyond"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"bits\", \"first\": 1, \"count\": 4, \"every\": 21",
       "no bit beyond"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"clip\", \"low\": 2, \"high\": 1", "low: 2 found"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"bucketize\", \"boundaries\": [2, 1]", "ascending"},
      {"\"layout\": \"sparse\"", "\"layout\": \"dense\"", "keys[1].indices: unknown field"},
      {"\"indices\": 2, ", "", "keys[1].indices: missing, expected an integer"},
      {"\"layout\": \"sparse\"", "\"layout\": \"other\"", "keys[1].layout: \"other\""},
      {"\"kind\": \"copy\"", "\"kind\": \"paste\"", "columns[0].kind: \"paste\""},
      {"\"width\": 13", "\"width\": 46", "columns[0]: columns up to 46, expected none beyond 45"},
      {"\"offset\": 13", "\"offset\": 45", "columns[1].offset: 45"},
      {"\"table\": 0", "\"table\": 3", "columns[1].table: 3"},
      {"\"output\": 0, \"offset\": 13", "\"output\": 3, \"offset\": 13", "columns[1].output: 3"},
      {"\"combiner\": \"mean\"", "\"combiner\": \"max\"", "columns[2].combiner: \"max\""},
      {"\"combiner\": \"mean\", ", "", "columns[2].weights: 4 found, expected weights only with a combiner"},
      {"\"combiner\": \"mean\", \"weights\": 4", "\"accumulate\": false", "columns[2]: no combiner for key 1"},
      {"\"weights\": 4", "\"positive_weights\": true", "columns[2].positive_weights: true"},
      {"\"key\": 0, \"table\": 0", "\"key\": 2, \"table\": 0", "columns[1].key: 2"},
      {"\"key\": 0, \"table\": 0", "\"key\": 0, \"factors\": [{\"key\": 2, \"table\": 0}], \"table\": 0",
       "columns[1].factors[0].key: 2"},
      {"\"key\": 0, \"table\": 0", "\"key\": 0, \"factors\": [{\"key\": 0, \"table\": 3}], \"table\": 0",
       "columns[1].factors[0].table: 3"},
      {"\"key\": 0, \"table\": 0", "\"key\": 0, \"factors\": [{\"key\": 0}], \"table\": 0",
       "columns[1].factors[0].table: missing"},
      {"\"key\": 0, \"table\": 0", "\"key\": 0, \"factors\": [{\"key\": 1, \"table\": 0}], \"table\": 0",
       "columns[1].factors[0]: key 1, whose values have another form, expected one of the form of key 0"},
      {"\"weights\": 4", "\"factors\": [{\"key\": 1, \"table\": 0}], \"empty\": \"a\"",
       "columns[2].empty: \"a\" found, expected a key only without 'factors'"},
      {"\"accumulate\": true", "\"accumulate\": 1", "columns[3].accumulate: 1"},
      {"[[0.25], [0.5]]", "[[0.25], [0.5, 1]]",
       "columns[4].weights[1]: [0.5,1] found, expected a non-empty list as long as the first row"},
      {"[[0.25], [0.5]]", "[]", "columns[4].weights: [] found"},
      {"[[0.25], [0.5]]", "[[null]]", "columns[4].weights[0][0]: null found"},
      {"\"output\": 1, \"offset\": 0, \"weights\"", "\"output\": 2, \"offset\": 0, \"weights\"",
       "columns[4]: not a lookup"},
      {"{\"width\": 32, \"sequence\": 0}", "1", "outputs[2]: 1 found, expected an object"},
      {", {\"width\": 32, \"sequence\": 0}", "", "2 outputs, expected 3"},
      {"\"kind\": \"linear\", ", "", "columns[4].kind: missing, expected one of \"lookup\", \"copy\", \"linear\""},
      {"\"keys\": [", "\"key\": [", "embedding plan: keys: missing, expected a list"},
  };
  for (const auto& fault : faults) {
    const std::string message = Message(fault[0], fault[1]);
    EXPECT_NE(message.find(fault[2]), std::string::npos) << fault[1] << " gives '" << message << "'";
    EXPECT_EQ(message.rfind("embedding plan", 0), 0) << message;
  }
}

TEST(EmbeddingPlan, RefusesTextsThatAreNotJson) {
  EmbeddingPlan plan;
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("{\"a\": \xff}"),
                                  std::string(100000, '['), "{\"outputs\": " + std::string(100000, '[')}) {
    EXPECT_EQ(Parse(text, &plan).code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 20);
  }
}

TEST(EmbeddingPlan, DamagedPlansAreReadOrRefused) {
  std::mt19937 random(5);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    EmbeddingPlan plan;
    accepted += Parse(DamagedPlan(kPlan, &random), &plan).ok();
  }
  // Numbers may change to others in range; nearly all else is a fault.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 10000);
}

}  // namespace
}  // namespace processor
