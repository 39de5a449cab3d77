// SPDX-License-Identifier: Apache-2.0
#include "src/codec/prediction_log.h"

#include <gtest/gtest.h>

#include "proto/tfserving.pb.h"

namespace processor {
namespace {

TEST(PredictionLogTest, GivesTheRequestOfAPredictLog) {
  tensorflow::serving::PredictionLog log;
  tensorflow::serving::PredictRequest& request = *log.mutable_predict_log()->mutable_request();
  request.mutable_model_spec()->set_name("wdl");
  request.add_output_filter("prob");
  log.mutable_predict_log()->mutable_response()->mutable_model_spec()->set_name("not this");
  const std::string record = log.SerializeAsString();
  const absl::StatusOr<std::string_view> found = PredictRequestOf(record);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, request.SerializeAsString());
  EXPECT_GE(found->data(), record.data()) << "points into the record";
  EXPECT_LE(found->data() + found->size(), record.data() + record.size());
}

TEST(PredictionLogTest, OtherLogsAreNamed) {
  tensorflow::serving::PredictionLog log;
  log.set_classify_log("anything");
  EXPECT_EQ(PredictRequestOf(log.SerializeAsString()).status(),
            absl::UnimplementedError("warm-up record: classify_log, expected predict_log"));
  log.set_session_run_log("anything");
  EXPECT_EQ(PredictRequestOf(log.SerializeAsString()).status(),
            absl::UnimplementedError("warm-up record: session_run_log, expected predict_log"));
}

TEST(PredictionLogTest, BytesThatAreNoLogAreRefused) {
  tensorflow::serving::PredictionLog log;
  log.mutable_predict_log()->mutable_request()->mutable_model_spec()->set_name("wdl");
  const std::string record = log.SerializeAsString();
  for (size_t cut = 1; cut < record.size(); ++cut) {
    EXPECT_EQ(PredictRequestOf(std::string_view(record).substr(0, cut)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << cut;
  }
  EXPECT_EQ(PredictRequestOf("").status(),
            absl::InvalidArgumentError("warm-up record: no log in it, expected a PredictionLog with predict_log"));
}

}  // namespace
}  // namespace processor
