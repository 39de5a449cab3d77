/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file processor.h
 * \brief The C ABI of libprocessor: TensorFlow SavedModels served in-process.
 *
 * A *model* is a SavedModel loaded into a group of sessions that share its variables. It is loaded once, answers
 * requests from any number of threads, may follow a checkpoint directory, and is freed once.
 *
 *     processor_model *model = NULL;
 *     processor_error error;
 *     processor_load_options options = {sizeof options, PROCESSOR_ABI_VERSION, "/models/ranking/7", NULL};
 *     if (processor_model_load(&options, &model, &error) != PROCESSOR_OK) { puts(error.message); return 1; }
 *
 *     processor_request request = {sizeof request};
 *     request.protocol = "tfserving", request.data = bytes, request.size = length;
 *     processor_result *result = NULL;
 *     if (processor_model_run(model, &request, &result, &error) == PROCESSOR_OK) {
 *       const void *data; size_t size;
 *       processor_result_bytes(result, &data, &size);
 *       ...
 *       processor_result_free(result);
 *     }
 *     processor_model_free(model);
 *
 * Rules, which hold for every function:
 *
 *  1. `*_create` and `*_load` pair with `*_free`; `*_free(NULL)` does nothing.
 *  2. Parameters come in the order object, inputs, outputs, error. The error may be NULL.
 *  3. Inputs are borrowed for the length of the call, also by asynchronous calls, which copy what they need.
 *  4. Outputs of a known size are written into memory of the caller. Others are put into a `processor_result`, which
 *     the caller frees; views into a result are valid until it is freed.
 *  5. A returned pointer is borrowed. It is valid as long as the object that returned it.
 *  6. A function that takes `const T *` may be called concurrently. For `T *`, the caller serializes the calls.
 *  7. A callback takes `void *user_data`, may come on any thread, must not block, and must not call a function that
 *     waits for requests (`*_free`, `*_drain`, `processor_model_run*` and `processor_host_process` without `_async`).
 *  8. A struct that can grow starts with `uint32_t struct_size`, which the caller sets to `sizeof` of the struct. The
 *     library takes the members beyond that size as zero, and does not write them.
 *  9. Every binding checks `processor_abi_version()` before anything else: the major parts must be equal, and the minor
 *     part of the library must not be smaller than that of the header.
 * 10. Only `processor_*` and the four functions of deeprec.h are exported.
 *
 * A failing function writes status and message into the caller's `processor_error`. There is no thread-local state, and
 * nothing in an error has to be freed. Messages read `<object>: <what was found>, expected <what>`. A message that is
 * longer than the struct is truncated there and logged in full. No C++ exception passes this boundary.
 *
 * A *host* serves the models and versions that a file lists: see "Hosts" below and docs/model_host.md.
 *
 * Handles of models and hosts are checked: a call on a freed handle returns FAILED_PRECONDITION. The memory of a handle
 * is reused after 4,096 later loads; from then on the call may reach another object.
 */
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

/* --8<-- cdef begin: the text up to "cdef end" is also the declaration that the Python binding compiles. */

/** \defgroup version Version
 * @{ */

/** Version of the ABI that this header describes: major << 16 | minor. */
#define PROCESSOR_ABI_VERSION 0x00010003

/** \brief Return the ABI version of the library, major << 16 | minor. */
PROCESSOR_API uint32_t processor_abi_version(void);

/** \brief Return the release of the library, as in "0.1.0". */
PROCESSOR_API const char *processor_version(void);

/**
 * \brief Return what the library was built with and runs on, as JSON.
 *
 * Keys: `version`, `abi_version`, `tensorflow` {`built`, `running`}, `onednn` {`version`, `isa`}, `cpus` (those that
 * the process may use), `protocols`. The text is borrowed and lives as long as the library.
 */
PROCESSOR_API const char *processor_build_info(void);

/**
 * \brief Return the size in bytes of a struct in the library, by its name without "struct"; 0 if the name is unknown.
 *
 * A binding that cannot include this header compares its own sizes with these.
 */
PROCESSOR_API size_t processor_sizeof(const char *struct_name);

/** @} */

/** \defgroup status Status
 * The canonical codes of gRPC and TensorFlow, number for number.
 * @{ */

typedef int32_t processor_status;

