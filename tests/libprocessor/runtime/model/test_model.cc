// SPDX-License-Identifier: Apache-2.0
// What a model does when there is no memory for a request: the request fails, and nothing of it is left behind.
#include "src/runtime/model/model.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <functional>
#include <string>
#include <vector>

#include "failing_allocations.h"
#include "processor/deeprec.h"
#include "processor/processor.h"
#include "src/c_api/handle.h"
#include "src/runtime/config/model_config.h"
#include "tiny_saved_model.h"

namespace processor {
namespace {

constexpr int32_t kUntouched = 99;

int64_t InSeconds(int seconds) { return processor_now_us() + int64_t{1000000} * seconds; }

class ModelWithoutMemory : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ModelConfig config;
    const std::string text = std::string(R"({"intra_op_parallelism_threads": 1, "warmup_runs": 1, "session_num": 2,)") +
                             R"( "execution": ")" + GetParam() + R"("})";
    ASSERT_TRUE(ParseModelConfig(text, ConfigDialect::kModern, &config).ok());
    std::shared_ptr<Model> model;
    const absl::Status status = Model::Load(std::move(config), saved_model_.path(), &model);
    ASSERT_TRUE(status.ok()) << status;
    handle_ = MakeHandle(std::move(model));
  }

  // Bytes that are no request: refused when they are decoded, before TensorFlow, which can do without memory less well.
  static processor_request Request(bool with_deadline) {
    processor_request request{};
    request.struct_size = sizeof request;
    request.protocol = "eas";
    request.data = "\xff";
    request.size = 1;
    if (with_deadline) request.deadline_us = InSeconds(3600);
    return request;
  }

  // Lets every allocation fail in turn that `attempt` makes, until it makes no more.
  void FailEachAllocation(const std::function<void()>& attempt) {
    long number = 0;
    for (bool failed = true; failed; ++number) {
      FailAllocation(number);
      attempt();
      failed = AllocationHasFailed();
      ASSERT_LT(number, 1000);
    }
    EXPECT_GT(number, 3) << "hardly anything was tried";
    ExpectIdle();
  }

  void ExpectIdle() {
    std::shared_ptr<Model> model;
    ASSERT_TRUE(GetModel(handle_, &model).ok());
    // A worker counts itself out after it has told of the end.
    processor_error error{};
    EXPECT_EQ(processor_model_drain(handle_, InSeconds(5), &error), PROCESSOR_OK) << error.message;
    const std::string stats = model->StatsJson();
    EXPECT_NE(stats.find("\"in_flight\":0"), std::string::npos) << stats;
    EXPECT_EQ(stats.find("\"load\":-"), std::string::npos) << stats;
    for (const char* load : {"\"load\":1", "\"load\":2", "\"load\":3"}) {
      EXPECT_EQ(stats.find(load), std::string::npos) << stats;
    }
  }

  static void ExpectRefused(int32_t code) {
    EXPECT_TRUE(code == PROCESSOR_INVALID_ARGUMENT || code == PROCESSOR_RESOURCE_EXHAUSTED) << code;
  }

  TinySavedModel saved_model_;
  processor_model* handle_ = nullptr;
};

TEST_P(ModelWithoutMemory, SynchronousRequestFails) {
  const processor_request request = Request(true);
  FailEachAllocation([&] {
    processor_result* result = nullptr;
    ExpectRefused(processor_model_run(handle_, &request, &result, nullptr));
  });
  processor_model_free(handle_);
}

TEST_P(ModelWithoutMemory, EveryRequestOfABatchIsAnswered) {
  constexpr size_t kCount = 4;
  const std::vector<processor_request> requests(kCount, Request(false));
  std::vector<processor_result*> results(kCount);
  std::vector<processor_error> errors(kCount);
  FailEachAllocation([&] {
    for (size_t i = 0; i < kCount; ++i) errors[i].code = kUntouched;
    ExpectRefused(processor_model_run_batch(handle_, requests.data(), kCount, results.data(), errors.data()));
    for (size_t i = 0; i < kCount; ++i) {
      ExpectRefused(errors[i].code);
      EXPECT_EQ(results[i], nullptr);
    }
  });
  processor_model_free(handle_);
}

TEST_P(ModelWithoutMemory, AnAcceptedRequestIsAnsweredExactlyOnce) {
  processor_queue* queue = nullptr;
  ASSERT_EQ(processor_queue_create(&queue, nullptr), PROCESSOR_OK);
  processor_target target{};
  target.struct_size = sizeof target;
  target.queue = queue;
  const processor_request request = Request(true);
  processor_completion completions[2];
  FailEachAllocation([&] {
    const processor_status started = processor_model_run_async(handle_, &request, &target, nullptr, nullptr);
    if (started != PROCESSOR_OK) return ExpectRefused(started);
    pollfd ready = {processor_queue_fd(queue), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 10000), 1) << "accepted, and never heard of again";
    ASSERT_EQ(processor_queue_next(queue, completions, 2), 1u);
    ExpectRefused(completions[0].error.code);
  });
  processor_model_free(handle_);
  EXPECT_EQ(processor_queue_next(queue, completions, 2), 0u);
  processor_queue_free(queue);
}

TEST_P(ModelWithoutMemory, DropInFunctionsReturn500) {
  const void* inputs[] = {"\xff"};
  int sizes[] = {1}, size = 0;
  void* data = nullptr;
  FailEachAllocation([&] {
    EXPECT_EQ(process(handle_, inputs[0], 1, &data, &size), 500);
    EXPECT_NE(data, nullptr) << "malloc has memory for a text";
    free(data);
    EXPECT_EQ(process(handle_, inputs[0], -1, &data, &size), 500);
    free(data);
    EXPECT_EQ(batch_process(handle_, inputs, sizes, &data, &size), 500);
    EXPECT_NE(data, nullptr);
    free(data);
    EXPECT_EQ(process(nullptr, inputs[0], 1, &data, &size), 500);
    free(data);
    EXPECT_EQ(get_serving_model_info(nullptr, &data, &size), 500);
    free(data);
    int state = 0;
    EXPECT_EQ(initialize("", "[]", &state), nullptr);
    EXPECT_EQ(state, -1);
  });
  processor_model_free(handle_);
}

INSTANTIATE_TEST_SUITE_P(Execution, ModelWithoutMemory, testing::Values("inline", "pinned"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace processor
