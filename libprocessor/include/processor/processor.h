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
 *  4. Outputs go into memory of the caller where the size is known beforehand, else into a `processor_result`, which
 *     the caller frees; views into a result live until it is freed.
 *  5. A pointer that is returned is borrowed, and lives as long as the object that gave it.
 *  6. `const T *`: concurrent calls are allowed. `T *`: the caller serialises.
 *  7. A callback takes `void *user_data`, may come on any thread, must not block, and must not call a function that
 *     waits for requests (`*_free`, `*_drain`, `processor_model_run*` and `processor_host_process` without `_async`).
 *  8. A struct that can grow starts with `uint32_t struct_size`, which the caller sets to `sizeof` of the struct. What
 *     lies behind the size that the caller gave is taken as zero.
 *  9. `processor_abi_version()` is checked by every binding before anything else: the major part must be equal, the
 *     minor part of the library not smaller than that of the header.
 * 10. Only `processor_*` and the four functions of deeprec.h are exported.
 *
 * A failing function writes status and message into the caller's `processor_error`: there is no thread-local state,
 * and nothing in an error to free. Messages read `<object>: <what was found>, expected <what>`; a text longer than the
 * struct is cut there and logged whole. No C++ exception passes this boundary.
 *
 * A *host* serves many models and versions, as a file says: see "Hosts" below and docs/model_host.md.
 *
 * Handles of models and hosts are checked: a call on one that has been freed answers FAILED_PRECONDITION (for a long time
 * after, though not for ever, since the memory of a handle is used again after 4,096 later loads).
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
#define PROCESSOR_ABI_VERSION 0x00010002

/** \brief Answer the ABI version of the library, major << 16 | minor. */
PROCESSOR_API uint32_t processor_abi_version(void);

/** \brief Answer the release of the library, as in "0.1.0". */
PROCESSOR_API const char *processor_version(void);

/**
 * \brief Answer what the library was built with and runs on, as JSON.
 *
 * Keys: `version`, `abi_version`, `tensorflow` {`built`, `running`}, `onednn` {`version`, `isa`}, `cpus` (those that
 * the process may use), `protocols`. The text is borrowed and lives as long as the library.
 */
PROCESSOR_API const char *processor_build_info(void);

/**
 * \brief Answer the size in bytes that the library gives the struct of that name (without "struct"), 0 if unknown.
 *
 * A binding that cannot include this header compares the sizes that it uses with these.
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
/** A failure that names no other status. A fault of the model or the library. */
#define PROCESSOR_UNKNOWN 2
/** The request or the configuration is wrong, whatever the state of the model. A fault of the caller. */
#define PROCESSOR_INVALID_ARGUMENT 3
/** The deadline passed before the request was answered. */
#define PROCESSOR_DEADLINE_EXCEEDED 4
/** A file, signature, output, model, version or label does not exist. */
#define PROCESSOR_NOT_FOUND 5
/** What was to be made is there already: a host with that id runs. */
#define PROCESSOR_ALREADY_EXISTS 6
/** A file may not be read. */
#define PROCESSOR_PERMISSION_DENIED 7
/** The queue of the model is full, or memory is. Try again later, or elsewhere. */
#define PROCESSOR_RESOURCE_EXHAUSTED 8
/** The object is not in a state for this: closed, or built against another ABI version. A fault of the caller. */
#define PROCESSOR_FAILED_PRECONDITION 9
/** A host was not to run the request here (`only_if_bounded`), or what TensorFlow answered. */
#define PROCESSOR_ABORTED 10
#define PROCESSOR_OUT_OF_RANGE 11
/** The library does not do this: an unknown protocol, a custom op, an incremental checkpoint. */
#define PROCESSOR_UNIMPLEMENTED 12
/** A fault of the library. */
#define PROCESSOR_INTERNAL 13
/** The model or host is draining, or a host has not loaded it yet. Try elsewhere, or later. */
#define PROCESSOR_UNAVAILABLE 14
/** A file is damaged. */
#define PROCESSOR_DATA_LOSS 15
#define PROCESSOR_UNAUTHENTICATED 16