#define PROCESSOR_OK 0
/** The request was cancelled by `processor_model_cancel` or `processor_host_cancel`, or its model was freed. */
#define PROCESSOR_CANCELLED 1
/** No other status describes the failure. The fault is in the model or the library. */
#define PROCESSOR_UNKNOWN 2
/** The request or the configuration is wrong, whatever the state of the model. The fault is the caller's. */
#define PROCESSOR_INVALID_ARGUMENT 3
/** The deadline passed before the request was answered. */
#define PROCESSOR_DEADLINE_EXCEEDED 4
/** A file, signature, output, model or version does not exist. */
#define PROCESSOR_NOT_FOUND 5
/** The object exists already: a host with that id is running. */
#define PROCESSOR_ALREADY_EXISTS 6
/** The process has no permission to access a file. */
#define PROCESSOR_PERMISSION_DENIED 7
/** The model's queue or the memory is full. Try again later, or elsewhere. */
#define PROCESSOR_RESOURCE_EXHAUSTED 8
/** The object is closed, or was built against another ABI version. The fault is the caller's. */
#define PROCESSOR_FAILED_PRECONDITION 9
/** A host did not run the request because of `only_if_bounded`, or TensorFlow aborted the run. */
#define PROCESSOR_ABORTED 10
/** A position lies outside of its range: there is no tensor with that index in a result. */
#define PROCESSOR_OUT_OF_RANGE 11
/** The library does not support this: an unknown protocol, a custom op. */
#define PROCESSOR_UNIMPLEMENTED 12
/** The fault is in the library. */
#define PROCESSOR_INTERNAL 13
/** The model or host is draining, or the host has not loaded the model yet. Try elsewhere, or later. */
#define PROCESSOR_UNAVAILABLE 14
/** A file is damaged. */
#define PROCESSOR_DATA_LOSS 15
/** The library itself does not return this. */
#define PROCESSOR_UNAUTHENTICATED 16

/** \brief What went wrong; written only by a failing function. Nothing in it is to be freed. */
typedef struct processor_error {
  /** One of the codes above. */
  processor_status code;
  /** UTF-8 text that ends with a NUL; truncated to fit. */
  char message[1020];
} processor_error;

/** \brief Return the canonical name of a code, such as "INVALID_ARGUMENT"; "UNKNOWN" for any other number. */
PROCESSOR_API const char *processor_status_name(processor_status code);

/** @} */

/** \defgroup log Log
 * @{ */

#define PROCESSOR_LOG_INFO 0
#define PROCESSOR_LOG_WARNING 1
#define PROCESSOR_LOG_ERROR 2

/** \brief Receive one line of the log, without a line feed. The text lives for the length of the call. */
typedef void (*processor_log_fn)(void *user_data, int32_t severity, const char *message);

/**
 * \brief Send the library's log to a function instead of stderr.
 *
 * The sink is that of the whole process. When the function returns, the previous sink is not running, and is never
 * called again.
 *
 * \param sink          the function to call; NULL for stderr.
 * \param user_data     passed to the sink; the caller keeps it valid as long as the sink is set.
 * \param min_severity  lines of a lower severity are dropped (initially PROCESSOR_LOG_WARNING).
 */
PROCESSOR_API void processor_set_log_sink(processor_log_fn sink, void *user_data, int32_t min_severity);

/** @} */

/** \defgroup model Models
 * @{ */

/** A loaded model. Every function on it may be called from any number of threads at once, also while it is freed. */
typedef struct processor_model processor_model;

/** The response to a request or a query. The caller owns it and frees it with processor_result_free(). */
typedef struct processor_result processor_result;

/** \brief What to load. */
typedef struct processor_load_options {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** PROCESSOR_ABI_VERSION of the same header. */
  uint32_t abi_version;
  /** Folder that holds saved_model.pb; NULL if the configuration names it (`savedmodel_dir`). */
  const char *path;
  /** JSON object, see docs/configuration.md; NULL for the defaults. */
  const char *config;
} processor_load_options;

/**
 * \brief Load a model, warm up each of its sessions, and return it when it is ready.
 *
 * A model is either ready or failed, never half loaded. The call blocks until the model is loaded. If the folder does
 * not exist yet, it waits at most as long as `init_timeout_minutes` of the configuration says.
 *
 * \param[out] model  the caller frees it with processor_model_free(); NULL on failure.
 * \return INVALID_ARGUMENT for a key of the configuration that is unknown or out of range,
 *         NOT_FOUND for a missing folder, file or signature, DATA_LOSS or INTERNAL for a damaged one,
 *         UNIMPLEMENTED for ops that are not TensorFlow's own,
 *         FAILED_PRECONDITION for another ABI version.
 */
