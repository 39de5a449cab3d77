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

TEST(EmbeddingPlan, NamesWhatIsWrong) {
  const std::vector<std::vector<std::string>> faults = {
      {"\"version\": 1", "\"version\": 2", "embedding plan: 'version' is 2"},
      {"\"width\": 45", "\"width\": 0", "output 0: 'width' is 0"},
      {"\"width\": 45", "\"width\": 99999999999", "output 0: 'width'"},
      {"\"width\": 45", "\"width\": 45.0", "output 0: 'width' is 45.0"},
      {"\"initial\": [0.5]", "\"initial\": [0.5, 1]", "output 1: 2 initial values, expected 1"},
      {"\"initial\": [0.5]", "\"initial\": [1e99]", "output 1: initial 1e+99"},
      {"\"sequence\": 0", "\"sequence\": 2", "output 2: 'sequence' is 2"},
      {"\"sequence\": 0", "\"sequence\": 1", "output 2: sequence of key 1, which is not dense"},
      {"\"feature\": 0", "\"feature\": 7", "key 0: 'feature' is 7, expected an integer from 0 to 6"},
      {"\"feature\": 0", "\"feature\": -1", "key 0: 'feature' is -1"},
      {"\"feature\": 0", "\"feature\": 18446744073709551615", "key 0: 'feature'"},
      {"\"ignore\": \"\"", "\"ignore\": 1.5", "key 0: 'ignore' is 1.5"},
      {"\"ignore\": \"\"", "\"ignored\": \"\"", "key 0: unknown field 'ignored'"},
      {"fast_hash", "slow_hash", "key 0: step 0: 'op' is \"slow_hash\""},
      {"\"buckets\": 1000", "\"buckets\": 0", "key 0: step 0: 'buckets' is 0"},
      {"\"op\": \"fast_hash\"", "\"op\": \"strong_hash\", \"key\": [1]", "two numbers"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"mod\", \"by\": 0", "'by' is 0"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"wrap_negative\", \"by\": 0", "'by' is 0"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"clip\", \"low\": 2, \"high\": 1", "'low' is 2"},
      {"\"op\": \"fast_hash\", \"buckets\": 1000", "\"op\": \"bucketize\", \"boundaries\": [2, 1]", "ascending"},
      {"\"layout\": \"sparse\"", "\"layout\": \"dense\"", "unknown field 'indices'"},
      {"\"indices\": 2, ", "", "key 1: no 'indices'"},
      {"\"layout\": \"sparse\"", "\"layout\": \"other\"", "key 1: 'layout' is \"other\""},
      {"\"kind\": \"copy\"", "\"kind\": \"paste\"", "column 0: 'kind' is \"paste\""},
      {"\"width\": 13", "\"width\": 46", "column 0: columns up to 46, expected none beyond 45"},
      {"\"offset\": 13", "\"offset\": 45", "column 1: 'offset' is 45"},
      {"\"table\": 0", "\"table\": 3", "column 1: 'table' is 3"},
      {"\"output\": 0, \"offset\": 13", "\"output\": 3, \"offset\": 13", "column 1: 'output' is 3"},
      {"\"combiner\": \"mean\"", "\"combiner\": \"max\"", "column 2: 'combiner' is \"max\""},
      {"\"combiner\": \"mean\", ", "", "column 2: 'weights' is 4, expected them with a combiner"},
      {"\"combiner\": \"mean\", \"weights\": 4", "\"accumulate\": false", "column 2: no combiner for key 1"},
      {"\"weights\": 4", "\"positive_weights\": true", "column 2: 'positive_weights' is true"},
      {"\"key\": 0, \"table\": 0", "\"key\": 2, \"table\": 0", "column 1: 'key' is 2"},
      {"\"accumulate\": true", "\"accumulate\": 1", "column 3: 'accumulate' is 1"},
      {"[[0.25], [0.5]]", "[[0.25], [0.5, 1]]", "column 4: 'weights'"},
      {"[[0.25], [0.5]]", "[]", "column 4: 'weights'"},
      {"[[0.25], [0.5]]", "[[null]]", "column 4: weight null"},
      {"\"output\": 1, \"offset\": 0, \"weights\"", "\"output\": 2, \"offset\": 0, \"weights\"",
       "column 4: not a lookup"},
      {"{\"width\": 32, \"sequence\": 0}", "1", "output 2: 1, expected an object"},
      {", {\"width\": 32, \"sequence\": 0}", "", "2 outputs, expected 3"},
      {"\"keys\": [", "\"key\": [", "embedding plan: no 'keys'"},
  };
  for (const auto& fault : faults) {
    const std::string message = Message(fault[0], fault[1]);
    EXPECT_NE(message.find(fault[2]), std::string::npos) << fault[1] << " gives '" << message << "'";
    EXPECT_EQ(message.rfind("embedding plan", 0), 0) << message;
  }
}

TEST(EmbeddingPlan, RefusesWhatIsNoJson) {
  EmbeddingPlan plan;
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("{\"a\": \xff}"),
                                  std::string(100000, '['), "{\"outputs\": " + std::string(100000, '[')}) {
    EXPECT_EQ(Parse(text, &plan).code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 20);
  }
}

TEST(EmbeddingPlan, IsReadOrRefusedWhateverIsDamaged) {
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
