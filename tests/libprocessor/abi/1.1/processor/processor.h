/* SPDX-License-Identifier: Apache-2.0 */
/* processor.h 1.1 without its comments. Frozen: hosts have been compiled with it. */
#ifndef PROCESSOR_PROCESSOR_H_
#define PROCESSOR_PROCESSOR_H_
#include <stddef.h>
#include <stdint.h>
#if defined(__GNUC__)
#define PROCESSOR_API __attribute__((visibility("default")))
#else
#define PROCESSOR_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define PROCESSOR_ABI_VERSION 0x00010001
PROCESSOR_API uint32_t processor_abi_version(void);
PROCESSOR_API const char* processor_version(void);
PROCESSOR_API const char* processor_build_info(void);
PROCESSOR_API size_t processor_sizeof(const char* struct_name);
typedef int32_t processor_status;
#define PROCESSOR_OK 0
#define PROCESSOR_CANCELLED 1
#define PROCESSOR_UNKNOWN 2
#define PROCESSOR_INVALID_ARGUMENT 3
#define PROCESSOR_DEADLINE_EXCEEDED 4
#define PROCESSOR_NOT_FOUND 5
#define PROCESSOR_ALREADY_EXISTS 6
#define PROCESSOR_PERMISSION_DENIED 7
#define PROCESSOR_RESOURCE_EXHAUSTED 8
#define PROCESSOR_FAILED_PRECONDITION 9
#define PROCESSOR_ABORTED 10
#define PROCESSOR_OUT_OF_RANGE 11
#define PROCESSOR_UNIMPLEMENTED 12
#define PROCESSOR_INTERNAL 13
#define PROCESSOR_UNAVAILABLE 14
#define PROCESSOR_DATA_LOSS 15
#define PROCESSOR_UNAUTHENTICATED 16
typedef struct processor_error {
  processor_status code;
  char message[1020];
} processor_error;
PROCESSOR_API const char* processor_status_name(processor_status code);
#define PROCESSOR_LOG_INFO 0
#define PROCESSOR_LOG_WARNING 1
#define PROCESSOR_LOG_ERROR 2
typedef void (*processor_log_fn)(void* user_data, int32_t severity, const char* message);
PROCESSOR_API void processor_set_log_sink(processor_log_fn sink, void* user_data, int32_t min_severity);
typedef struct processor_model processor_model;
typedef struct processor_result processor_result;
typedef struct processor_load_options {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* path;
  const char* config;
} processor_load_options;
PROCESSOR_API processor_status processor_model_load(const processor_load_options* options, processor_model** model,
                                                    processor_error* error);
PROCESSOR_API void processor_model_free(processor_model* model);
PROCESSOR_API processor_status processor_model_drain(const processor_model* model, int64_t deadline_us,
                                                     processor_error* error);
PROCESSOR_API processor_status processor_model_set_cpuset(const processor_model* model, const char* cpuset,
                                                          processor_error* error);
PROCESSOR_API processor_status processor_model_set_batching(const processor_model* model, const char* batching,
                                                            processor_error* error);
PROCESSOR_API processor_status processor_model_info(const processor_model* model, processor_result** result,
                                                    processor_error* error);
PROCESSOR_API processor_status processor_model_signatures(const processor_model* model, processor_result** result,
                                                          processor_error* error);
PROCESSOR_API processor_status processor_model_stats(const processor_model* model, processor_result** result,
                                                     processor_error* error);
#define PROCESSOR_FLOAT 1
#define PROCESSOR_DOUBLE 2
#define PROCESSOR_INT32 3
#define PROCESSOR_UINT8 4
#define PROCESSOR_INT16 5
#define PROCESSOR_INT8 6
#define PROCESSOR_STRING 7
#define PROCESSOR_COMPLEX64 8
#define PROCESSOR_INT64 9
#define PROCESSOR_BOOL 10
#define PROCESSOR_BFLOAT16 14
#define PROCESSOR_UINT16 17
#define PROCESSOR_COMPLEX128 18
#define PROCESSOR_HALF 19
#define PROCESSOR_UINT32 22
#define PROCESSOR_UINT64 23
typedef struct processor_tensor {
  uint32_t struct_size;
  int32_t dtype;
  const char* name;
  const int64_t* dims;
  int32_t rank;
  uint32_t item_size;
  const void* data;
  size_t size;
  const int64_t* offsets;
} processor_tensor;
typedef struct processor_request {
  uint32_t struct_size;
  int32_t priority;
  int64_t deadline_us;
  const char* protocol;
  const void* data;
  size_t size;
  const char* signature_name;
  const processor_tensor* inputs;
  size_t num_inputs;
  const char* const* outputs;
  size_t num_outputs;
} processor_request;
typedef struct processor_result_info {
  uint32_t struct_size;
  int32_t session;
  int64_t model_version;
  uint64_t generation;
  int64_t queue_ns;
  int64_t decode_ns;
  int64_t run_ns;
  int64_t encode_ns;
  const char* model_name;
  const char* arm;
  const char* cpuset;
  int64_t total_ns;
  int64_t batch_rows;
  int64_t retry_after_us;
  uint64_t header_length;
} processor_result_info;
PROCESSOR_API int64_t processor_now_us(void);
PROCESSOR_API processor_status processor_model_run(const processor_model* model, const processor_request* request,
                                                   processor_result** result, processor_error* error);