PROCESSOR_API processor_status processor_model_load(const processor_load_options *options, processor_model **model,
                                                    processor_error *error);

/**
 * \brief Free a model: refuse new requests, fail the waiting ones with CANCELLED, wait for the running ones.
 *
 * Running requests have `drain_seconds` of the configuration (10 s) to end, or no time if processor_model_drain() was
 * called before. After that they are cancelled, as by processor_model_cancel(), and the call waits until they have
 * stopped. Loading of a checkpoint is cancelled, too: the call waits for at most one step of it, which is reading the
 * graph, restoring a variable, or making one session.
 *
 * A second call on the same handle does nothing.
 */
PROCESSOR_API void processor_model_free(processor_model *model);

/**
 * \brief Refuse new requests with UNAVAILABLE and wait until the admitted ones have been answered.
 *
 * \param deadline_us  see processor_request.deadline_us; 0 waits without a limit.
 * \return OK when no request is left, DEADLINE_EXCEEDED otherwise; the model then continues to drain.
 */
PROCESSOR_API processor_status processor_model_drain(const processor_model *model, int64_t deadline_us,
                                                     processor_error *error);

/**
 * \brief Move the sessions of a live model to other CPUs, without reloading it.
 *
 * \param cpuset  as the key `cpusets`: one group per session, separated by ';', each of single CPUs and ranges
 *                separated by ',': "0-3;4-7", "0,2;1,3", "0-3,8;4-7,9". Empty: all that the process may use.
 * \return INVALID_ARGUMENT if it does not parse, the number of groups is not the number of sessions, or a CPU is not
 *         one that the process may use (sched_getaffinity of its main thread); the CPUs are then unchanged.
 */
PROCESSOR_API processor_status processor_model_set_cpuset(const processor_model *model, const char *cpuset,
                                                          processor_error *error);

/**
 * \brief Change the batching of a live model.
 *
 * \param batching  JSON as the key `batching` of the configuration: {"mode": "zero_wait", "max_rows": 256}.
 * \return INVALID_ARGUMENT if it does not parse, for an unknown key or a value out of its range; the batching is then
 *         unchanged.
 */
PROCESSOR_API processor_status processor_model_set_batching(const processor_model *model, const char *batching,
                                                            processor_error *error);

/**
 * \brief Describe the loaded model, as JSON (processor_result_bytes()).
 *
 * Keys: `path`, `state`, `version`, `generation`, `checkpoint`, `signatures`, `sessions`, `executor`, `execution`,
 * `cpusets`, `batching`, `warmup`, `load_ms`, `update`, `config`; docs/observability.md explains them.
 */
PROCESSOR_API processor_status processor_model_info(const processor_model *model, processor_result **result,
                                                    processor_error *error);

/**
 * \brief Return the signatures, as JSON: a list of
 * `{"signature_name", "method_name", "default", "executor", "inputs", "outputs"}`.
 *
 * `default` is true for the signature that serves requests without a signature name. Each input and output is
 * `{"name", "tensor", "dtype", "shape"}`, where `dtype` is a name as in "DT_FLOAT" and `shape` a list with -1 for an
 * open dimension, or null if even the rank is open.
 */
PROCESSOR_API processor_status processor_model_signatures(const processor_model *model, processor_result **result,
                                                          processor_error *error);

/**
 * \brief Return counters and latencies since loading, as JSON.
 *
 * Keys: `requests`, `responses` (by status name), `in_flight`, `queued`, `latency_us`, `queue_us`, `run_us`,
 * `overhead_us` (the time of a request outside of the queue and TensorFlow), each {`count`, `mean`, `p50`, `p95`,
 * `p99`, `p99.9`, `max`}, `sessions`, a list with the same keys for each session, and `batching`, the batches that were
 * run.
 */
PROCESSOR_API processor_status processor_model_stats(const processor_model *model, processor_result **result,
                                                     processor_error *error);

/** @} */

/** \defgroup request Requests
 * @{ */

/* Element types: the numbers of tensorflow.DataType. */
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

/**
 * \brief A dense tensor in row-major order, borrowed.
 *
 * For numbers, `data` points to the elements and `size` is their size in bytes. An input whose address is a multiple of
 * 64 is not copied.
 *
 * For strings, `data` points to their bytes, one string behind the other. `offsets` [elements + 1] holds the byte at
 * which each string begins, and the end of the last one. In an input, `offsets` may be NULL and `item_size` non-zero:
 * each element then has `item_size` bytes, and the zero bytes at its end are dropped (NumPy's "S" layout).
 */