/** \brief What went wrong; written only by a failing function. Nothing in it is to be freed. */
typedef struct processor_error {
  /** One of the codes above. */
  processor_status code;
  /** UTF-8, ends with a NUL, cut to fit. */
  char message[1020];
} processor_error;

/** \brief Answer the canonical name of a code, as in "INVALID_ARGUMENT"; "UNKNOWN" for a number that is none. */
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
 * Concerns the whole process. When it returns, the former sink is not being called and will not be again.
 *
 * \param sink          NULL for stderr.
 * \param user_data     handed to the sink.
 * \param min_severity  lines below it are dropped (initially PROCESSOR_LOG_WARNING).
 */
PROCESSOR_API void processor_set_log_sink(processor_log_fn sink, void *user_data, int32_t min_severity);

/** @} */

/** \defgroup model Models
 * @{ */

/** A loaded model. Every function on it may be called from any number of threads at once, also while it is freed. */
typedef struct processor_model processor_model;

/** What a request or a question answered; owned by the caller, see processor_result_free(). */
typedef struct processor_result processor_result;

/** \brief What to load. */
typedef struct processor_load_options {
  uint32_t struct_size;
  /** PROCESSOR_ABI_VERSION of the header that the caller was compiled with. */
  uint32_t abi_version;
  /** Folder that holds saved_model.pb; NULL if the configuration names it (`savedmodel_dir`). */
  const char *path;
  /** JSON object, see docs/configuration.md; NULL for the defaults. */
  const char *config;
} processor_load_options;

/**
 * \brief Load a model, warm up every one of its sessions, and answer it when it is ready.
 *
 * A model is either ready or failed, never half loaded. Blocks while loading; waits for a folder that is not there yet
 * only as long as the configuration says (`init_timeout_minutes`).
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
 * Those have as long as the key `drain_seconds` of the configuration says (10 s), or no time if processor_model_drain()
 * has been called before. Then they are cancelled, as by processor_model_cancel(), and this waits until they have stopped.
 * So is a checkpoint that is being loaded: this waits for one step at most, reading the graph, restoring a variable, or
 * making one session.
 *
 * A second call on the same handle does nothing.
 */
PROCESSOR_API void processor_model_free(processor_model *model);

/**
 * \brief Refuse new requests with UNAVAILABLE and wait until the admitted ones have been answered.
 *
 * \param deadline_us  see processor_request.deadline_us; 0 waits without end.
 * \return OK when no request is left, DEADLINE_EXCEEDED otherwise; the model goes on draining then.
 */
PROCESSOR_API processor_status processor_model_drain(const processor_model *model, int64_t deadline_us,
                                                     processor_error *error);

/**
 * \brief Move the sessions of a live model to other CPUs, without reloading it.
 *
 * \param cpuset  as the key `cpusets`: one group per session, separated by ';', each of single CPUs and ranges separated
 *                by ',': "0-3;4-7", "0,2;1,3", "0-3,8;4-7,9". Empty: all that the process may use.
 * \return INVALID_ARGUMENT if it does not parse, the number of groups is not the number of sessions, or a CPU is not
 *         one that the process may use (sched_getaffinity of its main thread); nothing has changed then.
 */
PROCESSOR_API processor_status processor_model_set_cpuset(const processor_model *model, const char *cpuset,
                                                          processor_error *error);

/**
 * \brief Change how requests of a live model are put together.
 *
 * \param batching  JSON as the key `batching` of the configuration: {"mode": "zero_wait", "max_rows": 256}.
 * \return INVALID_ARGUMENT if it does not parse, for an unknown key or a value out of its range; nothing has changed
 *         then.
 */
PROCESSOR_API processor_status processor_model_set_batching(const processor_model *model, const char *batching,
                                                            processor_error *error);

/**
 * \brief Answer what is loaded, as JSON (processor_result_bytes()).
 *
 * Keys: `path`, `state`, `version`, `generation`, `checkpoint`, `signatures`, `sessions`, `executor`, `execution`,
 * `cpusets`, `batching`, `warmup`, `load_ms`, `update`, `config`; docs/observability.md explains them.
 */
PROCESSOR_API processor_status processor_model_info(const processor_model *model, processor_result **result,
                                                    processor_error *error);