PROCESSOR_API processor_status processor_model_run_batch(const processor_model* model,
                                                         const processor_request* requests, size_t num_requests,
                                                         processor_result** results, processor_error* errors);
typedef void (*processor_done_fn)(void* user_data, uint64_t tag, processor_result* result,
                                  const processor_error* error);
typedef struct processor_queue processor_queue;
typedef struct processor_completion {
  uint64_t tag;
  processor_result* result;
  processor_error error;
} processor_completion;
typedef struct processor_target {
  uint32_t struct_size;
  uint64_t tag;
  processor_done_fn done;
  void* user_data;
  processor_queue* queue;
} processor_target;
PROCESSOR_API processor_status processor_model_run_async(const processor_model* model, const processor_request* request,
                                                         const processor_target* target, uint64_t* request_id,
                                                         processor_error* error);
PROCESSOR_API processor_status processor_model_cancel(const processor_model* model, uint64_t request_id,
                                                      processor_error* error);
PROCESSOR_API processor_status processor_queue_create(processor_queue** queue, processor_error* error);
PROCESSOR_API int processor_queue_fd(const processor_queue* queue);
PROCESSOR_API size_t processor_queue_next(const processor_queue* queue, processor_completion* completions,
                                          size_t capacity);
PROCESSOR_API void processor_queue_free(processor_queue* queue);
PROCESSOR_API uint32_t processor_routing_bucket(const void* salt, size_t salt_size, const void* key, size_t key_size);
PROCESSOR_API processor_status processor_result_bytes(const processor_result* result, const void** data, size_t* size);
PROCESSOR_API size_t processor_result_num_tensors(const processor_result* result);
PROCESSOR_API processor_status processor_result_tensor(const processor_result* result, size_t index,
                                                       processor_tensor* tensor);
PROCESSOR_API processor_status processor_result_get_info(const processor_result* result, processor_result_info* info);
PROCESSOR_API void processor_result_free(processor_result* result);
typedef struct processor_host processor_host;
typedef struct processor_host_options {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* state_dir;
  const char* host_id;
  const char* maintenance_cpus;
  int32_t owns_process;
} processor_host_options;
typedef struct processor_pair {
  const char* key;
  const void* value;
  size_t value_size;
} processor_pair;
typedef struct processor_host_request {
  uint32_t struct_size;
  int32_t priority;
  int64_t deadline_us;
  const char* protocol;
  const char* method;
  const void* data;
  size_t size;
  const char* model_name;
  int64_t model_version;
  const char* version_label;
  const processor_pair* metadata;
  size_t num_metadata;
} processor_host_request;
PROCESSOR_API processor_status processor_host_create(const processor_host_options* options, processor_host** host,
                                                     processor_error* error);
PROCESSOR_API processor_status processor_host_process(const processor_host* host, const processor_host_request* request,
                                                      processor_result** result, processor_error* error);
PROCESSOR_API processor_status processor_host_process_async(const processor_host* host,
                                                            const processor_host_request* request,
                                                            const processor_target* target, uint64_t* request_id,
                                                            processor_error* error);
PROCESSOR_API processor_status processor_host_cancel(const processor_host* host, uint64_t request_id,
                                                     processor_error* error);
PROCESSOR_API processor_status processor_host_status(const processor_host* host, processor_result** result,
                                                     processor_error* error);
PROCESSOR_API processor_status processor_host_metrics(const processor_host* host, processor_result** result,
                                                      processor_error* error);
PROCESSOR_API processor_status processor_host_set_endpoint(const processor_host* host, const char* name,
                                                           const char* address, processor_error* error);
PROCESSOR_API processor_status processor_host_drain(const processor_host* host, int64_t deadline_us,
                                                    processor_error* error);
PROCESSOR_API void processor_host_free(processor_host* host);
#ifdef __cplusplus
}
#endif
#endif