typedef struct processor_tensor {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** The element type: PROCESSOR_FLOAT or another number of the list above. */
  int32_t dtype;
  /** Alias in the signature, or name of the tensor in the graph ("dense:0"). */
  const char *name;
  /** [rank] number of elements in each dimension; NULL for a scalar. */
  const int64_t *dims;
  /** Number of dimensions; 0 for a scalar. */
  int32_t rank;
  /** Bytes of each string of an input if `offsets` is NULL; 0 otherwise. */
  uint32_t item_size;
  /** The elements: numbers, or the bytes of strings. */
  const void *data;
  /** Size of `data` in bytes. */
  size_t size;
  /** [elements + 1] byte positions in `data`, for strings; NULL for numbers. */
  const int64_t *offsets;
} processor_tensor;

/**
 * \brief One request: either bytes in a protocol, or tensors.
 *
 * All requests of an array have the same `struct_size`, and so have all tensors of an array.
 */
typedef struct processor_request {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** Order in the queue: a request with a larger number runs first, and of equal ones the earlier. */
  int32_t priority;
  /** Microseconds on CLOCK_MONOTONIC, see processor_now_us(); 0 for none. See "Deadlines and cancelling". */
  int64_t deadline_us;
  /** "eas" (DeepRec Processor) or "tfserving" (PredictRequest); NULL if the request is made of tensors. */
  const char *protocol;
  /** The serialized request. An empty request in "eas" asks for the signature as JSON. */
  const void *data;
  /** Size of `data` in bytes. */
  size_t size;
  /** NULL or "": the signature named in the bytes, else the default one of the model. */
  const char *signature_name;
  /** [num_inputs] the inputs, in any order, if `protocol` is NULL. */
  const processor_tensor *inputs;
  /** Number of `inputs`. */
  size_t num_inputs;
  /** [num_outputs] aliases or tensor names of the outputs to return, in this order. */
  const char *const *outputs;
  /** Number of `outputs`; 0 for all outputs, in the order of the signature. */
  size_t num_outputs;
} processor_request;

/** \brief How a request was run. */
typedef struct processor_result_info {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** Index of the session that ran it; -1 if none did. */
  int32_t session;
  /** Number of the model version: step of the checkpoint, or name of the folder if that is a number; else -1. */
  int64_t model_version;
  /** 1 for the checkpoint that was loaded first; it grows by one with each switch to a later one. */
  uint64_t generation;
  /** Nanoseconds that the request waited for a session. */
  int64_t queue_ns;
  /** Nanoseconds of reading the request. */
  int64_t decode_ns;
  /** Nanoseconds inside TensorFlow. */
  int64_t run_ns;
  /** Nanoseconds of writing the response. */
  int64_t encode_ns;
  /** Of a host: the model's name; NULL if the model is unknown. This and the texts below live as long as the result. */
  const char *model_name;
  /** Of a host: why this version answered, "baseline", "arm", "pinned" or "fallback"; else NULL. */
  const char *arm;
  /** Of a host: the CPUs of the session, as in "0-3"; "" if it runs anywhere, NULL if none ran. */
  const char *cpuset;
  /** Nanoseconds from admission to the response. */
  int64_t total_ns;
  /** Rows of the batch that the request was part of; 0 if it ran alone. */
  int64_t batch_rows;
  /** Of a host that returned RESOURCE_EXHAUSTED: microseconds to wait before the next try; otherwise 0. */
  int64_t retry_after_us;
  /** Of a host, in "kserve_json": size in bytes of the JSON that precedes binary data, for the header
   *  Inference-Header-Content-Length; 0 if the whole response is JSON. */
  uint64_t header_length;
  /** The epoch of the timeline that the model follows, see docs/delta_format.md; -1 if it follows none. Since 1.3. */
  int64_t epoch;
  /** Microseconds since the newest sample that this epoch knows of, or, if the trainer did not tell it, since the epoch
   *  was written; -1 if that is not known. Since 1.3. */
  int64_t age_us;
} processor_result_info;

/** \brief Return the time on the clock of deadlines: CLOCK_MONOTONIC in microseconds. */
PROCESSOR_API int64_t processor_now_us(void);