/**
 * \brief Answer the signatures, as JSON: a list of `{"signature_name", "method_name", "default", "inputs", "outputs"}`.
 *
 * `default` is true for the one that a request without a name means. Each input and output is
 * `{"name", "tensor", "dtype", "shape"}`, where `dtype` is a name as in "DT_FLOAT" and `shape` a list with -1 for an
 * open dimension, or null if even the rank is open.
 */
PROCESSOR_API processor_status processor_model_signatures(const processor_model *model, processor_result **result,
                                                          processor_error *error);

/**
 * \brief Answer counters and latencies since loading, as JSON.
 *
 * Keys: `requests`, `responses` (by status name), `in_flight`, `queued`, `latency_us`, `queue_us`, `run_us`,
 * `overhead_us` (all of a request but queue and TensorFlow run), each {`count`, `mean`, `p50`, `p95`, `p99`, `p99.9`,
 * `max`}, `sessions`, a list with the same per session, and `batching`, what was run together.
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
 * Numbers: `data` points at them and `size` is their bytes. An input whose address is a multiple of 64 is not copied.
 *
 * Strings: `data` points at their bytes, end to end, and `offsets` [elements + 1] says where each begins and the last
 * ends. In an input, `offsets` may be NULL and `item_size` non-zero: each element then has `item_size` bytes, and the
 * zero bytes at its end are dropped (NumPy's "S" layout).
 */
typedef struct processor_tensor {
  uint32_t struct_size;
  /** PROCESSOR_FLOAT and so on. */
  int32_t dtype;
  /** Alias in the signature, or name of the tensor in the graph ("dense:0"). */
  const char *name;
  /** [rank]; NULL for a scalar. */
  const int64_t *dims;
  int32_t rank;
  uint32_t item_size;
  const void *data;
  size_t size;
  const int64_t *offsets;
} processor_tensor;

/**
 * \brief One request: either bytes in a protocol, or tensors.
 *
 * In an array of requests every `struct_size` is the same; so is it in an array of tensors.
 */
typedef struct processor_request {
  uint32_t struct_size;
  /** Larger is more urgent; of equal ones the earlier goes first. Concerns requests that wait. */
  int32_t priority;
  /** Microseconds on CLOCK_MONOTONIC, see processor_now_us(); 0 for none. See "Deadlines and cancelling". */
  int64_t deadline_us;
  /** "eas" (DeepRec Processor) or "tfserving" (PredictRequest); NULL if the request is made of tensors. */
  const char *protocol;
  /** The serialised request. An empty one in "eas" asks for the signature as JSON. */
  const void *data;
  size_t size;
  /** NULL or "": the signature named in the bytes, else the default one of the model. */
  const char *signature_name;
  const processor_tensor *inputs;
  size_t num_inputs;
  /** Aliases or tensor names of the outputs wanted, in that order; none: all, in the order of the signature. */
  const char *const *outputs;
  size_t num_outputs;
} processor_request;

/** \brief How a request was run. */
typedef struct processor_result_info {
  uint32_t struct_size;
  /** Index of the session that ran it; -1 if none did. */
  int32_t session;
  /** Number of the model version: step of the checkpoint, or name of the folder if that is a number; else -1. */
  int64_t model_version;
  /** 1 for what was loaded first, one more at each switch to a later checkpoint. */
  uint64_t generation;
  /** Nanoseconds waiting for a session, reading the request, inside TensorFlow, and writing the response. */
  int64_t queue_ns;
  int64_t decode_ns;
  int64_t run_ns;
  int64_t encode_ns;
  /** Of a host: the model's name; NULL if the request was not for one that is known. The texts live as long as the result. */
  const char *model_name;
  /** Of a host: why this version answered, "baseline", "arm", "pinned" or "fallback"; else NULL. */
  const char *arm;
  /** Of a host: the CPUs of the session, as in "0-3"; "" if it runs anywhere, NULL if none ran. */
  const char *cpuset;
  /** Nanoseconds from admission to the answer. */
  int64_t total_ns;
  /** Rows of the batch that the request was part of; 0 if it ran alone. */
  int64_t batch_rows;
  /** Of a host that answered RESOURCE_EXHAUSTED: when to try again, in microseconds from now; else 0. */
  int64_t retry_after_us;
  /** Of a host, in "kserve_json": bytes of JSON that go before binary data, for the header Inference-Header-Content-Length;
   *  0 if all is JSON. */
  uint64_t header_length;
} processor_result_info;

