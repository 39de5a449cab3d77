/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses every function of processor.h from plain C99: test_c_api MODEL, where MODEL is the folder that
 * tests/helpers/models/host_model.py exports. Exits with 0 if all is as the headers say, else it prints what is not.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <processor/processor.h>

#include "c_api_checks.h"

/* A call that must end with a status, and name a word in its message. */
#define CHECK_STATUS(call, wanted, word)                                                                               \
  do {                                                                                                                 \
    processor_status status_ = (call);                                                                                 \
    if (status_ != (wanted) || (status_ != PROCESSOR_OK && (error.code != status_ || !strstr(error.message, word)))) { \
      fprintf(stderr, "%s:%d: %s: %s (%s), expected %s and '%s'\n", __FILE__, __LINE__, #call,                         \
              processor_status_name(status_), status_ == PROCESSOR_OK ? "" : error.message,                            \
              processor_status_name(wanted), word);                                                                    \
      ++failures;                                                                                                      \
    }                                                                                                                  \
  } while (0)

static processor_error error;

/* The last key has no effect here, which the library logs. */
static const char* const config =
    "{\"session_num\": 2, \"select_session_policy\": \"RR\", \"intra_op_parallelism_threads\": 1, "
    "\"inter_op_parallelism_threads\": 1, \"kmp_blocktime\": 0}";

static const int64_t x_dims[2] = {2, 3};
static const int64_t s_dims[1] = {2};
static const int64_t s_offsets[3] = {0, 2, 2};

static void make_inputs(processor_tensor* inputs) {
  memset(inputs, 0, 2 * sizeof *inputs);
  inputs[0].struct_size = inputs[1].struct_size = sizeof *inputs;
  inputs[0].dtype = PROCESSOR_FLOAT;
  inputs[0].name = "x";
  inputs[0].dims = x_dims;
  inputs[0].rank = 2;
  inputs[0].data = x_values;
  inputs[0].size = sizeof x_values;
  inputs[1].dtype = PROCESSOR_STRING;
  inputs[1].name = "s";
  inputs[1].dims = s_dims;
  inputs[1].rank = 1;
  inputs[1].data = "ab";
  inputs[1].size = 2;
  inputs[1].offsets = s_offsets;
}

static processor_request make_request(const processor_tensor* inputs) {
  processor_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.inputs = inputs;
  request.num_inputs = 2;
  return request;
}

/* The serialized request of the same inputs in "tfserving". */
static size_t write_tfserving(unsigned char* dst) {
  /* x: dtype 1, tensor_shape {dim {size: 2}, dim {size: 3}}, tensor_content */
  static const unsigned char x_head[] = {0x12, 0x2b, 0x0a, 0x01, 'x',  0x12, 0x26, 0x08, 0x01, 0x12, 0x08,
                                         0x12, 0x02, 0x08, 0x02, 0x12, 0x02, 0x08, 0x03, 0x22, 0x18};
  /* s: dtype 7, tensor_shape {dim {size: 2}}, string_val "ab", "" */
  static const unsigned char s[] = {0x12, 0x13, 0x0a, 0x01, 's',  0x12, 0x0e, 0x08, 0x07, 0x12, 0x04,
                                    0x12, 0x02, 0x08, 0x02, 0x42, 0x02, 'a',  'b',  0x42, 0x00};
  size_t size = put(dst, 0, x_head, sizeof x_head);
  size = put(dst, size, x_values, sizeof x_values);
  return put(dst, size, s, sizeof s);
}

/* A result that consists of tensors: y and echo. */
static void check_tensors(const processor_result* result) {
  const void* data;
  size_t size;
  CHECK(processor_result_bytes(result, &data, &size) == PROCESSOR_FAILED_PRECONDITION);
  CHECK(processor_result_num_tensors(result) == 2);
  int seen = 0;
  processor_tensor tensor;
  for (size_t i = 0; i < 2; ++i) {
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    CHECK(processor_result_tensor(result, i, &tensor) == PROCESSOR_OK);
    if (tensor.name == NULL) continue;
    CHECK(tensor.rank == 1 && tensor.dims[0] == 2);
    if (strcmp(tensor.name, "y") == 0) {
      const float* y = tensor.data;
      CHECK(tensor.dtype == PROCESSOR_FLOAT && tensor.size == 8 && y[0] == 7 && y[1] == -1);
      seen |= 1;
    } else if (strcmp(tensor.name, "echo") == 0) {
      CHECK(tensor.dtype == PROCESSOR_STRING && tensor.size == 4 && memcmp(tensor.data, "ab!!", 4) == 0);
      CHECK(tensor.offsets[0] == 0 && tensor.offsets[1] == 3 && tensor.offsets[2] == 4);
      seen |= 2;
    }
  }
  CHECK(seen == 3);
  CHECK(processor_result_tensor(result, 2, &tensor) == PROCESSOR_OUT_OF_RANGE);
}

