/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that was compiled with an earlier processor.h: old_host MODEL STATE. MODEL is the folder that
 * tests/helpers/models/host_model.py exports, STATE an empty folder for the host of version 1.1. The program exits with 0
 * if the library of today serves it, and prints what differs otherwise.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <processor/processor.h>

#include "../c_api_checks.h"

static processor_error error;

/* The structs of an earlier version are smaller than the library's: it must not write behind them. */
static void check_info(const processor_result* result) {
  struct {
    processor_result_info info;
    unsigned char behind[256];
  } guarded;
  memset(&guarded, 0xa5, sizeof guarded);
  guarded.info.struct_size = sizeof guarded.info;
  CHECK(processor_result_get_info(result, &guarded.info) == PROCESSOR_OK);
  CHECK(guarded.info.session >= 0 && guarded.info.session < 2 && guarded.info.run_ns > 0);
  for (size_t i = 0; i < sizeof guarded.behind; ++i) CHECK(guarded.behind[i] == 0xa5);
}

static void check_bytes(processor_result* result) {
  const void* data = NULL;
  size_t size = 0;
  CHECK(processor_result_bytes(result, &data, &size) == PROCESSOR_OK && holds_scores(data, size));
  check_info(result);
  processor_result_free(result);
}

static void check_tensors(const processor_model* model) {
  static const int64_t x_dims[2] = {2, 3}, s_dims[1] = {2}, offsets[3] = {0, 2, 2};
  processor_tensor inputs[2];
  memset(inputs, 0, sizeof inputs);
  inputs[0].struct_size = inputs[1].struct_size = sizeof inputs[0];
  inputs[0].name = "x";
  inputs[0].dtype = PROCESSOR_FLOAT;
  inputs[0].dims = x_dims;
  inputs[0].rank = 2;
  inputs[0].data = x_values;
  inputs[0].size = sizeof x_values;
  inputs[1].name = "s";
  inputs[1].dtype = PROCESSOR_STRING;
  inputs[1].dims = s_dims;
  inputs[1].rank = 1;
  inputs[1].data = "ab";
  inputs[1].size = 2;
  inputs[1].offsets = offsets;
  static const char* const outputs[1] = {"y"};
  processor_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.inputs = inputs;
  request.num_inputs = 2;
  request.outputs = outputs;
  request.num_outputs = 1;
  processor_result* result = NULL;
  CHECK(processor_model_run(model, &request, &result, &error) == PROCESSOR_OK);
  if (result == NULL) return;
  processor_tensor y;
  memset(&y, 0, sizeof y);
  y.struct_size = sizeof y;
  CHECK(processor_result_num_tensors(result) == 1);
  CHECK(processor_result_tensor(result, 0, &y) == PROCESSOR_OK && y.dtype == PROCESSOR_FLOAT);
  static const float scores[2] = {7, -1};
  CHECK(y.size == sizeof scores && memcmp(y.data, scores, sizeof scores) == 0);
  processor_result_free(result);
}

static void check_async(const processor_model* model, const processor_request* request) {
  processor_queue* queue = NULL;
  CHECK(processor_queue_create(&queue, &error) == PROCESSOR_OK);
  if (queue == NULL) return;
  processor_target target;
  memset(&target, 0, sizeof target);
  target.struct_size = sizeof target;
  target.tag = 17;
  target.queue = queue;
  uint64_t id = 0;
  CHECK(processor_model_run_async(model, request, &target, &id, &error) == PROCESSOR_OK);
  struct pollfd ready = {processor_queue_fd(queue), POLLIN, 0};
  processor_completion completion;
  memset(&completion, 0, sizeof completion);
  CHECK(poll(&ready, 1, 60000) == 1 && processor_queue_next(queue, &completion, 1) == 1);
  CHECK(completion.tag == 17 && completion.error.code == PROCESSOR_OK && completion.result != NULL);
  if (completion.result != NULL) check_bytes(completion.result);
  processor_queue_free(queue);
}

static void check_model(const char* path) {
  processor_load_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.abi_version = PROCESSOR_ABI_VERSION;
  options.path = path;
  options.config = "{\"session_num\": 2}";
  processor_model* model = NULL;
  CHECK(processor_model_load(&options, &model, &error) == PROCESSOR_OK);
  if (model == NULL) {
    fprintf(stderr, "%s\n", error.message);
    return;
  }
  unsigned char data[256];
  processor_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.protocol = "eas";
  request.data = data;
  request.size = write_eas(data);
  processor_result* result = NULL;
  CHECK(processor_model_run(model, &request, &result, &error) == PROCESSOR_OK);
  if (result != NULL) check_bytes(result);
  check_tensors(model);
  check_async(model, &request);
  processor_model_free(model);
}

#if PROCESSOR_ABI_VERSION >= 0x00010001
static void write_desired(const char* folder, const char* model) {
  char path[4096];
  snprintf(path, sizeof path, "%s/desired.json", folder);
  FILE* file = fopen(path, "w");
  CHECK(file != NULL);
  if (file == NULL) return;
  fprintf(file, "{\"schema\": 1, \"generation\": 1, \"models\": {\"m\": {\"baseline\": 7, \"versions\": ");
  fprintf(file, "{\"7\": {\"path\": \"%s\", \"config\": {\"session_num\": 2}}}}}}", model);
  fclose(file);
}

static void check_host(const char* folder, const char* model) {
  write_desired(folder, model);
  processor_host_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.abi_version = PROCESSOR_ABI_VERSION;
  options.state_dir = folder;
  options.host_id = "old";
  processor_host* host = NULL;
  CHECK(processor_host_create(&options, &host, &error) == PROCESSOR_OK);
  if (host == NULL) return;
  unsigned char data[256];
  processor_host_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.protocol = "eas";
  request.data = data;
  request.size = write_eas(data);
  request.model_name = "m";
  processor_result* result = NULL;
  processor_status status = PROCESSOR_UNAVAILABLE;
  const struct timespec pause = {0, 10000000};
  for (int i = 0; i < 3000 && status != PROCESSOR_OK; ++i) {
    processor_result_free(result);
    result = NULL;
    status = processor_host_process(host, &request, &result, &error);
    if (status != PROCESSOR_OK) nanosleep(&pause, NULL);
  }
  CHECK(status == PROCESSOR_OK && result != NULL);
  if (result != NULL && status == PROCESSOR_OK) check_bytes(result);
  CHECK(processor_host_drain(host, processor_now_us() + 10000000, &error) == PROCESSOR_OK);
  processor_host_free(host);
}
#endif

/* Without a struct that has grown since, the checks above would show nothing. */
static void check_sizes(void) {
#if PROCESSOR_ABI_VERSION >= 0x00010001
  CHECK(processor_sizeof("processor_host_request") > sizeof(processor_host_request));
  CHECK(processor_sizeof("processor_host_options") > sizeof(processor_host_options));
#else
  CHECK(processor_sizeof("processor_result_info") > sizeof(processor_result_info));
#endif
  CHECK(processor_abi_version() > PROCESSOR_ABI_VERSION);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  check_sizes();
  check_model(argv[1]);
#if PROCESSOR_ABI_VERSION >= 0x00010001
  check_host(argv[2], argv[1]);
#endif
  return failures == 0 ? 0 : 1;
}