/** \brief Answer the time on the clock of deadlines: CLOCK_MONOTONIC in microseconds. */
PROCESSOR_API int64_t processor_now_us(void);

/**
 * \brief Run one request and wait for its result.
 *
 * \param[out] result  processor_result_bytes() or processor_result_tensor() show what is in it; NULL on failure.
 * \return INVALID_ARGUMENT for bytes that do not parse, a wrong dtype or shape, an input missing or unknown,
 *         NOT_FOUND for an unknown signature, output or model version,
 *         DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED for a full queue, UNAVAILABLE while draining,
 *         UNIMPLEMENTED for an unknown protocol, FAILED_PRECONDITION for a freed model,
 *         otherwise what TensorFlow answered.
 */
PROCESSOR_API processor_status processor_model_run(const processor_model *model, const processor_request *request,
                                                   processor_result **result, processor_error *error);

/**
 * \brief Run several requests, each as processor_model_run() would, spread over the sessions, and wait for all.
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
 * freed or its version undeployed and the time to drain is over. One that waits is not run. One that runs stops before its
 * next kernel, at the next condition of a loop, or between two blocks of rows of a fused kernel; a kernel of TensorFlow's
 * own is not interrupted. Requests that run together as one batch go on until all of them are to stop, and those that are
 * stopped have no result.
 *
 * An asynchronous request is answered at once, whatever the graph does: its target hears DEADLINE_EXCEEDED or CANCELLED
 * while the work, which has copies of all that it needs, comes to its end. A synchronous call returns when the work has
 * stopped, since that uses what the caller has lent: whoever has to answer at the deadline, and serves graphs with slow
 * kernels, calls asynchronously. So it is with processor_model_run_batch().
 * @{ */

/**
 * \brief Receive the end of an asynchronous request: exactly once for each that was accepted.
 *
 * \param result  belongs to the receiver, who frees it. NULL if `error->code` is not OK, except of a host: there it is a
 *                result without bytes, for processor_result_get_info(), unless memory was short.
 * \param error   lives for the length of the call.
 */
typedef void (*processor_done_fn)(void *user_data, uint64_t tag, processor_result *result,
                                  const processor_error *error);

/** Completions, drained by whoever waits for a file descriptor; for hosts that want no callbacks on foreign threads. */
typedef struct processor_queue processor_queue;

/** \brief One asynchronous request that has ended. */
typedef struct processor_completion {
  /** As given in the target. */
  uint64_t tag;
  /** Belongs to the receiver, who frees it; see processor_done_fn for when it is NULL. */
  processor_result *result;
  processor_error error;
} processor_completion;

/** \brief Where an asynchronous request ends: a callback or, if that is NULL, a queue. */
typedef struct processor_target {
  uint32_t struct_size;
  /** Handed back at the end; the library does not look at it. */
  uint64_t tag;
  processor_done_fn done;
  void *user_data;
  processor_queue *queue;
} processor_target;

/**
 * \brief Start a request and return at once.
 *
 * \param[out] request_id  NULL, or where to put the number for processor_model_cancel().
 * \return OK if the request was accepted: its target then hears of it exactly once, perhaps before this returns. Any
 *         other status: it was not, and the target hears nothing.
 */
PROCESSOR_API processor_status processor_model_run_async(const processor_model *model, const processor_request *request,
                                                         const processor_target *target, uint64_t *request_id,
                                                         processor_error *error);

/**
 * \brief Cancel an asynchronous request, waiting or running; its target hears CANCELLED, perhaps before this returns.
 *
 * \return OK if it was cancelled; NOT_FOUND if it has been answered, or never was.
 */
PROCESSOR_API processor_status processor_model_cancel(const processor_model *model, uint64_t request_id,
                                                      processor_error *error);

/** \brief Make a queue of completions. */
PROCESSOR_API processor_status processor_queue_create(processor_queue **queue, processor_error *error);

/**
 * \brief Answer the queue's file descriptor: an eventfd that can be read (poll, epoll) while completions wait.
 *
 * It belongs to the queue. Do not read from it: processor_queue_next() does.
 */