static void check_library(void) {
  uint32_t version = processor_abi_version();
  CHECK(version >> 16 == PROCESSOR_ABI_VERSION >> 16 && version >= PROCESSOR_ABI_VERSION);
  CHECK(strchr(processor_version(), '.') != NULL);
  CHECK(strstr(processor_build_info(), "\"tensorflow\"") != NULL);
  CHECK(processor_sizeof("processor_error") == sizeof(processor_error));
  CHECK(processor_sizeof("processor_load_options") == sizeof(processor_load_options));
  CHECK(processor_sizeof("processor_tensor") == sizeof(processor_tensor));
  CHECK(processor_sizeof("processor_request") == sizeof(processor_request));
  CHECK(processor_sizeof("processor_result_info") == sizeof(processor_result_info));
  CHECK(processor_sizeof("processor_completion") == sizeof(processor_completion));
  CHECK(processor_sizeof("processor_target") == sizeof(processor_target));
  CHECK(processor_sizeof("nothing") == 0);
  CHECK(strcmp(processor_status_name(PROCESSOR_DATA_LOSS), "DATA_LOSS") == 0);
  CHECK(strcmp(processor_status_name(1234), "UNKNOWN") == 0);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t off = processor_now_us() - ((int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
  CHECK(off >= 0 && off < 1000000);
}

static void count_lines(void* user_data, int32_t severity, const char* message) {
  if (severity >= PROCESSOR_LOG_INFO && message[0] != '\0') ++*(int*)user_data;
}

static void check_load_errors(const char* path) {
  processor_load_options options = {sizeof options, PROCESSOR_ABI_VERSION, "/no/such/folder", NULL};
  processor_model* model = (processor_model*)&options;
  CHECK_STATUS(processor_model_load(&options, &model, &error), PROCESSOR_NOT_FOUND, "/no/such/folder");
  CHECK(model == NULL);
  CHECK(processor_model_load(&options, &model, NULL) == PROCESSOR_NOT_FOUND);
  options.path = path;
  options.config = "{\"no_such_key\": 1}";
  CHECK_STATUS(processor_model_load(&options, &model, &error), PROCESSOR_INVALID_ARGUMENT, "no_such_key");
  options.config = "{";
  CHECK_STATUS(processor_model_load(&options, &model, &error), PROCESSOR_INVALID_ARGUMENT, "");
  options.config = NULL;
  options.abi_version = PROCESSOR_ABI_VERSION + 0x10000;
  CHECK_STATUS(processor_model_load(&options, &model, &error), PROCESSOR_FAILED_PRECONDITION, "abi_version");
  processor_model_free(NULL);
  processor_result_free(NULL);
  processor_queue_free(NULL);
}

static void check_questions(const processor_model* model) {
  static processor_status (*const questions[])(const processor_model*, processor_result**, processor_error*) = {
      processor_model_info, processor_model_signatures, processor_model_stats};
  static const char* const words[] = {"\"sessions\"", "\"serving_default\"", "\"latency_us\""};
  for (size_t i = 0; i < 3; ++i) {
    processor_result* result = NULL;
    const void* data = NULL;
    size_t size = 0;
    CHECK_STATUS(questions[i](model, &result, &error), PROCESSOR_OK, "");
    if (result == NULL) continue;
    CHECK(processor_result_bytes(result, &data, &size) == PROCESSOR_OK);
    CHECK(holds(data, size, words[i], strlen(words[i])));
    processor_result_free(result);
  }
}

static void check_run(const processor_model* model) {
  processor_tensor inputs[2];
  make_inputs(inputs);
  processor_request request = make_request(inputs);
  processor_result* result = NULL;
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_OK, "");
  if (result != NULL) {
    check_tensors(result);
    processor_result_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK(processor_result_get_info(result, &info) == PROCESSOR_OK);
    CHECK(info.session >= 0 && info.session < 2 && info.generation == 1 && info.model_version == 7);
    CHECK(info.run_ns > 0);
    processor_result_free(result);
  }

  const char* const outputs[] = {"y"};
  request.outputs = outputs;
  request.num_outputs = 1;
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_OK, "");
  CHECK(processor_result_num_tensors(result) == 1);
  processor_result_free(result);
  request.num_outputs = 0;

  request.deadline_us = processor_now_us() - 1;
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_DEADLINE_EXCEEDED, "");
  CHECK(result == NULL);
  request.deadline_us = processor_now_us() + 60000000;
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_OK, "");
  processor_result_free(result);
  request.deadline_us = 0;

  inputs[0].name = "stranger";
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_INVALID_ARGUMENT, "stranger");
  inputs[0].name = "x";
  inputs[0].dtype = PROCESSOR_INT32;
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_INVALID_ARGUMENT, "'x'");
  inputs[0].dtype = PROCESSOR_FLOAT;
  inputs[0].size = 4;
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_INVALID_ARGUMENT, "'x'");
  inputs[0].size = sizeof x_values;
  request.signature_name = "nowhere";
  CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_NOT_FOUND, "nowhere");
}

