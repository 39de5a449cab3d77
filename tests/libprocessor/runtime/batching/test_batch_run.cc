// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/batch_run.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "src/base/log.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

void AddSpec(const char* name, tensorflow::DataType dtype, const std::vector<int64_t>& dims,
             google::protobuf::Map<std::string, tensorflow::TensorInfo>* specs) {
  tensorflow::TensorInfo& info = (*specs)[name];
  info.set_name(std::string(name) + ":0");
  info.set_dtype(dtype);
  for (const int64_t dim : dims) info.mutable_tensor_shape()->add_dim()->set_size(dim);
}

Tensor CountingTensor(const TensorShape& shape, float begin) {
  Tensor tensor(tensorflow::DT_FLOAT, shape);
  for (int64_t i = 0; i < tensor.NumElements(); ++i) tensor.flat<float>()(i) = begin + static_cast<float>(i);
  return tensor;
}

// Inputs x [rows, 3] and s, strings [rows]; outputs y [rows], twice the first of each row, and t [rows], the strings.
class BatchRunTest : public ::testing::Test {
 protected:
  BatchRunTest() {
    tensorflow::SignatureDef def;
    AddSpec("x", tensorflow::DT_FLOAT, {-1, -1}, def.mutable_inputs());
    AddSpec("s", tensorflow::DT_STRING, {-1}, def.mutable_inputs());
    AddSpec("y", tensorflow::DT_FLOAT, {-1}, def.mutable_outputs());
    AddSpec("t", tensorflow::DT_STRING, {-1}, def.mutable_outputs());
    signature_ = std::make_unique<Signature>("serving_default", def);
    // One trial is enough then.
    known_.SetProofs(*signature_, std::vector<RowProof>(2, {RowProof::Finding::kIndependent, ""}));
    SetLogSink([](void*, int32_t, const char*) {}, nullptr, 2);
  }
  ~BatchRunTest() override { SetLogSink(nullptr, nullptr, 2); }

  // Inputs are in the order of their names: s, then x.
  DecodedRequest* Add(int64_t rows, float begin, int64_t columns = 3) {
    auto request = std::make_unique<DecodedRequest>();
    request->signature = signature_.get();
    request->fetches = {0, 1};
    Tensor strings(tensorflow::DT_STRING, TensorShape({rows}));
    for (int64_t i = 0; i < rows; ++i) {
      strings.flat<tstring>()(i) = "a string that is too long to lie in the tensor, " + std::to_string(begin + i);
    }
    request->feeds = {strings, CountingTensor(TensorShape({rows, columns}), begin)};
    decoded_.push_back(std::move(request));
    requests_.push_back({decoded_.back().get(), RowsOf(*decoded_.back()), {}, absl::OkStatus()});
    return decoded_.back().get();
  }

  // The model. A negative number is poison, and a run of more than `most_rows_` fails.
  absl::Status Run(const DecodedRequest& request, std::vector<Tensor>* outputs) {
    ++runs_;
    const Tensor &strings = request.feeds[0], &x = request.feeds[1];
    const int64_t rows = x.dim_size(0);
    if (rows > most_rows_) return absl::InternalError("too many rows");
    for (int64_t i = 0; i < x.NumElements(); ++i) {
      if (x.flat<float>()(i) < 0) return absl::InvalidArgumentError("negative");
    }
    Tensor y(tensorflow::DT_FLOAT, TensorShape({rows + extra_rows_})), t(tensorflow::DT_STRING, TensorShape({rows}));
    y.flat<float>().setZero();
    for (int64_t i = 0; i < rows; ++i) {
      y.flat<float>()(i) = 2 * x.matrix<float>()(i, 0) + (depends_on_others_ ? static_cast<float>(rows) : 0);
      t.flat<tstring>()(i) = strings.flat<tstring>()(i);  // keeps a view if it is one, as kernels do
    }
    outputs->clear();
    for (const int fetch : request.fetches) outputs->push_back(fetch == 0 ? t : y);
    return absl::OkStatus();
  }

  bool RunsAlone(const DecodedRequest& request) { return !known_.MayJoin(request); }