/**
 * \brief Run one request and wait for its result.
 *
 * \param[out] result  read it with processor_result_bytes() or processor_result_tensor(); NULL on failure.
 * \return INVALID_ARGUMENT for bytes that do not parse, a wrong dtype or shape, an input missing or unknown,
 *         NOT_FOUND for an unknown signature, output or model version,
 *         DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED for a full queue, UNAVAILABLE while draining,
 *         UNIMPLEMENTED for an unknown protocol, FAILED_PRECONDITION for a freed model,
 *         otherwise the status that TensorFlow returned.
 */
PROCESSOR_API processor_status processor_model_run(const processor_model *model, const processor_request *request,
                                                   processor_result **result, processor_error *error);

/**
 * \brief Run several requests as processor_model_run() does, spread over the sessions, and wait for all of them.
 *
 * \param requests      [num_requests]
 * \param[out] results  [num_requests]; NULL where a request failed.
 * \param[out] errors   [num_requests] or NULL; `code` is written for every request, `message` where it failed.
 * \return OK if all succeeded, else the status of the first that failed.
 */
PROCESSOR_API processor_status processor_model_run_batch(const processor_model *model,
                                                         const processor_request *requests, size_t num_requests,
                                                         processor_result **results, processor_error *errors);

/** @} */

/** \defgroup async Asynchronous requests
 * Deadlines and cancelling: a request is stopped when its deadline passes, when it is cancelled, and when its model is
 * freed or its version undeployed and the time to drain is over. A waiting request is not run. A running one stops
 * before its next kernel, at the next condition of a loop, or between two blocks of rows of a fused kernel; a kernel of
 * TensorFlow's own is not interrupted. A batch of requests runs on until all of its requests are stopped; a stopped
 * request has no result.
 *
 * An asynchronous request ends at once, whatever the graph does: its target receives DEADLINE_EXCEEDED or CANCELLED
 * while the run, which has copies of its inputs, still comes to its end. A synchronous call, and
 * processor_model_run_batch(), return only when the run has stopped, since the run uses the caller's memory. A host
 * that must answer at the deadline and serves graphs with slow kernels therefore calls asynchronously.
 * @{ */

/**
 * \brief Receive the end of an asynchronous request: exactly once for each that was accepted.
 *
 * \param result  belongs to the receiver, who frees it. After a failure it is NULL for a model; for a host it is a
 *                result without bytes, for processor_result_get_info(), or NULL if memory was short.
 * \param error   valid for the length of the call.
 */
typedef void (*processor_done_fn)(void *user_data, uint64_t tag, processor_result *result,
                                  const processor_error *error);

/** A queue of completions with a file descriptor to wait for, for hosts that want no callbacks on foreign threads. */
typedef struct processor_queue processor_queue;

/** \brief One asynchronous request that has ended. */
typedef struct processor_completion {
  /** As given in the target. */
  uint64_t tag;
  /** Belongs to the receiver, who frees it; see processor_done_fn for when it is NULL. */
  processor_result *result;
  /** How the request ended; `code` is PROCESSOR_OK if it succeeded. */
  processor_error error;
} processor_completion;

/** \brief Where an asynchronous request ends: a callback or, if that is NULL, a queue. */
typedef struct processor_target {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** Returned with the completion; the library does not interpret it. */
  uint64_t tag;
  /** Called when the request ends; NULL to use `queue`. */
  processor_done_fn done;
  /** Passed to `done`; the caller keeps it valid until then. */
  void *user_data;
  /** Receives the completion if `done` is NULL; the caller frees it after its last request has ended. */
  processor_queue *queue;
} processor_target;

/**
 * \brief Start a request and return at once.
 *
 * \param[out] request_id  NULL, or where to put the number for processor_model_cancel().
 * \return OK if the request was accepted: its target is then notified exactly once, perhaps before this call returns.
 *         With any other status, the request was not accepted and the target is not notified.
 */
PROCESSOR_API processor_status processor_model_run_async(const processor_model *model, const processor_request *request,
                                                         const processor_target *target, uint64_t *request_id,
                                                         processor_error *error);

/**
 * \brief Cancel an asynchronous request, waiting or running; its target receives CANCELLED.
 *
 * The target may be notified before this call returns.
 *
 * \return OK if it was cancelled; NOT_FOUND if it has ended already or never existed.
 */
PROCESSOR_API processor_status processor_model_cancel(const processor_model *model, uint64_t request_id,
                                                      processor_error *error);

/** \brief Make a queue of completions. */
PROCESSOR_API processor_status processor_queue_create(processor_queue **queue, processor_error *error);

/**
 * \brief Return the queue's file descriptor: an eventfd that can be read (poll, epoll) while completions wait.
 *
 * The queue owns the descriptor and closes it. Do not read from it: processor_queue_next() does that.
 */