static void check_bytes(const processor_model* model) {
  static const char* const protocols[] = {"eas", "tfserving"};
  for (int i = 0; i < 2; ++i) {
    unsigned char data[256];
    processor_request request;
    memset(&request, 0, sizeof request);
    request.struct_size = sizeof request;
    request.protocol = protocols[i];
    request.data = data;
    request.size = i == 0 ? write_eas(data) : write_tfserving(data);
    processor_result* result = NULL;
    CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_OK, "");
    if (result != NULL) {
      const void* response = NULL;
      size_t size = 0;
      CHECK(processor_result_bytes(result, &response, &size) == PROCESSOR_OK);
      CHECK(processor_result_num_tensors(result) == 0);
      CHECK(holds_scores(response, size));
      processor_result_free(result);
    }
    for (size_t cut = 1; cut < request.size; ++cut) {
      processor_request part = request;
      part.size = cut;
      CHECK(processor_model_run(model, &part, &result, &error) == PROCESSOR_INVALID_ARGUMENT && result == NULL);
    }
    request.protocol = "morse";
    CHECK_STATUS(processor_model_run(model, &request, &result, &error), PROCESSOR_UNIMPLEMENTED, "morse");
  }
}

static void check_batch(const processor_model* model) {
  processor_tensor inputs[2], bad_inputs[2];
  make_inputs(inputs);
  make_inputs(bad_inputs);
  bad_inputs[1].name = "stranger";
  processor_request requests[3];
  processor_result* results[3] = {NULL, NULL, NULL};
  processor_error errors[3];
  for (int i = 0; i < 3; ++i) requests[i] = make_request(i == 1 ? bad_inputs : inputs);
  CHECK(processor_model_run_batch(model, requests, 3, results, errors) == PROCESSOR_INVALID_ARGUMENT);
  CHECK(results[1] == NULL && errors[1].code == PROCESSOR_INVALID_ARGUMENT && strstr(errors[1].message, "stranger"));
  for (int i = 0; i < 3; i += 2) {
    CHECK(errors[i].code == PROCESSOR_OK && results[i] != NULL);
    if (results[i] != NULL) check_tensors(results[i]);
    processor_result_free(results[i]);
  }
  requests[1] = requests[0];
  CHECK(processor_model_run_batch(model, requests, 3, results, NULL) == PROCESSOR_OK);
  for (int i = 0; i < 3; ++i) processor_result_free(results[i]);
}

static void check_queue(const processor_model* model) {
  processor_tensor inputs[2];
  make_inputs(inputs);
  processor_request request = make_request(inputs);
  processor_queue* queue = NULL;
  CHECK_STATUS(processor_queue_create(&queue, &error), PROCESSOR_OK, "");
  if (queue == NULL) return;
  processor_completion completions[4];
  CHECK(processor_queue_next(queue, completions, 4) == 0);

  processor_target target;
  memset(&target, 0, sizeof target);
  target.struct_size = sizeof target;
  target.queue = queue;
  uint64_t ids[10] = {0};
  for (uint64_t i = 0; i < 10; ++i) {
    target.tag = 100 + i;
    CHECK_STATUS(processor_model_run_async(model, &request, &target, &ids[i], &error), PROCESSOR_OK, "");
  }
  unsigned seen = 0;
  for (int rounds = 0; seen != 0x3ff && rounds < 100; ++rounds) {
    struct pollfd wanted = {processor_queue_fd(queue), POLLIN, 0};
    CHECK(poll(&wanted, 1, 10000) == 1);
    size_t count = processor_queue_next(queue, completions, 4);
    for (size_t i = 0; i < count; ++i) {
      CHECK(completions[i].error.code == PROCESSOR_OK && completions[i].result != NULL);
      CHECK(completions[i].tag >= 100 && completions[i].tag < 110);
      CHECK((seen & 1u << (completions[i].tag - 100)) == 0);
      seen |= 1u << (completions[i].tag - 100);
      if (completions[i].result != NULL) check_tensors(completions[i].result);
      processor_result_free(completions[i].result);
    }
  }
  CHECK(seen == 0x3ff);
  struct pollfd none = {processor_queue_fd(queue), POLLIN, 0};
  CHECK(poll(&none, 1, 0) == 0);
  CHECK_STATUS(processor_model_cancel(model, ids[0], &error), PROCESSOR_NOT_FOUND, "");
  processor_queue_free(queue);
}