  JointOutcome Go() {
    runs_ = 0;
    return RunTogether(
        [this](const DecodedRequest& request, std::vector<Tensor>* outputs) { return Run(request, outputs); }, &known_,
        &requests_);
  }

  // Answers are right whatever way they came about.
  void ExpectAnswer(size_t index) {
    const JointRequest& joint = requests_[index];
    ASSERT_TRUE(joint.status.ok()) << joint.status;
    ASSERT_EQ(joint.outputs.size(), joint.request->fetches.size());
    const Tensor &t = joint.outputs[0], &y = joint.outputs[1], &x = joint.request->feeds[1];
    ASSERT_EQ(y.dim_size(0), joint.rows + extra_rows_);
    ASSERT_EQ(t.dim_size(0), joint.rows);
    const float own = depends_on_others_ ? static_cast<float>(joint.rows) : 0;
    for (int64_t i = 0; i < joint.rows; ++i) {
      EXPECT_EQ(y.flat<float>()(i), 2 * x.matrix<float>()(i, 0) + own);
      EXPECT_EQ(t.flat<tstring>()(i), joint.request->feeds[0].flat<tstring>()(i));
    }
  }
  void ExpectAnswers() {
    for (size_t i = 0; i < requests_.size(); ++i) ExpectAnswer(i);
  }

  std::unique_ptr<Signature> signature_;
  std::vector<std::unique_ptr<DecodedRequest>> decoded_;
  std::vector<JointRequest> requests_;
  OutputRows known_;
  int runs_ = 0;
  int64_t most_rows_ = INT64_MAX, extra_rows_ = 0;
  bool depends_on_others_ = false;
};

TEST_F(BatchRunTest, FirstBatchIsATrialAndLaterOnesAreOneRun) {
  Add(1, 10);
  Add(2, 20);
  Add(5, 30);
  JointOutcome outcome = Go();
  EXPECT_FALSE(outcome.together);
  EXPECT_EQ(runs_, 5) << "each alone, and together in two orders";
  ExpectAnswers();
  outcome = Go();
  EXPECT_TRUE(outcome.together);
  EXPECT_EQ(runs_, 1);
  ExpectAnswers();
}

TEST_F(BatchRunTest, AnswersOutliveOtherRequestsAndShareNoMemory) {
  Add(1, 10);
  Add(1, 20);
  Go();
  Go();
  std::vector<std::string> expected;
  for (const JointRequest& joint : requests_) expected.emplace_back(joint.request->feeds[0].flat<tstring>()(0));
  std::vector<std::vector<Tensor>> kept;
  for (JointRequest& joint : requests_) kept.push_back(std::move(joint.outputs));
  decoded_.clear();
  requests_.clear();
  EXPECT_FALSE(kept[0][1].SharesBufferWith(kept[1][1]));
  EXPECT_EQ(std::string(kept[0][0].flat<tstring>()(0)), expected[0]);
  EXPECT_EQ(std::string(kept[1][0].flat<tstring>()(0)), expected[1]);
}

TEST_F(BatchRunTest, ARequestThatFailsTheBatchFailsAlone) {
  for (const bool tried : {false, true}) {
    SCOPED_TRACE(tried);
    requests_.clear();
    Add(1, 10);
    Add(2, 20);
    if (tried) Go();
    Add(1, -5);
    const JointOutcome outcome = Go();
    EXPECT_TRUE(outcome.repeated);
    ExpectAnswer(0);
    ExpectAnswer(1);
    EXPECT_TRUE(absl::IsInvalidArgument(requests_[2].status)) << requests_[2].status;
    EXPECT_FALSE(RunsAlone(*requests_[0].request)) << "it was not the model's fault";
  }
}

TEST_F(BatchRunTest, DetectsOutputsWithoutRowsAndDoesNotRetry) {
  extra_rows_ = 1;
  Add(1, 10);
  Add(1, 20);
  EXPECT_TRUE(Go().repeated);
  ExpectAnswers();
  EXPECT_TRUE(RunsAlone(*requests_[0].request));
  Go();
  EXPECT_EQ(runs_, 2) << "no run of both";
  ExpectAnswers();
}

TEST_F(BatchRunTest, DetectsRowsThatDependOnOtherRows) {
  depends_on_others_ = true;
  Add(1, 10);
  Add(2, 20);
  Go();
  ExpectAnswers();
  EXPECT_TRUE(RunsAlone(*requests_[0].request));
}

