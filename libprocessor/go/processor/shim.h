/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cgo needs between Go and processor.h: structs that would hold Go pointers are built here, on the C stack, from
 * scalars, so that nothing has to be pinned.
 */
#ifndef PROCESSOR_GO_SHIM_H_
#define PROCESSOR_GO_SHIM_H_

#include <stdlib.h>
#include <string.h>

#include <processor/processor.h>

/* The end of a call. `message` is set on failure only, and is the receiver's to free. */
typedef struct shim_answer {
  processor_status status;
  char *message;
  processor_result *result;
} shim_answer;

static inline shim_answer shim_end(processor_status status, const processor_error *error, processor_result *result) {
  shim_answer answer = {status, NULL, NULL};
  if (status == PROCESSOR_OK) {
    answer.result = result;
  } else {
    answer.message = strdup(error->message);
  }
  return answer;
}

static inline processor_request shim_request(const char *protocol, const void *data, size_t size, const char *signature,
                                             const processor_tensor *inputs, size_t num_inputs,
                                             const char *const *outputs, size_t num_outputs, int64_t deadline_us,
                                             int32_t priority) {
  processor_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.priority = priority;
  request.deadline_us = deadline_us;
  request.protocol = protocol;
  request.data = data;
  request.size = size;
  request.signature_name = signature;
  request.inputs = inputs;
  request.num_inputs = num_inputs;
  request.outputs = outputs;
  request.num_outputs = num_outputs;
  return request;
}

static inline processor_status shim_load(const char *path, const char *config, processor_model **model,
                                         char **message) {
  processor_load_options options = {sizeof options, PROCESSOR_ABI_VERSION, path, config};
  processor_error error;
  memset(&error, 0, sizeof error);
  processor_status status = processor_model_load(&options, model, &error);
  if (status != PROCESSOR_OK) *message = strdup(error.message);
  return status;
}

static inline shim_answer shim_run(const processor_model *model, const char *protocol, const void *data, size_t size,
                                   const char *signature, const processor_tensor *inputs, size_t num_inputs,
                                   const char *const *outputs, size_t num_outputs, int64_t deadline_us,
                                   int32_t priority) {
  processor_request request =
      shim_request(protocol, data, size, signature, inputs, num_inputs, outputs, num_outputs, deadline_us, priority);
  processor_error error;
  error.message[0] = '\0';
  processor_result *result = NULL;
  processor_status status = processor_model_run(model, &request, &result, &error);
  return shim_end(status, &error, result);
}

/* `request_id` may be NULL. The answer's result is always NULL: it comes through the queue. */
static inline shim_answer shim_run_async(const processor_model *model, processor_queue *queue, uint64_t tag,
                                         const char *protocol, const void *data, size_t size, const char *signature,
                                         const processor_tensor *inputs, size_t num_inputs, const char *const *outputs,
                                         size_t num_outputs, int64_t deadline_us, int32_t priority,
                                         uint64_t *request_id) {
  processor_request request =
      shim_request(protocol, data, size, signature, inputs, num_inputs, outputs, num_outputs, deadline_us, priority);
  processor_target target;
  memset(&target, 0, sizeof target);
  target.struct_size = sizeof target;
  target.tag = tag;
  target.queue = queue;
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_model_run_async(model, &request, &target, request_id, &error);
  return shim_end(status, &error, NULL);
}

typedef processor_status (*shim_question_fn)(const processor_model *, processor_result **, processor_error *);

static inline shim_answer shim_ask(const processor_model *model, shim_question_fn question) {
  processor_error error;
  error.message[0] = '\0';
  processor_result *result = NULL;
  processor_status status = question(model, &result, &error);
  return shim_end(status, &error, result);
}

static inline shim_answer shim_info(const processor_model *model) { return shim_ask(model, processor_model_info); }
static inline shim_answer shim_stats(const processor_model *model) { return shim_ask(model, processor_model_stats); }
static inline shim_answer shim_signatures(const processor_model *model) {
  return shim_ask(model, processor_model_signatures);
}

static inline shim_answer shim_drain(const processor_model *model, int64_t deadline_us) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_model_drain(model, deadline_us, &error);
  return shim_end(status, &error, NULL);
}

static inline shim_answer shim_set_cpuset(const processor_model *model, const char *cpuset) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_model_set_cpuset(model, cpuset, &error);
  return shim_end(status, &error, NULL);
}

static inline shim_answer shim_queue_create(processor_queue **queue) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_queue_create(queue, &error);
  return shim_end(status, &error, NULL);
}

/* What a result holds: bytes (`is_bytes`), else tensors. */
typedef struct shim_contents {
  int is_bytes;
  const void *data;
  size_t size;
  size_t num_tensors;
  processor_result_info info;
} shim_contents;

static inline shim_contents shim_look(const processor_result *result) {
  shim_contents contents;
  memset(&contents, 0, sizeof contents);
  contents.is_bytes = processor_result_bytes(result, &contents.data, &contents.size) == PROCESSOR_OK;
  contents.num_tensors = processor_result_num_tensors(result);
  contents.info.struct_size = sizeof contents.info;
  processor_result_get_info(result, &contents.info);
  return contents;
}

static inline processor_tensor shim_tensor(const processor_result *result, size_t index) {
  processor_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  processor_result_tensor(result, index, &tensor);
  return tensor;
}

#endif /* PROCESSOR_GO_SHIM_H_ */