PROCESSOR_API int processor_queue_fd(const processor_queue *queue);

/**
 * \brief Take completions, without waiting.
 *
 * \param[out] completions  [capacity]
 * \return the number of completions that were written; 0 if none waits. Several threads may call this.
 */
PROCESSOR_API size_t processor_queue_next(const processor_queue *queue, processor_completion *completions,
                                          size_t capacity);

/** \brief Free a queue and the results that were not taken from it. It must not be the target of a request any more. */
PROCESSOR_API void processor_queue_free(processor_queue *queue);

/** @} */

/** \defgroup routing Routing
 * @{ */

/**
 * \brief Return the bucket, 0 to 9,999, of a routing key in the experiment layer with that salt.
 *
 * A pure function that never changes (docs/model_host.md, "Routing"). Clients and logs can use it to tell the arm of an
 * experiment that a key belongs to. NULL counts as no bytes.
 *
 * \param salt  [salt_size] bytes
 * \param key   [key_size] bytes; for an integer, its decimal text
 */
PROCESSOR_API uint32_t processor_routing_bucket(const void *salt, size_t salt_size, const void *key, size_t key_size);

/** @} */

/** \defgroup result Results
 * @{ */

/**
 * \brief Get a view of the bytes of a result: the serialized response, or JSON.
 *
 * \return FAILED_PRECONDITION if it holds tensors (the request was made of tensors).
 */
PROCESSOR_API processor_status processor_result_bytes(const processor_result *result, const void **data, size_t *size);

/** \brief Return the number of tensors in a result; 0 if it holds bytes. */
PROCESSOR_API size_t processor_result_num_tensors(const processor_result *result);

/**
 * \brief Get a view of tensor `index` of a result.
 *
 * \param[in,out] tensor  `struct_size` is read, the rest is written. Its name is the one that the request used.
 * \return OUT_OF_RANGE if there is no such tensor.
 */
PROCESSOR_API processor_status processor_result_tensor(const processor_result *result, size_t index,
                                                       processor_tensor *tensor);

/** \brief Get how the request was run. `struct_size` of `info` is read, the rest is written. */
PROCESSOR_API processor_status processor_result_get_info(const processor_result *result, processor_result_info *info);

/** \brief Free a result. Its views are invalid afterwards. */
PROCESSOR_API void processor_result_free(processor_result *result);

/** @} */

/** \defgroup host Hosts
 * A host serves the models and versions that a file in a *state directory* lists, and follows that file: it loads,
 * warms up, switches, moves to other CPUs and unloads in the background. Requests are bytes of a protocol. The host
 * routes them between versions, admits and batches them, and keeps statistics. docs/model_host.md is its documentation.
 * @{ */

/** A host. Every function on it may be called from any number of threads at once, also while it is freed. */
typedef struct processor_host processor_host;

/** \brief Identity, folder and CPUs of a host. */
typedef struct processor_host_options {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** PROCESSOR_ABI_VERSION of the same header. */
  uint32_t abi_version;
  /** Folder that holds desired.json or will hold it. The folder must exist. */
  const char *state_dir;
  /** 1 to 64 letters, digits, '-', '_' and '.', not beginning with '.'. Only one process at a time can use it. */
  const char *host_id;
  /** CPUs that versions are loaded on, as in "0-1"; NULL: as desired.json says. */
  const char *maintenance_cpus;
  /** Not 0: the process does nothing but serve this host. While baselines have CPUs of their own, the threads of the
   *  process are moved to the other CPUs, if those have room for reading requests and writing responses. Threads of
   *  sessions and background work are not moved. At most one host of a process may set this. */
  int32_t owns_process;
  /** Bytes, as for processor_request_bytes_set_limit(); 0 leaves the limit unchanged. */
  uint64_t max_request_bytes_in_flight;
} processor_host_options;

/** \brief One entry of gRPC metadata, or one HTTP header. */
typedef struct processor_pair {
  /** Text that ends with a NUL; case does not matter. */
  const char *key;
  /** [value_size] bytes. */
  const void *value;
  /** Size of `value` in bytes. */
  size_t value_size;
} processor_pair;

/**
 * \brief One request to a host.
 *
 * Model, version and label may be given here, in the bytes, or in both; if in both, they must be equal.
 */