TEST_F(BatchRunTest, AModelThatFailsOnlyInBatchesRunsRequestsOneByOne) {
  most_rows_ = 2;
  Add(2, 10);
  Add(1, 20);
  Go();
  ExpectAnswers();
  EXPECT_TRUE(RunsAlone(*requests_[0].request));
}

TEST_F(BatchRunTest, FailuresAfterASuccessfulTrialAreRepeatedEachTime) {
  Add(2, 10);
  Add(1, 20);
  Go();
  most_rows_ = 2;
  const JointOutcome outcome = Go();
  EXPECT_FALSE(outcome.together);
  EXPECT_TRUE(outcome.repeated);
  ExpectAnswers();
  EXPECT_FALSE(RunsAlone(*requests_[0].request));
}

TEST_F(BatchRunTest, RequestsOfDifferentKindsAreNeverBatched) {
  Add(1, 10);
  Add(1, 20, /*columns=*/4);
  EXPECT_FALSE(SameKind(*decoded_[0], *decoded_[1]));
  EXPECT_NE(KindOf(*decoded_[0]), KindOf(*decoded_[1]));
  Go();
  EXPECT_EQ(runs_, 2);
  ExpectAnswers();
  decoded_[1]->feeds[1] = CountingTensor(TensorShape({1, 3}), 20);
  EXPECT_TRUE(SameKind(*decoded_[0], *decoded_[1]));
  EXPECT_EQ(KindOf(*decoded_[0]), KindOf(*decoded_[1]));
  decoded_[1]->fetches = {1};
  EXPECT_FALSE(SameKind(*decoded_[0], *decoded_[1]));
  EXPECT_NE(KindOf(*decoded_[0]), KindOf(*decoded_[1]));
}

TEST_F(BatchRunTest, EachSetOfOutputsIsTriedSeparately) {
  Add(1, 10);
  Add(1, 20);
  Go();
  for (auto& request : decoded_) request->fetches = {0};
  EXPECT_FALSE(Go().together);
  EXPECT_TRUE(Go().together);
}

TEST_F(BatchRunTest, RowsAreTheFirstDimensionOfAllInputs) {
  DecodedRequest& request = *Add(4, 10);
  EXPECT_EQ(RowsOf(request), 4);
  request.next.push_back(request);
  EXPECT_EQ(RowsOf(request), 0) << "one answer of several runs";
  request.next.clear();
  request.feeds[0] = Tensor(tensorflow::DT_STRING, TensorShape({3}));
  EXPECT_EQ(RowsOf(request), 0) << "they differ";
  request.feeds[0] = Tensor(tensorflow::DT_STRING, TensorShape({}));
  EXPECT_EQ(RowsOf(request), 0) << "a scalar";
  request.feeds[0] = Tensor(tensorflow::DT_VARIANT, TensorShape({4}));
  EXPECT_EQ(RowsOf(request), 0) << "no plain memory";
  request.feeds = {Tensor(tensorflow::DT_STRING, TensorShape({0})), Tensor(tensorflow::DT_FLOAT, TensorShape({0, 3}))};
  EXPECT_EQ(RowsOf(request), 0) << "no rows";
}

TEST_F(BatchRunTest, FixedFirstDimensionDoesNotCountRows) {
  tensorflow::SignatureDef def;
  AddSpec("x", tensorflow::DT_FLOAT, {1, -1}, def.mutable_inputs());
  AddSpec("y", tensorflow::DT_FLOAT, {1}, def.mutable_outputs());
  const Signature signature("fixed", def);
  DecodedRequest request;
  request.signature = &signature;
  request.feeds = {CountingTensor(TensorShape({1, 3}), 1)};
  request.fetches = {0};
  EXPECT_EQ(RowsOf(request), 0);
}

TEST_F(BatchRunTest, NanAgreesWithNan) {
  Add(1, 10);
  Add(1, std::numeric_limits<float>::quiet_NaN());
  Add(1, std::numeric_limits<float>::infinity());
  Go();
  EXPECT_TRUE(Go().together);
}

}  // namespace
}  // namespace processor
