/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file deeprec.h
 * \brief The drop-in contract: the four functions of DeepRec's Processor, for hosts that exist.
 *
 * Messages are those of package `tensorflow.eas` (protos/predict.proto); docs/drop_in.md lists the keys of
 * the configuration, what each does here, and what differs from the original. New hosts use processor.h.
 *
 * Output buffers come from `malloc`: the caller releases them with `free`. All functions may be called from any number
 * of threads.
 */
#ifndef PROCESSOR_DEEPREC_H_
#define PROCESSOR_DEEPREC_H_

#if defined(__GNUC__)
#define PROCESSOR_DEEPREC_API __attribute__((visibility("default")))
#else
#define PROCESSOR_DEEPREC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * \brief Load a model.
 *
 * Blocks until the model is ready or has failed, at most `init_timeout_minutes` for files that are not there yet.
 *
 * \param model_entry   folder of the model where the configuration names none, and of a relative warm-up file; may
 *                      be "" or NULL.
 * \param model_config  JSON object.
 * \param[out] state    0 ready, -1 failed; the log says why. May be NULL.
 * \return a `processor_model *`, which the functions of processor.h accept too, and which processor_model_free()
 *         frees; NULL on failure.
 */
PROCESSOR_DEEPREC_API void *initialize(const char *model_entry, const char *model_config, int *state);

/**
 * \brief Answer one request.
 *
 * \param input_data         serialized `PredictRequest`.
 * \param input_size         its bytes; 0 asks for the signature as JSON.
 * \param[out] output_data   serialized `PredictResponse`, or on failure plain text; the caller releases it with `free`.
 * \param[out] output_size   its bytes.
 * \return 200, or 500 with a text that begins with "[TensorFlow]".
 */
PROCESSOR_DEEPREC_API int process(void *model_buf, const void *input_data, int input_size, void **output_data,
                                  int *output_size);

/**
 * \brief Answer `batch_process_count` requests (a key of the configuration, 1 if absent), each as process() would.
 *
 * \param input_data         [batch_process_count] serialized requests.
 * \param input_size         [batch_process_count] their bytes.
 * \param[out] output_data   [batch_process_count] as process() writes it; each to be released with `free`.
 * \param[out] output_size   [batch_process_count] their bytes.
 * \return 200 if every request was answered, else 500: the texts of the failed ones begin with "[TensorFlow]".
 *
 * Every entry is written, also on a handle that has been freed, which remembers its count; on NULL only the first, since
 * nothing says how many there are. Without memory for a text its entry is NULL and 0.
 */
PROCESSOR_DEEPREC_API int batch_process(void *model_buf, const void *input_data[], int *input_size, void *output_data[],
                                        int *output_size);

/**
 * \brief Get a description of the served model, as a serialized `ServingModelInfo`.
 *
 * \param[out] output_data  the caller releases it with `free`.
 * \return 200, or 500 with a text that begins with "[TensorFlow]".
 */
PROCESSOR_DEEPREC_API int get_serving_model_info(void *model_buf, void **output_data, int *output_size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PROCESSOR_DEEPREC_H_ */