struct ending {
  volatile int count;
  volatile processor_status status;
  volatile uint64_t tag;
};

static void on_done(void* user_data, uint64_t tag, processor_result* result, const processor_error* failure) {
  struct ending* ending = user_data;
  ending->status = failure->code;
  ending->tag = tag;
  processor_result_free(result);
  ++ending->count;
}

static void wait_for(const struct ending* ending) {
  const struct timespec pause = {0, 1000000};
  for (int i = 0; i < 30000 && ending->count == 0; ++i) nanosleep(&pause, NULL);
  CHECK(ending->count == 1);
}

static void check_callback_and_cancel(const char* path) {
  processor_load_options options = {sizeof options, PROCESSOR_ABI_VERSION, path, "{\"worker_threads\": 1}"};
  processor_model* model = NULL;
  CHECK_STATUS(processor_model_load(&options, &model, &error), PROCESSOR_OK, "");
  if (model == NULL) return;
  /* A request that keeps the only thread busy, and one behind it that is cancelled. */
  int32_t size = 2000;
  processor_tensor slow_input;
  memset(&slow_input, 0, sizeof slow_input);
  slow_input.struct_size = sizeof slow_input;
  slow_input.dtype = PROCESSOR_INT32;
  slow_input.name = "size";
  slow_input.data = &size;
  slow_input.size = sizeof size;
  processor_request slow = make_request(&slow_input);
  slow.num_inputs = 1;
  slow.signature_name = "slow";
  processor_tensor inputs[2];
  make_inputs(inputs);
  processor_request quick = make_request(inputs);

  struct ending first = {0, -1, 0}, second = {0, -1, 0};
  processor_target target;
  memset(&target, 0, sizeof target);
  target.struct_size = sizeof target;
  target.done = on_done;
  target.user_data = &first;
  target.tag = 1;
  CHECK_STATUS(processor_model_run_async(model, &slow, &target, NULL, &error), PROCESSOR_OK, "");
  target.user_data = &second;
  target.tag = 2;
  uint64_t id = 0;
  CHECK_STATUS(processor_model_run_async(model, &quick, &target, &id, &error), PROCESSOR_OK, "");
  CHECK_STATUS(processor_model_cancel(model, id, &error), PROCESSOR_OK, "");
  wait_for(&second);
  CHECK(second.status == PROCESSOR_CANCELLED && second.tag == 2);
  CHECK_STATUS(processor_model_cancel(model, id, &error), PROCESSOR_NOT_FOUND, "");
  CHECK_STATUS(processor_model_drain(model, processor_now_us() + 1, &error), PROCESSOR_DEADLINE_EXCEEDED, "");
  CHECK_STATUS(processor_model_drain(model, 0, &error), PROCESSOR_OK, "");
  wait_for(&first);
  CHECK(first.status == PROCESSOR_OK && first.tag == 1);
  processor_result* result = NULL;
  CHECK_STATUS(processor_model_run(model, &quick, &result, &error), PROCESSOR_UNAVAILABLE, "");
  processor_model_free(model);
  CHECK_STATUS(processor_model_run(model, &quick, &result, &error), PROCESSOR_FAILED_PRECONDITION, "");
  processor_model_free(model);
}

static void check_model(const char* path) {
  int lines = 0;
  processor_set_log_sink(count_lines, &lines, PROCESSOR_LOG_INFO);
  processor_load_options options = {sizeof options, PROCESSOR_ABI_VERSION, path, config};
  processor_model* model = NULL;
  CHECK_STATUS(processor_model_load(&options, &model, &error), PROCESSOR_OK, "");
  processor_set_log_sink(NULL, NULL, PROCESSOR_LOG_WARNING);
  CHECK(lines > 0);
  if (model == NULL) return;
  check_questions(model);
  check_run(model);
  check_bytes(model);
  check_batch(model);
  check_queue(model);
  CHECK_STATUS(processor_model_set_batching(model, "{\"mode\": \"zero_wait\"}", &error), PROCESSOR_OK, "");
  CHECK_STATUS(processor_model_set_batching(model, "{\"mode\": \"on\"}", &error), PROCESSOR_INVALID_ARGUMENT,
               "batching");
  CHECK_STATUS(processor_model_set_cpuset(model, "99999;0", &error), PROCESSOR_INVALID_ARGUMENT, "99999");
  CHECK_STATUS(processor_model_set_cpuset(model, "", &error), PROCESSOR_OK, "");
  check_run(model);
  processor_model_free(model);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fputs("usage: test_c_api MODEL\n", stderr);
    return 2;
  }
  check_library();
  check_load_errors(argv[1]);
  check_model(argv[1]);
  check_callback_and_cancel(argv[1]);
  if (failures > 0) fprintf(stderr, "%d checks failed\n", failures);
  return failures > 0;
}
