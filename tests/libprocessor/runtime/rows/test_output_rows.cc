// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/output_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "src/base/log.h"

namespace processor {
namespace {

using Finding = RowProof::Finding;
using Likeness = OutputRows::Likeness;
using Plan = OutputRows::Plan;

class OutputRowsTest : public ::testing::Test {
 protected:
  OutputRowsTest() {
    tensorflow::SignatureDef def;
    for (const char* name : {"a", "b"}) {
      tensorflow::TensorInfo& info = (*def.mutable_outputs())[name];
      info.set_name(std::string(name) + ":0");
      info.set_dtype(tensorflow::DT_FLOAT);
    }
    signatures_.push_back(std::make_unique<Signature>("serving_default", def));
    request_.signature = signatures_[0].get();
    request_.fetches = {0, 1};
    SetLogSink([](void* text, int32_t, const char* line) { static_cast<std::string*>(text)->append(line); }, &log_, 1);
  }
  ~OutputRowsTest() override { SetLogSink(nullptr, nullptr, 2); }

  void Prove(Finding a, Finding b) { rows_.SetProofs(*signatures_[0], {{a, "a is"}, {b, "b is"}}); }
  Plan Ask(bool copies = false) {
    return rows_.Ask(request_, [copies] { return copies; });
  }
  std::string Said(const char* key) {
    const auto said = rows_.Json(signatures_)["serving_default"][key];
    return said.is_null() ? "" : said.get<std::string>();
  }
  // How many of so many runs are checked.
  int Checks(int runs) {
    int checks = 0;
    for (int i = 0; i < runs; ++i) checks += Ask() == Plan::kCheck ? 1 : 0;
    return checks;
  }

  std::vector<std::unique_ptr<Signature>> signatures_;
  DecodedRequest request_;
  OutputRows rows_;
  std::string log_;
};

TEST_F(OutputRowsTest, ProvedOutputsNeedOneTrial) {
  Prove(Finding::kIndependent, Finding::kIndependent);
  EXPECT_EQ(Ask(), Plan::kTry);
  rows_.Tried(request_, true, Likeness::kSameAnswers);
  EXPECT_NE(Ask(), Plan::kTry);
  EXPECT_EQ(Said("rows"), "independent");
}

TEST_F(OutputRowsTest, DependentOutputsAreNeverTried) {
  Prove(Finding::kIndependent, Finding::kDependent);
  EXPECT_EQ(Ask(), Plan::kAlone);
  EXPECT_FALSE(rows_.MayJoin(request_));
  EXPECT_EQ(Said("rows"), "dependent");
  EXPECT_EQ(Said("reason"), "b is");
  request_.fetches = {0};
  EXPECT_EQ(Ask(), Plan::kTry) << "the other output is not asked for";
}

TEST_F(OutputRowsTest, UnprovedOutputsNeedSeveralTrialsOfDifferentRequests) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Ask(), Plan::kTry) << i;
    EXPECT_EQ(Said("rows"), "unproved");
    rows_.Tried(request_, true, Likeness::kDifferent);
  }
  EXPECT_NE(Ask(), Plan::kTry);
  EXPECT_EQ(Said("rows"), "tried");
}

TEST_F(OutputRowsTest, CopiesOfARequestAreNoEvidenceForOthers) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Ask(/*copies=*/true), Plan::kTry) << i;
    rows_.Tried(request_, true, Likeness::kCopies);
  }
  EXPECT_NE(Ask(/*copies=*/true), Plan::kTry);
  EXPECT_EQ(Ask(/*copies=*/false), Plan::kTry);
  for (int i = 0; i < 63; ++i) rows_.Tried(request_, true, Likeness::kSameAnswers);
  EXPECT_EQ(Ask(), Plan::kTry);
  rows_.Tried(request_, true, Likeness::kSameAnswers);
  EXPECT_NE(Ask(), Plan::kTry);
}

TEST_F(OutputRowsTest, ADifferenceInATrialEndsBatching) {
  rows_.Tried(request_, true, Likeness::kDifferent);
  rows_.Tried(request_, false, Likeness::kDifferent);
  EXPECT_EQ(Ask(), Plan::kAlone);
  EXPECT_NE(log_.find("so that its requests run alone"), std::string::npos) << log_;
}

TEST_F(OutputRowsTest, ASampleOfBatchesIsAlwaysChecked) {
  for (int i = 0; i < 4; ++i) rows_.Tried(request_, true, Likeness::kDifferent);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(Checks(64000), 1000, 150);
}

TEST_F(OutputRowsTest, ProvedOutputsAreCheckedLessOften) {
  Prove(Finding::kIndependent, Finding::kIndependent);
  rows_.Tried(request_, true, Likeness::kDifferent);
  EXPECT_NEAR(Checks(1024000), 1000, 150);
}

TEST_F(OutputRowsTest, ADifferenceInACheckEndsBatchingForAllOutputs) {
  Prove(Finding::kIndependent, Finding::kIndependent);
  rows_.Tried(request_, true, Likeness::kDifferent);
  rows_.Checked(request_, "");
  EXPECT_FALSE(rows_.differed());
  rows_.Checked(request_, "a");
  EXPECT_TRUE(rows_.differed());
  EXPECT_EQ(rows_.checks(), 2u);
  EXPECT_EQ(Ask(), Plan::kAlone);
  DecodedRequest other = request_;
  other.fetches = {1};
  EXPECT_FALSE(rows_.MayJoin(other));
  EXPECT_EQ(Said("rows"), "dependent");
  EXPECT_NE(Said("reason").find("output 'a'"), std::string::npos) << Said("reason");
  EXPECT_NE(log_.find("output 'a'"), std::string::npos) << log_;
}

TEST_F(OutputRowsTest, NumberOfRememberedOutputSetsIsLimited) {
  for (int i = 0; i < 1000; ++i) {
    request_.fetches = {i, i + 1};
    Ask();
  }
  EXPECT_EQ(Ask(), Plan::kAlone);
}

}  // namespace
}  // namespace processor
