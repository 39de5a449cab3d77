/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cgo needs between Go and the hosts of processor.h. A call is described by numbers alone, in C's memory: its texts
 * are places in a buffer of Go's, which holds no pointers either, so that nothing has to be pinned.
 */
#ifndef PROCESSOR_GO_HOST_SHIM_H_
#define PROCESSOR_GO_HOST_SHIM_H_

#include <stdbool.h>

#include "shim.h"

#define SHIM_MOST_PAIRS 32

typedef struct shim_pair {
  uint32_t key, value, value_size;
} shim_pair;

/* One request and its answer. Texts begin at these places of the buffer `text` and end with a NUL. */
typedef struct shim_host_call {
  int64_t deadline_us;
  int64_t model_version;
  int32_t priority;
  uint32_t protocol, method, model, label;
  uint32_t num_pairs;
  shim_pair pairs[SHIM_MOST_PAIRS];
  /* The answer. The result is the receiver's to free, also after a failure. */
  processor_status status;
  processor_result *result;
  const void *bytes;
  size_t size;
  processor_result_info info;
  uint32_t model_name_size, arm_size, cpuset_size;
  uint64_t id;
  processor_error error;
} shim_host_call;

static inline processor_host_request shim_host_request(const shim_host_call *call, const char *text, const void *data,
                                                       size_t size, processor_pair *pairs) {
  for (uint32_t i = 0; i < call->num_pairs; ++i) {
    pairs[i].key = text + call->pairs[i].key;
    pairs[i].value = text + call->pairs[i].value;
    pairs[i].value_size = call->pairs[i].value_size;
  }
  processor_host_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.priority = call->priority;
  request.deadline_us = call->deadline_us;
  request.protocol = text + call->protocol;
  /* Without a method it is the protocol's first one. */
  request.method = text[call->method] == '\0' ? NULL : text + call->method;
  request.data = data;
  request.size = size;
  request.model_name = text + call->model;
  request.model_version = call->model_version;
  request.version_label = text + call->label;
  request.metadata = pairs;
  request.num_metadata = call->num_pairs;
  return request;
}

static inline uint32_t shim_text_size(const char *text) { return text == NULL ? 0 : (uint32_t)strlen(text); }

/* Look into the result of a call. */
static inline void shim_host_look(shim_host_call *call) {
  call->bytes = NULL;
  call->size = 0;
  memset(&call->info, 0, sizeof call->info);
  call->info.struct_size = sizeof call->info;
  call->info.session = -1;
  call->info.model_version = -1;
  if (call->result == NULL) return;
  processor_result_get_info(call->result, &call->info);
  call->model_name_size = shim_text_size(call->info.model_name);
  call->arm_size = shim_text_size(call->info.arm);
  call->cpuset_size = shim_text_size(call->info.cpuset);
  if (call->status == PROCESSOR_OK) processor_result_bytes(call->result, &call->bytes, &call->size);
}

/* On this thread, unless the graph has loops: true if it has, so that nothing has happened. */
static inline bool shim_host_process(const processor_host *host, shim_host_call *call, const char *text,
                                     const void *data, size_t size) {
  processor_pair pairs[SHIM_MOST_PAIRS];
  processor_host_request request = shim_host_request(call, text, data, size, pairs);
  request.only_if_bounded = 1;
  call->result = NULL;
  call->error.message[0] = '\0';
  call->status = processor_host_process(host, &request, &call->result, &call->error);
  if (call->status == PROCESSOR_ABORTED && call->result == NULL) return true;
  shim_host_look(call);
  return false;
}

/* The answer comes through the queue, if the status is OK. */
static inline void shim_host_process_async(const processor_host *host, shim_host_call *call, const char *text,
                                           const void *data, size_t size, processor_queue *queue, uint64_t tag) {
  processor_pair pairs[SHIM_MOST_PAIRS];
  const processor_host_request request = shim_host_request(call, text, data, size, pairs);
  processor_target target;
  memset(&target, 0, sizeof target);
  target.struct_size = sizeof target;
  target.tag = tag;
  target.queue = queue;
  call->error.message[0] = '\0';
  call->id = 0;
  call->status = processor_host_process_async(host, &request, &target, &call->id, &call->error);
}

static inline shim_answer shim_host_create(const char *state_dir, const char *id, const char *maintenance_cpus,
                                           int owns_process, processor_host **host) {
  processor_host_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.abi_version = PROCESSOR_ABI_VERSION;
  options.state_dir = state_dir;
  options.host_id = id;
  options.maintenance_cpus = maintenance_cpus;
  options.owns_process = owns_process;
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_host_create(&options, host, &error);
  return shim_end(status, &error, NULL);
}

/* Memory of `room` bytes with the contents of `old`, which has `held`; both are claimed from the budget of requests. NULL
 * with the reason in `error`; `old` stays then. */
static inline void *shim_buffer_grow(void *old, size_t held, size_t room, processor_error *error) {
  error->code = processor_request_bytes_claim(held, room - held, error);
  if (error->code != PROCESSOR_OK) return NULL;
  void *memory = realloc(old, room);
  if (memory != NULL) return memory;
  processor_request_bytes_release(room - held);
  error->code = PROCESSOR_RESOURCE_EXHAUSTED;
  strcpy(error->message, "request: no memory left");
  return NULL;
}

static inline void shim_buffer_free(void *memory, size_t room) {
  free(memory);
  processor_request_bytes_release(room);
}

static inline shim_answer shim_request_bytes_set_limit(uint64_t bytes) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_request_bytes_set_limit(bytes, &error);
  return shim_end(status, &error, NULL);
}

typedef processor_status (*shim_host_question_fn)(const processor_host *, processor_result **, processor_error *);

static inline shim_answer shim_host_ask(const processor_host *host, shim_host_question_fn question) {
  processor_error error;
  error.message[0] = '\0';
  processor_result *result = NULL;
  processor_status status = question(host, &result, &error);
  return shim_end(status, &error, result);
}

static inline shim_answer shim_host_status(const processor_host *host) {
  return shim_host_ask(host, processor_host_status);
}

static inline shim_answer shim_host_metrics(const processor_host *host) {
  return shim_host_ask(host, processor_host_metrics);
}

static inline shim_answer shim_host_set_endpoint(const processor_host *host, const char *name, const char *address) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_host_set_endpoint(host, name, address, &error);
  return shim_end(status, &error, NULL);
}

static inline shim_answer shim_host_claim_port(const processor_host *host, const char *address, int32_t port) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_host_claim_port(host, address, port, &error);
  return shim_end(status, &error, NULL);
}

static inline shim_answer shim_host_prepare_end(const processor_host *host) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_host_prepare_end(host, &error);
  return shim_end(status, &error, NULL);
}

static inline shim_answer shim_host_cancel(const processor_host *host, uint64_t id) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_host_cancel(host, id, &error);
  return shim_end(status, &error, NULL);
}

static inline shim_answer shim_host_drain(const processor_host *host, int64_t deadline_us) {
  processor_error error;
  error.message[0] = '\0';
  processor_status status = processor_host_drain(host, deadline_us, &error);
  return shim_end(status, &error, NULL);
}

#endif /* PROCESSOR_GO_HOST_SHIM_H_ */
