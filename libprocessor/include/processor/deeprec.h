/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file deeprec.h
 * \brief The drop-in contract: the four functions of DeepRec's Processor, for hosts that already use them.
 *
 * docs/drop_in.md tells what differs from the original, docs/configuration.md lists the keys of the configuration, and
 * protos/predict.proto declares the messages. New hosts use processor.h.
 *
 * The library allocates output buffers with `malloc`; the caller owns them and releases them with `free`. Any number of
 * threads may call these functions.
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
 * \brief Load a model, and return it when it is ready or has failed.
 *
 * If files of the model do not exist yet, the call waits for them, at most `init_timeout_minutes`.
 *
 * \param model_entry   folder of the model if the configuration names none, and of a warm-up file with a relative
 *                      name; may be "" or NULL.
 * \param model_config  a JSON object.
 * \param[out] state    0 if the model is ready, -1 if it failed; the log tells the reason. May be NULL.
 * \return a `processor_model *`, which the functions of processor.h accept as well. The caller owns it and frees it
 *         with processor_model_free(). NULL on failure.
 */
PROCESSOR_DEEPREC_API void *initialize(const char *model_entry, const char *model_config, int *state);

/**
 * \brief Run one request.
 *
 * \param input_data         the serialized `PredictRequest`.
 * \param input_size         its size in bytes; 0 requests the signature as JSON.
 * \param[out] output_data   the serialized `PredictResponse`, or plain text on failure.
 * \param[out] output_size   its size in bytes.
 * \return 200, or 500 with a text that begins with "[TensorFlow]".
 */
PROCESSOR_DEEPREC_API int process(void *model_buf, const void *input_data, int input_size, void **output_data,
                                  int *output_size);

/**
 * \brief Run as many requests as the key `batch_process_count` of the configuration says, each as process() does.
 *
 * Every entry of the outputs is written, even if the model has been freed. If `model_buf` is NULL, the number of
 * requests is unknown and only the first entry is written. If there is no memory for a text, its entry is NULL and 0.
 *
 * \param input_data         [batch_process_count] the serialized requests.
 * \param input_size         [batch_process_count] their sizes in bytes.
 * \param[out] output_data   [batch_process_count] what process() writes, a buffer for each request.
 * \param[out] output_size   [batch_process_count] their sizes in bytes.
 * \return 200 if every request succeeded, otherwise 500; the texts of failed requests begin with "[TensorFlow]".
 */
PROCESSOR_DEEPREC_API int batch_process(void *model_buf, const void *input_data[], int *input_size, void *output_data[],
                                        int *output_size);

/**
 * \brief Describe the served model, as a serialized `ServingModelInfo`.
 *
 * \return 200, or 500 with a text that begins with "[TensorFlow]".
 */
PROCESSOR_DEEPREC_API int get_serving_model_info(void *model_buf, void **output_data, int *output_size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PROCESSOR_DEEPREC_H_ */
