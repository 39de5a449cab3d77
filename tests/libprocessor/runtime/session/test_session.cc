// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/session/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <utility>

#include "src/runtime/requests/cancellation.h"
#include "src/runtime/threads/pinned_pool.h"
#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/public/session_options.h"

namespace processor {
namespace {

class CountingPool : public PinnedPool {
 public:
  CountingPool() : PinnedPool("inter", 2, CpuSet(), Single::kOwn) {}
  void Schedule(std::function<void()> fn) override {
    ++scheduled;
    PinnedPool::Schedule(std::move(fn));
  }
  void ScheduleWithHint(std::function<void()> fn, int start, int end) override {
    ++scheduled;
    PinnedPool::ScheduleWithHint(std::move(fn), start, end);
  }
  std::atomic<int> scheduled{0};
};

// y = -x and z = x + view, and signatures that ask for these and for what the graph does not have.
class SessionTest : public testing::TestWithParam<Executor> {
 protected:
  void SetUp() override {
    tensorflow::SessionOptions tensorflow_options;
    std::vector<std::unique_ptr<tensorflow::Device>> devices;
    ASSERT_TRUE(tensorflow::DeviceFactory::GetFactory("CPU")
                    ->CreateDevices(tensorflow_options, "/job:localhost/replica:0/task:0", &devices)
                    .ok());
    base_ = std::move(devices.front());
    Make("");
  }