typedef struct processor_host_request {
  /** `sizeof` of the struct that the caller was compiled with (rule 8). */
  uint32_t struct_size;
  /** As in processor_request. */
  int32_t priority;
  /** As in processor_request. */
  int64_t deadline_us;
  /** One of `protocols` of processor_build_info(), such as "tfserving" or "eas". */
  const char *protocol;
  /** A method of docs/model_host.md, such as "Predict"; NULL for the first one of the protocol. */
  const char *method;
  /** The serialized request. */
  const void *data;
  /** Size of `data` in bytes. */
  size_t size;
  /** NULL or "": the model that the bytes name; if they name none, the only model of the host. */
  const char *model_name;
  /** 0: the version that the bytes give; if they give none, the label or the routing chooses it. */
  int64_t model_version;
  /** NULL or "": none. */
  const char *version_label;
  /** [num_metadata]. "x-routing-key" decides the arm of an experiment. "x-min-epoch" is the least epoch that may answer,
   *  for a model that follows a timeline: the request waits for it until its deadline, or 10 s if it has none, and then
   *  ends with FAILED_PRECONDITION. "inference-header-content-length" is the size in bytes of the JSON of a "kserve_json"
   *  request, if binary data follow. Other keys are ignored. */
  const processor_pair *metadata;
  /** Number of entries in `metadata`. */
  size_t num_metadata;
  /** Not 0: processor_host_process() does not run the request if its graph has loops, since their duration is
   *  unknown, or if it asks for an epoch. It returns ABORTED without a result, and the request leaves no trace. This is for hosts that call on a
   *  thread that others wait for, and that then repeat the call asynchronously. */
  int32_t only_if_bounded;
} processor_host_request;

/**
 * \brief Open a state directory and begin to serve the models of its desired.json.
 *
 * The call returns before models are loaded; processor_host_status() shows their progress.
 *
 * \param[out] host  the caller frees it with processor_host_free(); NULL on failure.
 * \return INVALID_ARGUMENT for an invalid id or CPU list, ALREADY_EXISTS if a host with that id runs,
 *         PERMISSION_DENIED or UNAVAILABLE for a folder that cannot be written,
 *         FAILED_PRECONDITION for another ABI version.
 */
PROCESSOR_API processor_status processor_host_create(const processor_host_options *options, processor_host **host,
                                                     processor_error *error);

/**
 * \brief Run one request and wait for its response.
 *
 * \param[out] result  the bytes of the response; processor_result_get_info() tells which version answered. After a
 *                     failure, it is a result without bytes whose information is filled as far as it is known, such as
 *                     `retry_after_us`; or NULL if the arguments are wrong or memory is short. The caller frees it.
 * \return as processor_model_run(), and NOT_FOUND for a model, version or label that is not served,
 *         UNAVAILABLE for one that is not ready, UNIMPLEMENTED for an unknown protocol or method,
 *         RESOURCE_EXHAUSTED if too many requests wait, ABORTED because of `only_if_bounded`.
 */
PROCESSOR_API processor_status processor_host_process(const processor_host *host, const processor_host_request *request,
                                                      processor_result **result, processor_error *error);

/**
 * \brief Start a request and return at once.
 *
 * \param[out] request_id  NULL, or where to put the number for processor_host_cancel(); 0 if it has ended already.
 * \return OK if the target is notified: exactly once, perhaps before this call returns, and also if the request is
 *         refused. Any other status means that the arguments are wrong or the host has been freed; the target is then
 *         not notified.
 */
PROCESSOR_API processor_status processor_host_process_async(const processor_host *host,
                                                            const processor_host_request *request,
                                                            const processor_target *target, uint64_t *request_id,
                                                            processor_error *error);

/** \brief Cancel an asynchronous request, as processor_model_cancel() does. */
PROCESSOR_API processor_status processor_host_cancel(const processor_host *host, uint64_t request_id,
                                                     processor_error *error);

/** \brief Return the present state of all models, as JSON of the form of actual.json. */
PROCESSOR_API processor_status processor_host_status(const processor_host *host, processor_result **result,
                                                     processor_error *error);

/** \brief Return counters and histograms, as text in the exposition format of Prometheus. */
PROCESSOR_API processor_status processor_host_metrics(const processor_host *host, processor_result **result,
                                                      processor_error *error);

/**
 * \brief Publish in actual.json the address at which the host program listens.
 *
 * \param name     the kind of endpoint, such as "grpc" or "rest".
 * \param address  such as "127.0.0.1:8500"; NULL removes the endpoint.
 */
PROCESSOR_API processor_status processor_host_set_endpoint(const processor_host *host, const char *name,
                                                           const char *address, processor_error *error);