PROCESSOR_API int processor_queue_fd(const processor_queue *queue);

/**
 * \brief Take completions, without waiting.
 *
 * \param[out] completions  [capacity]
 * \return how many were written; 0 if none waits. May be called by several threads.
 */
PROCESSOR_API size_t processor_queue_next(const processor_queue *queue, processor_completion *completions,
                                          size_t capacity);

/** \brief Free a queue, and the results that nobody took. No request may still have it as its target. */
PROCESSOR_API void processor_queue_free(processor_queue *queue);

/** @} */

/** \defgroup routing Routing
 * @{ */

/**
 * \brief Answer the bucket, 0 to 9,999, of a routing key in the experiment layer with that salt.
 *
 * A pure function that never changes (docs/model_host.md, "Routing"): for clients and logs that want to know which arm
 * of an experiment a key belongs to. NULL counts as no bytes.
 *
 * \param salt  [salt_size] bytes
 * \param key   [key_size] bytes; of an integer its decimal text
 */
PROCESSOR_API uint32_t processor_routing_bucket(const void *salt, size_t salt_size, const void *key, size_t key_size);

/** @} */

/** \defgroup result Results
 * @{ */

/**
 * \brief See the bytes of a result: the serialised response, or JSON.
 *
 * \return FAILED_PRECONDITION if it holds tensors (the request was made of tensors).
 */
PROCESSOR_API processor_status processor_result_bytes(const processor_result *result, const void **data, size_t *size);

/** \brief Answer the number of tensors in a result; 0 if it holds bytes. */
PROCESSOR_API size_t processor_result_num_tensors(const processor_result *result);

/**
 * \brief See tensor `index` of a result, without copying it.
 *
 * \param[in,out] tensor  `struct_size` is read, the rest written. Its name is the alias or name that was asked for.
 * \return OUT_OF_RANGE if there is no such tensor.
 */
PROCESSOR_API processor_status processor_result_tensor(const processor_result *result, size_t index,
                                                       processor_tensor *tensor);

/** \brief See how the request was run. `struct_size` of `info` is read, the rest written. */
PROCESSOR_API processor_status processor_result_get_info(const processor_result *result, processor_result_info *info);

/** \brief Free a result; its views end. */
PROCESSOR_API void processor_result_free(processor_result *result);

/** @} */

/** \defgroup host Hosts
 * A host serves the models and versions that a file in a *state directory* names, and follows that file: it loads, warms
 * up, switches, moves to other CPUs and unloads in the background. Requests are bytes of a protocol; routing between
 * versions, admission, batching and statistics are the host's. docs/model_host.md is its documentation.
 * @{ */

/** A host. Every function on it may be called from any number of threads at once, also while it is freed. */
typedef struct processor_host processor_host;

/** \brief Which host to be, and where. */
typedef struct processor_host_options {
  uint32_t struct_size;
  /** PROCESSOR_ABI_VERSION of the header that the caller was compiled with. */
  uint32_t abi_version;
  /** Folder that holds desired.json, or will; it must be there. */
  const char *state_dir;
  /** 1 to 64 letters, digits, '-', '_' and '.', not beginning with '.'. One process at a time has it. */
  const char *host_id;
  /** CPUs that versions are loaded on, as in "0-1"; NULL: as desired.json says. */
  const char *maintenance_cpus;
  /** Not 0: the process does nothing else. While baselines have CPUs to themselves, its threads, but for
   *  those of sessions and what works in the background, are moved to the other CPUs, if these have room for what
   *  reading requests and writing answers takes. Of one host in a process. */
  int32_t owns_process;
  /** As for processor_request_bytes_set_limit(); 0: as it is. */
  uint64_t max_request_bytes_in_flight;
} processor_host_options;

/** \brief A key and bytes, as gRPC's metadata or HTTP's headers bring them. */
typedef struct processor_pair {
  /** Ends with a NUL; upper and lower case are the same. */
  const char *key;
  const void *value;
  size_t value_size;
} processor_pair;

/**
 * \brief One request to a host.
 *
 * What the bytes say of the model need not be said here, and may not be said differently.
 */
