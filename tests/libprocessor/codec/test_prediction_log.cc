// SPDX-License-Identifier: Apache-2.0
#include "src/codec/prediction_log.h"

#include <gtest/gtest.h>

#include "differential.h"
#include "oracle.h"
#include "prediction_log.pb.h"

namespace processor {
namespace {

TEST(PredictionLogTest, ReturnsRequestOfPredictLog) {
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

TEST(PredictionLogTest, ErrorsNameOtherKindsOfLogs) {
  tensorflow::serving::PredictionLog log;
  log.set_classify_log("anything");
  EXPECT_EQ(PredictRequestOf(log.SerializeAsString()).status(),
            absl::UnimplementedError("warm-up record: classify_log, expected predict_log"));
  log.set_session_run_log("anything");
  EXPECT_EQ(PredictRequestOf(log.SerializeAsString()).status(),
            absl::UnimplementedError("warm-up record: session_run_log, expected predict_log"));
}

TEST(PredictionLogTest, RefusesBytesThatAreNotALog) {
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

/// A request of any protocol, written as a record and read back by the codec of "tfserving".
TEST(PredictionLogTest, RequestsOfEveryProtocolAreLoggedAsPredictRequests) {
  std::mt19937_64 random(17);
  for (const char* protocol : {"eas", "tfserving", "kserve"}) {
    const auto signatures = oracle::MakeWideSignatures(protocol);
    for (int i = 0; i < 500; ++i) {
      const std::string bytes = oracle::RandomRequest(protocol, &random);
      DecodedRequest request, back;
      ASSERT_TRUE(FindCodec(protocol)->Decode(bytes, *signatures, {}, &request).ok());
      Buffer logged, answer;
      ASSERT_TRUE(EncodePredictRequest(request, "ranking", &logged).ok());
      const std::string record = EncodePredictionLog({logged.data(), logged.size()}, "");
      const absl::StatusOr<std::string_view> found = PredictRequestOf(record);
      ASSERT_TRUE(found.ok()) << found.status();
      const absl::Status status = FindCodec("tfserving")->Decode(*found, *signatures, {}, &back);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(back.model_name, "ranking");
      EXPECT_EQ(back.model_version, std::nullopt) << "a warm-up file is for every version";
      EXPECT_EQ(back.signature, request.signature);
      EXPECT_EQ(back.fetches, request.fetches);
      for (size_t k = 0; k < request.feeds.size(); ++k) EXPECT_TRUE(oracle::Same(back.feeds[k], request.feeds[k]));
      if (request.feeds.size() > 1) continue;
      ASSERT_TRUE(EncodePredictResponse(request, {request.feeds[0]}, {7, "ranking"}, &answer).ok());
      tensorflow::serving::PredictionLog log;
      ASSERT_TRUE(log.ParseFromString(EncodePredictionLog(*found, std::string_view(answer.data(), answer.size()))));
      EXPECT_EQ(log.predict_log().response().model_spec().version().value(), 7);
      EXPECT_EQ(log.predict_log().response().outputs_size(), 1);
    }
  }
}

}  // namespace
}  // namespace processor
