// SPDX-License-Identifier: Apache-2.0
#include "src/host/request_log/request_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "differential.h"
#include "oracle.h"
#include "prediction_log.pb.h"
#include "record_files.h"
#include "src/base/log.h"
#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
using tensorflow::serving::PredictionLog;

RequestLogSettings Settings(int sample) {
  RequestLogSettings settings;
  settings.sample = sample;
  return settings;
}

// Copies a request of TensorFlow Serving and offers it if it is one of the sample.
bool Ask(ModelLog& log, std::string_view bytes, int64_t version = 3) {
  if (!log.Samples()) return false;
  log.Offer(log.Copy(*FindMethod("tfserving", "Predict"), bytes, DecodedRequest(), version));
  return true;
}

std::string RequestOf(const std::string& signature) {
  PredictionLog log;
  log.mutable_predict_log()->mutable_request()->mutable_model_spec()->set_signature_name(signature);
  return log.predict_log().request().SerializeAsString();
}

class RequestLogTest : public testing::Test {
 protected:
  std::vector<std::string> Records() const { return RecordsIn(folder_.path() + "/m"); }

  TemporaryFolder folder_;
  RequestLog log_{folder_.path()};
};

TEST_F(RequestLogTest, WritesReceivedBytes) {
  const std::shared_ptr<ModelLog> log = log_.Of("m", Settings(10000));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Ask(*log, RequestOf(absl::StrCat("s", i))));
  log_.Flush();
  const std::vector<std::string> records = Records();
  ASSERT_EQ(records.size(), 200);
  for (int i = 0; i < 200; ++i) {
    PredictionLog read;
    ASSERT_TRUE(read.ParseFromString(records[static_cast<size_t>(i)]));
    EXPECT_EQ(read.predict_log().request().SerializeAsString(), RequestOf(absl::StrCat("s", i)));
  }
  EXPECT_EQ(log->written(), 200);
  EXPECT_EQ(log->dropped() + log->unsupported(), 0);
}

TEST_F(RequestLogTest, CreatesNothingUntilSamplingIsConfigured) {
  EXPECT_EQ(log_.Of("m", Settings(0)), nullptr);
  const std::shared_ptr<ModelLog> log = log_.Of("m", Settings(10000));
  EXPECT_EQ(log_.Of("m", Settings(0)), log) << "what is counted stays";
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Ask(*log, "x"));
  log_.Of("m", Settings(10000));
  EXPECT_TRUE(Ask(*log, "x"));
  log_.Keep({});
  EXPECT_FALSE(Ask(*log, "x")) << "of requests that still know it";
  EXPECT_NE(log_.Of("m", Settings(1)), log);
}

TEST_F(RequestLogTest, SamplingRateIsIndependentOfOtherRunningNumbers) {
  const std::shared_ptr<ModelLog> log = log_.Of("m", Settings(500));
  int all = 0, of_an_arm = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const bool sampled = log->Samples();
    all += sampled;
    of_an_arm += sampled && KeylessBucket(i) < 1000;
  }
  EXPECT_NEAR(all, 1000, 150);
  EXPECT_NEAR(of_an_arm, 100, 50);
}

TEST_F(RequestLogTest, RequestsOfOtherProtocolsBecomePredictRequests) {
  const std::shared_ptr<ModelLog> log = log_.Of("m", Settings(10000));
  const auto signatures = oracle::MakeWideSignatures("eas");
  std::mt19937_64 random(1);
  const std::string bytes = oracle::RandomRequest("eas", &random);
  DecodedRequest request, back;
  ASSERT_TRUE(FindCodec("eas")->Decode(bytes, *signatures, {}, &request).ok());
  log->Offer(log->Copy(*FindMethod("eas", "predict"), bytes, request, 3));
  DecodedRequest two = request;
  two.next.push_back(request);
  EXPECT_EQ(log->Copy(*FindMethod("tfserving", "MultiInference"), bytes, two, 3), nullptr);
  log_.Flush();
  EXPECT_EQ(log->unsupported(), 1);
  ASSERT_EQ(Records().size(), 1);
  PredictionLog read;
  ASSERT_TRUE(read.ParseFromString(Records().front()));
  const std::string logged = read.predict_log().request().SerializeAsString();
  ASSERT_TRUE(FindCodec("tfserving")->Decode(logged, *signatures, {}, &back).ok());
  EXPECT_EQ(back.model_name, "m");
  EXPECT_EQ(back.signature, request.signature);
  for (size_t i = 0; i < request.feeds.size(); ++i) EXPECT_TRUE(oracle::Same(back.feeds[i], request.feeds[i]));
}

TEST_F(RequestLogTest, DropsAndCountsRequestsIfTheQueueIsFull) {
  const std::shared_ptr<ModelLog> log = log_.Of("m", Settings(10000));
  const std::string large(8 << 20, 'x');
  EXPECT_EQ(
      log->Copy(*FindMethod("tfserving", "Predict"), std::string(RequestLog::kMaxBytes + 1, 'x'), DecodedRequest(), 3),
      nullptr);
  EXPECT_EQ(log->dropped(), 1);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Ask(*log, large));
  // A flush has a limit, and the disk may be slow.
  for (int i = 0; i < 30 && log->written() + log->dropped() < 101; ++i) log_.Flush();
  EXPECT_GE(log->written(), 1);
  EXPECT_EQ(log->written() + log->dropped(), 101);
}

TEST_F(RequestLogTest, LogsUnwritableFolderOnceAndRetries) {
  std::vector<std::string> lines;
  SetLogSink(
      [](void* data, int32_t, const char* line) { static_cast<std::vector<std::string>*>(data)->push_back(line); },
      &lines, 0);
  folder_.Write("m", "a file");
  const std::shared_ptr<ModelLog> log = log_.Of("m", Settings(10000));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Ask(*log, "x"));
  log_.Flush();
  EXPECT_EQ(log->written(), 0);
  EXPECT_EQ(log->dropped(), 50);
  fs::remove(folder_.path() + "/m");
  for (int i = 0; i < 100 && log->written() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Ask(*log, RequestOf("s"));
    log_.Flush();
  }
  log_.Stop();
  SetLogSink(nullptr, nullptr, 0);
  EXPECT_EQ(log->written(), 1);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines.front(), absl::StrCat("request log of model 'm': '", folder_.path(),
                                        "/m': no file can be made in it: "
                                        "Not a directory; samples are dropped until a later attempt succeeds"));
}

TEST_F(RequestLogTest, WritesOfferedRequestsBeforeTheEnd) {
  std::shared_ptr<ModelLog> log;
  {
    RequestLog ends(folder_.path());
    log = ends.Of("m", Settings(10000));
    for (int i = 0; i < 500; ++i) Ask(*log, RequestOf("s"));
  }
  EXPECT_EQ(log->written(), 500);
  EXPECT_EQ(Records().size(), 500);
}

}  // namespace
}  // namespace processor