typedef struct processor_host_request {
  uint32_t struct_size;
  /** As in processor_request. */
  int32_t priority;
  /** As in processor_request. */
  int64_t deadline_us;
  /** As in processor_build_info(), `protocols`: "tfserving", "eas" and so on. */
  const char *protocol;
  /** As in docs/model_host.md, "Predict" and so on; NULL: the first one of the protocol. */
  const char *method;
  const void *data;
  size_t size;
  /** NULL or "": as the bytes say, else the only model that there is. */
  const char *model_name;
  /** 0: as the bytes say, else as the label or the routing says. */
  int64_t model_version;
  /** NULL or "": none. */
  const char *version_label;
  /** [num_metadata]. "x-routing-key" decides the arm of an experiment; "inference-header-content-length" says how much of
   *  a "kserve_json" request is JSON, if binary data follow. Others are passed over. */
  const processor_pair *metadata;
  size_t num_metadata;
  /** Not 0: do not run the request if its graph has loops, so that nobody knows how long it takes. It is answered by
   *  ABORTED then, without a result, and nothing has happened; for hosts that call on a thread that others wait for, and
   *  call asynchronously else. Of processor_host_process(). */
  int32_t only_if_bounded;
} processor_host_request;

/**
 * \brief Open a state directory and begin to serve what its desired.json names.
 *
 * Returns before models are loaded: processor_host_status() shows how far they are.
 *
 * \param[out] host  the caller frees it with processor_host_free(); NULL on failure.
 * \return INVALID_ARGUMENT for an id or CPUs that cannot be, ALREADY_EXISTS if a host with that id runs,
 *         PERMISSION_DENIED or UNAVAILABLE for a folder that cannot be written,
 *         FAILED_PRECONDITION for another ABI version.
 */
PROCESSOR_API processor_status processor_host_create(const processor_host_options *options, processor_host **host,
                                                     processor_error *error);

/**
 * \brief Answer one request and wait for it.
 *
 * \param[out] result  the response's bytes and, by processor_result_get_info(), who answered. After a failure, it is a
 *                     result without bytes whose information says what is known, `retry_after_us` for one; or NULL, if the
 *                     arguments are wrong or memory is short. The caller frees it either way.
 * \return as processor_model_run(), and NOT_FOUND for a model, version or label that is not served,
 *         UNAVAILABLE for one that is not ready, UNIMPLEMENTED for an unknown protocol or method,
 *         RESOURCE_EXHAUSTED if it is refused because too many wait, ABORTED as `only_if_bounded` says.
 */
PROCESSOR_API processor_status processor_host_process(const processor_host *host, const processor_host_request *request,
                                                      processor_result **result, processor_error *error);

/**
 * \brief Start a request and return at once.
 *
 * \param[out] request_id  NULL, or where to put the number for processor_host_cancel(); 0 if it has ended already.
 * \return OK if the target hears of it: exactly once, perhaps before this returns, and also if the request is refused.
 *         Any other status is a fault of the arguments, or of a host that has been freed; the target hears nothing then.
 */
PROCESSOR_API processor_status processor_host_process_async(const processor_host *host,
                                                            const processor_host_request *request,
                                                            const processor_target *target, uint64_t *request_id,
                                                            processor_error *error);

/**
 * \brief Cancel an asynchronous request, waiting or running; its target hears CANCELLED, perhaps before this returns.
 *
 * \return as processor_model_cancel().
 */
PROCESSOR_API processor_status processor_host_cancel(const processor_host *host, uint64_t request_id,
                                                     processor_error *error);

/** \brief Answer what is served, as JSON: what actual.json holds, as it is now. */
PROCESSOR_API processor_status processor_host_status(const processor_host *host, processor_result **result,
                                                     processor_error *error);

/** \brief Answer counters and histograms, as text in the exposition format of Prometheus. */
PROCESSOR_API processor_status processor_host_metrics(const processor_host *host, processor_result **result,
                                                      processor_error *error);

/**
 * \brief Have actual.json tell where the host program listens.
 *
 * \param name     "grpc", "rest" or whatever it is.
 * \param address  as in "127.0.0.1:8500"; NULL: it does not listen any more.
 */
PROCESSOR_API processor_status processor_host_set_endpoint(const processor_host *host, const char *name,
                                                           const char *address, processor_error *error);