  // `view`: as in SessionOptions.
  void Make(const std::string& view) {
    tensorflow::GraphDef graph;
    for (const char* name : {"x", "view"}) {
      tensorflow::NodeDef& placeholder = *graph.add_node();
      placeholder.set_name(name);
      placeholder.set_op("Placeholder");
      (*placeholder.mutable_attr())["dtype"].set_type(tensorflow::DT_FLOAT);
    }
    tensorflow::NodeDef& z = *graph.add_node();
    z.set_name("z");
    z.set_op("AddV2");
    z.add_input("x");
    z.add_input("view");
    (*z.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
    tensorflow::NodeDef& y = *graph.add_node();
    y.set_name("y");
    y.set_op("Neg");
    y.add_input("x");
    (*y.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
    tensorflow::NodeDef& kept = *graph.add_node();
    kept.set_name("kept");
    kept.set_op("GetSessionHandle");
    kept.add_input("x");
    (*kept.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
    SessionOptions options;
    options.executor = GetParam() == Executor::kDefault ? ExecutorChoice::kDefault : ExecutorChoice::kSingleThreaded;
    options.inter_op_pool = &inter_op_pool_;
    options.view = view;
    const absl::Status status = Session::Create(graph, options, base_.get(), &intra_op_pool_, &session_);
    ASSERT_TRUE(status.ok()) << status;
  }

  static Signature SignatureOf(const std::string& output) {
    tensorflow::SignatureDef def;
    (*def.mutable_inputs())["x"].set_name("x:0");
    (*def.mutable_outputs())["y"].set_name(output);
    return Signature("wanted", def);
  }

  static tensorflow::Tensor Number(float value) {
    tensorflow::Tensor number(tensorflow::DT_FLOAT, {});
    number.scalar<float>()() = value;
    return number;
  }
  static std::vector<tensorflow::Tensor> Feeds() { return {Number(2)}; }

  std::unique_ptr<tensorflow::Device> base_;
  PinnedPool intra_op_pool_{"intra", 1, CpuSet()};
  CountingPool inter_op_pool_;
  std::unique_ptr<Session> session_;
  Session::Handle handle_;
};

TEST_P(SessionTest, RunsPreparedCallables) {
  const Signature signature = SignatureOf("y:0");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(session_->Prepare(7, signature, {0}, &handle_).ok());
    std::vector<tensorflow::Tensor> outputs;
    ASSERT_TRUE(session_->Run(handle_, Feeds(), nullptr, &outputs).ok());
    EXPECT_EQ(outputs.at(0).scalar<float>()(), -2);
  }
}

TEST_P(SessionTest, GraphsRunWithoutTheSessionIfTheyDoNotNeedIt) {
  ASSERT_TRUE(session_->Prepare(7, SignatureOf("y:0"), {0}, &handle_).ok());
  EXPECT_EQ(handle_.executor, GetParam());
  EXPECT_EQ(handle_.graph != nullptr, GetParam() == Executor::kSingleThreaded);
  ASSERT_TRUE(session_->Prepare(8, SignatureOf("kept:0"), {0}, &handle_).ok());
  EXPECT_EQ(handle_.graph, nullptr) << "it keeps a tensor in the session";
}

TEST_P(SessionTest, EachRunReadsTheViewThatItGets) {
  Make("view:0");
  for (const char* output : {"z:0", "kept:0"}) {
    ASSERT_TRUE(session_->Prepare(output[0], SignatureOf(output), {0}, &handle_).ok());
    const tensorflow::Tensor first = Number(10), second = Number(20);
    std::vector<tensorflow::Tensor> outputs;
    EXPECT_TRUE(absl::IsInvalidArgument(session_->Run(handle_, Feeds(), nullptr, &outputs)));
    ASSERT_TRUE(session_->Run(handle_, Feeds(), &first, &outputs).ok());
    if (output[0] == 'z') {
      EXPECT_EQ(outputs.at(0).scalar<float>()(), 12);
    }
    ASSERT_TRUE(session_->Run(handle_, Feeds(), &second, &outputs).ok());
    if (output[0] == 'z') {
      EXPECT_EQ(outputs.at(0).scalar<float>()(), 22);
    }
  }
  tensorflow::StepStats stats;
  std::vector<tensorflow::Tensor> outputs;
  const tensorflow::Tensor third = Number(30);
  ASSERT_TRUE(session_->RunTraced(SignatureOf("z:0"), Feeds(), &third, &outputs, &stats).ok());
  EXPECT_EQ(outputs.at(0).scalar<float>()(), 32);
}

TEST_P(SessionTest, MissingFeedsAreRefused) {
  ASSERT_TRUE(session_->Prepare(7, SignatureOf("y:0"), {0}, &handle_).ok());
  std::vector<tensorflow::Tensor> outputs;
  EXPECT_TRUE(absl::IsInvalidArgument(session_->Run(handle_, {}, nullptr, &outputs)));
  EXPECT_TRUE(session_->Run(handle_, Feeds(), nullptr, &outputs).ok()) << "the next step is not affected";
}

TEST_P(SessionTest, RequestedCancellationsStopSteps) {
  ASSERT_TRUE(session_->Prepare(7, SignatureOf("y:0"), {0}, &handle_).ok());
  Cancellation cancellation;
  const Cancellation::Scope scope(&cancellation);
  std::vector<tensorflow::Tensor> outputs;
  EXPECT_TRUE(session_->Run(handle_, Feeds(), nullptr, &outputs).ok());
  cancellation.Request(absl::DeadlineExceededError("late"));
  EXPECT_EQ(session_->Run(handle_, Feeds(), nullptr, &outputs), absl::DeadlineExceededError("late"));
}

TEST_P(SessionTest, OnlyTheDefaultExecutorUsesThePoolBetweenOps) {
  const Signature signature = SignatureOf("y:0");
  std::vector<tensorflow::Tensor> outputs;
  ASSERT_TRUE(session_->Prepare(7, signature, {0}, &handle_).ok());
  ASSERT_TRUE(session_->Run(handle_, Feeds(), nullptr, &outputs).ok());
  const int untraced = inter_op_pool_.scheduled;
  EXPECT_EQ(untraced > 0, GetParam() == Executor::kDefault);
  tensorflow::StepStats stats;
  ASSERT_TRUE(session_->RunTraced(signature, Feeds(), nullptr, &outputs, &stats).ok());
  EXPECT_EQ(inter_op_pool_.scheduled > untraced, GetParam() == Executor::kDefault);
}

TEST_P(SessionTest, FailedCallablesAreNotRetried) {
  const Signature signature = SignatureOf("missing:0");
  const absl::Status first = session_->Prepare(7, signature, {0}, &handle_);
  EXPECT_TRUE(absl::IsInvalidArgument(first)) << first;
  const absl::Status second = session_->Prepare(7, signature, {0}, &handle_);
  EXPECT_EQ(second, first);
  EXPECT_EQ(second.message().data(), first.message().data()) << "made again";
  EXPECT_TRUE(session_->Prepare(8, SignatureOf("y:0"), {0}, &handle_).ok()) << "another number is another callable";
}

TEST_P(SessionTest, FailedTracedCallablesAreNotRetried) {
  const Signature signature = SignatureOf("missing:0");
  std::vector<tensorflow::Tensor> outputs;
  tensorflow::StepStats stats;
  const absl::Status first = session_->RunTraced(signature, Feeds(), nullptr, &outputs, &stats);
  EXPECT_TRUE(absl::IsInvalidArgument(first)) << first;
  const absl::Status second = session_->RunTraced(signature, Feeds(), nullptr, &outputs, &stats);
  EXPECT_EQ(second.message().data(), first.message().data()) << "made again";
}

INSTANTIATE_TEST_SUITE_P(Executors, SessionTest, testing::Values(Executor::kSingleThreaded, Executor::kDefault),
                         [](const auto& info) { return std::string(ExecutorName(info.param)); });

}  // namespace
}  // namespace processor
