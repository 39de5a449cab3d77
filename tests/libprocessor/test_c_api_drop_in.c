/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses every function of deeprec.h from plain C99: test_c_api_drop_in MODEL. Exits with 0 if all is as the header says,
 * else it prints what is not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <processor/deeprec.h>
#include <processor/processor.h>

#include "c_api_checks.h"

/* The text of an output buffer of the drop-in contract; frees it. */
static int take(void* data, int size, const char* word) {
  int found = data != NULL && holds(data, (size_t)size, word, strlen(word));
  free(data);
  return found;
}

static void check_drop_in(const char* path) {
  char text[4096];
  snprintf(text, sizeof text,
           "{\"savedmodel_dir\": \"%s\", \"signature_name\": \"serving_default\", \"feature_store_type\": \"memory\", "
           "\"serialize_protocol\": \"protobuf\", \"model_store_type\": \"local\", \"batch_process_count\": 2}",
           path);
  int state = 1;
  CHECK(initialize("", "{\"feature_store_type\": \"redis\"}", &state) == NULL && state == -1);
  CHECK(initialize(NULL, NULL, NULL) == NULL);
  void* model = initialize("", text, &state);
  CHECK(model != NULL && state == 0);
  if (model == NULL) return;

  unsigned char request[256];
  int request_size = (int)write_eas(request);
  void* output = NULL;
  int output_size = 0;
  CHECK(process(model, request, request_size, &output, &output_size) == 200);
  CHECK(holds_scores(output, (size_t)output_size));
  free(output);
  CHECK(process(model, NULL, 0, &output, &output_size) == 200);
  CHECK(take(output, output_size, "\"signature_name\""));
  CHECK(process(model, request, request_size - 1, &output, &output_size) == 500);
  CHECK(take(output, output_size, "[TensorFlow]"));
  CHECK(process(model, request, -1, &output, &output_size) == 500);
  CHECK(take(output, output_size, "[TensorFlow]"));
  CHECK(process(NULL, request, request_size, &output, &output_size) == 500);
  CHECK(take(output, output_size, "[TensorFlow]"));

  const void* batch[2] = {request, request};
  int batch_sizes[2] = {request_size, request_size - 1};
  void* outputs[2] = {NULL, NULL};
  int output_sizes[2] = {0, 0};
  CHECK(batch_process(model, batch, batch_sizes, outputs, output_sizes) == 500);
  CHECK(outputs[0] != NULL && holds_scores(outputs[0], (size_t)output_sizes[0]));
  free(outputs[0]);
  CHECK(take(outputs[1], output_sizes[1], "[TensorFlow]"));
  batch_sizes[1] = request_size;
  CHECK(batch_process(model, batch, batch_sizes, outputs, output_sizes) == 200);
  CHECK(outputs[1] != NULL && holds_scores(outputs[1], (size_t)output_sizes[1]));
  free(outputs[0]);
  free(outputs[1]);

  CHECK(get_serving_model_info(model, &output, &output_size) == 200);
  CHECK(take(output, output_size, "7"));
  processor_model_free(model);
  CHECK(process(model, request, request_size, &output, &output_size) == 500);
  CHECK(take(output, output_size, "[TensorFlow]"));
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fputs("usage: test_c_api_drop_in MODEL\n", stderr);
    return 2;
  }
  check_drop_in(argv[1]);
  if (failures > 0) fprintf(stderr, "%d checks failed\n", failures);
  return failures > 0;
}