/**
 * \brief Claim a port for the state directory of this host, before anything listens there.
 *
 * Several hosts of one state directory may share a port, and the kernel spreads connections over them. Those of another
 * state directory must not join them: half of the clients would be answered NOT_FOUND. The claim is held until the host is
 * freed or its process ends, however that comes about. Since 1.2.
 *
 * \param address  where the port is: an IP address, or a name.
 * \param port     1 to 65535.
 * \return ALREADY_EXISTS, which names both state directories, if a host of another one has claimed it.
 */
PROCESSOR_API processor_status processor_host_claim_port(const processor_host *host, const char *address, int32_t port,
                                                         processor_error *error);

/**
 * \brief Say that the process is about to end in order, as when it is told to by SIGTERM.
 *
 * Loads under way are given up, and no version is blamed for the end of the process; without this call, a host that ends
 * while it loads counts as one that died of what it loaded. Requests are answered as before. Call it before
 * processor_host_drain(). Since 1.2.
 */
PROCESSOR_API processor_status processor_host_prepare_end(const processor_host *host, processor_error *error);

/**
 * \brief Refuse new requests with UNAVAILABLE and wait until the admitted ones have been answered.
 *
 * \param deadline_us  see processor_request.deadline_us; 0 waits without end.
 * \return OK when no request is left, DEADLINE_EXCEEDED otherwise; the host goes on draining then.
 */
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
 * No file is opened and no TensorFlow is needed: libprocessor_rules.so, which loads in a fraction of the time and memory,
 * has this function, too.
 *
 * \param json  [size] the text; it need not end with a NUL.
 * \param cpus  CPUs that hosts may use, as in "0-7"; NULL: those of this process.
 * \param[out] faults  [capacity] what hosts would refuse, as a JSON list of {"model": "m", "version": 4, "message": "..."},
 *                     which ends with a NUL and is cut where it does not fit. `version` is null where the model is refused
 *                     as a whole, and `model` as well where no model is concerned. May be NULL if capacity is 0.
 * \param[out] faults_size  the size of the whole list, without the NUL.
 * \return OK also if there are faults; INVALID_ARGUMENT if hosts would refuse the file as a whole.
 */
PROCESSOR_API processor_status processor_desired_check(const void *json, size_t size, const char *cpus, char *faults,
                                                       size_t capacity, size_t *faults_size, processor_error *error);

/** @} */

/**
 * \defgroup request_bytes Memory of requests in flight
 *
 * One budget for all models and hosts of the process: decoded tensors, what runs compute, responses, and the copies that
 * asynchronous requests need are claimed from it before they are allocated. A request that finds no room is refused with
 * RESOURCE_EXHAUSTED, one that could never fit with INVALID_ARGUMENT. A program that receives requests from a network
 * claims their bytes as well, before it reads or inflates them.
 * @{
 */

/**
 * \brief Set what requests in flight may hold together.
 *
 * \param bytes  1 MiB or more; 0: the default, a tenth of the memory that the machine or the cgroup has, but at least
 *               256 MiB. The environment's PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT is another default.
 * \return INVALID_ARGUMENT for a number outside.
 */
PROCESSOR_API processor_status processor_request_bytes_set_limit(uint64_t bytes, processor_error *error);

/** \brief Return how many bytes all requests in flight together may hold. */
PROCESSOR_API uint64_t processor_request_bytes_limit(void);

/**
 * \brief Claim memory for the body of a request.
 *
 * A body of more than 64 KiB finds the budget full when half of it is used, so that slow and large ones leave room.
 *
 * \param held  what the same body has claimed already.
 * \param more  what it needs now, in bytes; given back with processor_request_bytes_release().
 * \return RESOURCE_EXHAUSTED if there is no room, INVALID_ARGUMENT if there never will be.
 */
PROCESSOR_API processor_status processor_request_bytes_claim(uint64_t held, uint64_t more, processor_error *error);

/** \brief Give back what was claimed, once the memory is free. */
PROCESSOR_API void processor_request_bytes_release(uint64_t bytes);

/** @} */

/* --8<-- cdef end */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PROCESSOR_PROCESSOR_H_ */
