/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that uses only the drop-in contract, as existing hosts do.
 *
 *     drop_in CONFIG REQUEST [RESPONSE]
 *
 * CONFIG is the JSON configuration, and REQUEST a file with a serialized tensorflow.eas.PredictRequest. The
 * PredictResponse is written to RESPONSE.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <processor/deeprec.h>

/* Read a whole file. The caller frees it; NULL on failure. */
static void *read_file(const char *path, int *size) {
  FILE *file = fopen(path, "rb");
  long length = -1;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0) length = ftell(file);
  char *data = length >= 0 && length < INT_MAX ? malloc((size_t)length + 1) : NULL;
  if (data != NULL) {
    rewind(file);
    *size = (int)fread(data, 1, (size_t)length, file);
  } else {
    fprintf(stderr, "drop_in: %s: cannot be read\n", path);
  }
  if (file != NULL) fclose(file);
  return data;
}

static int write_file(const char *path, const void *data, int size) {
  FILE *file = fopen(path, "wb");
  int good = file != NULL && fwrite(data, 1, (size_t)size, file) == (size_t)size;
  if (file != NULL && fclose(file) != 0) good = 0;
  if (!good) fprintf(stderr, "drop_in: %s: cannot be written\n", path);
  return good;
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 4) {
    fputs("usage: drop_in CONFIG REQUEST [RESPONSE]\n", stderr);
    return 2;
  }
  int state = -1;
  void *model = initialize("", argv[1], &state);
  if (model == NULL || state != 0) {
    fputs("drop_in: the model cannot be loaded, see the log\n", stderr);
    return EXIT_FAILURE;
  }

  int request_size = 0;
  void *request = read_file(argv[2], &request_size);
  if (request == NULL) return EXIT_FAILURE;
  void *response = NULL;
  int response_size = 0;
  int code = process(model, request, request_size, &response, &response_size);
  free(request);

  int good = code == 200;
  if (!good) {
    fprintf(stderr, "drop_in: %d: %.*s\n", code, response_size, (const char *)response);
  } else if (argc == 4) {
    good = write_file(argv[3], response, response_size);
  } else {
    printf("response: %d bytes\n", response_size);
  }
  /* The buffer must be freed for every code. The contract has no function that frees the model. */
  free(response);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