/**
 * \brief Claim a port for the state directory of this host, before anything listens there.
 *
 * Several hosts of one state directory may share a port, and the kernel spreads connections over them. Those of another
 * state directory must not join them: half of the clients would be answered NOT_FOUND. The claim is held until the host
 * is freed or its process ends. Since 1.2.
 *
 * \param address  an IP address or a host name.
 * \param port     1 to 65535.
 * \return ALREADY_EXISTS, which names both state directories, if a host of another one has claimed it.
 */
PROCESSOR_API processor_status processor_host_claim_port(const processor_host *host, const char *address, int32_t port,
                                                         processor_error *error);

/**
 * \brief Announce that the process is about to end in order, for example after SIGTERM.
 *
 * Loads under way are given up, and no version is blamed for the end of the process. Without this call, a host that
 * ends while it loads a version counts as killed by that version. Requests are answered as before. Call it before
 * processor_host_drain(). Since 1.2.
 */
PROCESSOR_API processor_status processor_host_prepare_end(const processor_host *host, processor_error *error);

/** \brief Drain a host, as processor_model_drain() drains a model. */
PROCESSOR_API processor_status processor_host_drain(const processor_host *host, int64_t deadline_us,
                                                    processor_error *error);

/**
 * \brief Free a host: refuse new requests, fail the waiting ones with CANCELLED, wait for the running ones, unload.
 *
 * Running requests and loads are cancelled as in processor_model_free(). A second call on the same handle does nothing.
 */
PROCESSOR_API void processor_host_free(processor_host *host);

/**
 * \brief Check a desired.json by the rules with which a host reads it, before it is written.
 *
 * The function opens no file and needs no TensorFlow. libprocessor_rules.so, which loads in a fraction of the time and
 * memory, has it, too.
 *
 * \param json  [size] the text; it need not end with a NUL.
 * \param cpus  CPUs that hosts may use, as in "0-7"; NULL: those of this process.
 * \param[out] faults  [capacity] the entries that hosts would refuse, as a JSON list of {"model": "m", "version": 4,
 *                     "message": "..."}, which ends with a NUL and is truncated to fit. `version` is null where the
 *                     model is refused as a whole, and `model` as well where no model is concerned. May be NULL if
 *                     capacity is 0.
 * \param[out] faults_size  size of the whole list in bytes, without the NUL.
 * \return OK also if there are faults; INVALID_ARGUMENT if hosts would refuse the file as a whole.
 */
PROCESSOR_API processor_status processor_desired_check(const void *json, size_t size, const char *cpus, char *faults,
                                                       size_t capacity, size_t *faults_size, processor_error *error);

/** @} */

/**
 * \defgroup request_bytes Memory of requests in flight
 *
 * All models and hosts of the process share one budget. Decoded tensors, results of kernels, responses, and the copies
 * for asynchronous requests are claimed from it before they are allocated. A request that finds no room is refused with
 * RESOURCE_EXHAUSTED; a request that could never fit is refused with INVALID_ARGUMENT. A program that receives requests
 * from a network claims their bytes as well, before it reads or inflates them.
 * @{
 */

/**
 * \brief Set the number of bytes that all requests in flight together may hold.
 *
 * \param bytes  1 MiB or more; 0: the default, a tenth of the memory that the machine or the cgroup has, but at least
 *               256 MiB. The environment variable PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT sets another default.
 * \return INVALID_ARGUMENT for a number outside of this range.
 */
PROCESSOR_API processor_status processor_request_bytes_set_limit(uint64_t bytes, processor_error *error);

/** \brief Return how many bytes all requests in flight together may hold. */
PROCESSOR_API uint64_t processor_request_bytes_limit(void);

/**
 * \brief Claim memory for the body of a request.
 *
 * A body of more than 64 KiB may fill the budget only up to half of it, so that large and slow bodies leave room.
 *
 * \param held  bytes that the same body has claimed already.
 * \param more  further bytes to claim; the caller gives them back with processor_request_bytes_release().
 * \return RESOURCE_EXHAUSTED if there is no room, INVALID_ARGUMENT if there never will be.
 */
PROCESSOR_API processor_status processor_request_bytes_claim(uint64_t held, uint64_t more, processor_error *error);

/** \brief Give back `bytes` of a claim, once the memory has been freed. */
PROCESSOR_API void processor_request_bytes_release(uint64_t bytes);

/** @} */

/* --8<-- cdef end */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PROCESSOR_PROCESSOR_H_ */
