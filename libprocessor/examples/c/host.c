/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A complete host in C: it loads a SavedModel, runs requests, measures them from several threads, and ends cleanly.
 *
 *     host MODEL                                              one request generated from the signature, then timing
 *     host MODEL --requests FILE --output FILE --seconds 0    responses to given requests
 *
 * See usage() for the options and docs/c.md for the format of the files.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <processor/processor.h>

#include "generate.h"
#include "messages.h"
#include "timing.h"

struct arguments {
  const char *model;
  const char *config;
  const char *protocol;
  const char *request;  /* a file with one message */
  const char *requests; /* a file of messages, each after its length */
  const char *signature;
  const char *output;
  long threads;
  long rows;
  double seconds;
  int json;
};

static void usage(FILE *to) {
  fputs(
      "usage: host MODEL [options]\n"
      "  MODEL              folder of a SavedModel\n"
      "  --config JSON      configuration of the model\n"
      "  --protocol NAME    of the requests: tfserving (default) or eas\n"
      "  --request FILE     one serialized request\n"
      "  --requests FILE    several, each behind its length: 4 bytes, little-endian\n"
      "  --output FILE      write the responses to these requests, in the format of --requests\n"
      "  --signature NAME   signature to run; default: the model's\n"
      "  --rows N           rows of the request that is made up if none is given; default 1\n"
      "  --threads N        threads that send requests; default 1\n"
      "  --seconds S        duration of the measurement; default 5, 0 for none\n"
      "  --json             print the figures as one line of JSON\n",
      to);
}

/* Parse a number within the bounds. Returns 0 if `text` is not one. */
static int parse_number(const char *name, const char *text, double least, double most, double *number) {
  char *end;
  errno = 0;
  *number = strtod(text, &end);
  if (errno == 0 && end != text && *end == '\0' && *number >= least && *number <= most) return 1;
  fprintf(stderr, "host: %s %s: expected a number from %g to %g\n", name, text, least, most);
  return 0;
}

static int parse_arguments(int argc, char **argv, struct arguments *dst) {
  double threads = 1, rows = 1;
  memset(dst, 0, sizeof *dst);
  dst->protocol = "tfserving";
  dst->seconds = 5;
  for (int i = 1; i < argc; ++i) {
    const char *name = argv[i];
    if (strncmp(name, "--", 2) != 0 && dst->model == NULL) {
      dst->model = name;
      continue;
    }
    if (strcmp(name, "--json") == 0) {
      dst->json = 1;
      continue;
    }
    const char *value = i + 1 < argc ? argv[++i] : NULL;
    if (value == NULL) {
      fprintf(stderr, "host: %s: unknown, or its value is missing\n", name);
      return 0;
    }
    int good = 1;
    if (strcmp(name, "--config") == 0) {
      dst->config = value;
    } else if (strcmp(name, "--protocol") == 0) {
      dst->protocol = value;
    } else if (strcmp(name, "--request") == 0) {
      dst->request = value;
    } else if (strcmp(name, "--requests") == 0) {
      dst->requests = value;
    } else if (strcmp(name, "--signature") == 0) {
      dst->signature = value;
    } else if (strcmp(name, "--output") == 0) {
      dst->output = value;
    } else if (strcmp(name, "--rows") == 0) {
      good = parse_number(name, value, 1, 1e6, &rows);
    } else if (strcmp(name, "--threads") == 0) {
      good = parse_number(name, value, 1, 4096, &threads);
    } else if (strcmp(name, "--seconds") == 0) {
      good = parse_number(name, value, 0, 1e6, &dst->seconds);
    } else {
      fprintf(stderr, "host: %s: unknown option\n", name);
      good = 0;
    }
    if (!good) return 0;
  }
  dst->rows = (long)rows;
  dst->threads = (long)threads;
  if (dst->model == NULL) {
    fputs("host: MODEL: missing\n", stderr);
    return 0;
  }
  if (dst->request != NULL && dst->requests != NULL) {
    fputs("host: --request and --requests: expected one of them\n", stderr);
    return 0;
  }
  if (dst->output != NULL && dst->request == NULL && dst->requests == NULL) {
    fputs("host: --output: expected with --request or --requests only\n", stderr);
    return 0;
  }
  return 1;
}

static int report(const char *what, const processor_error *error) {
  fprintf(stderr, "host: %s: %s: %s\n", what, processor_status_name(error->code), error->message);
  return 0;
}

/* The requests to send, and the memory that they point into. */
struct workload {
  processor_request *requests;
  size_t count;
  struct messages messages;
  struct generated generated;
};

static void workload_free(struct workload *workload) {
  free(workload->requests);
  messages_free(&workload->messages);
  generated_free(&workload->generated);
}

/* Read requests from a file. */
static int read_workload(const struct arguments *arguments, struct workload *dst) {
  int good = arguments->request != NULL ? messages_read_one(arguments->request, &dst->messages)
                                        : messages_read(arguments->requests, &dst->messages);
  if (!good) return 0;
  dst->count = dst->messages.count;
  dst->requests = calloc(dst->count, sizeof *dst->requests);
  if (dst->requests == NULL) {
    fputs("host: out of memory\n", stderr);
    return 0;
  }
  for (size_t i = 0; i < dst->count; ++i) {
    dst->requests[i].struct_size = sizeof dst->requests[i];
    dst->requests[i].protocol = arguments->protocol;
    dst->requests[i].data = dst->messages.items[i].data;
    dst->requests[i].size = dst->messages.items[i].size;
    dst->requests[i].signature_name = arguments->signature;
  }
  return 1;
}

/* Generate one request of tensors from the signature. */
static int make_workload(const struct arguments *arguments, const processor_model *model, struct workload *dst) {
  processor_error error;
  processor_result *signatures = NULL;
  if (processor_model_signatures(model, &signatures, &error) != PROCESSOR_OK) return report("signatures", &error);
  const void *json;
  size_t size;
  processor_result_bytes(signatures, &json, &size);
  int good = generate(json, size, arguments->signature, arguments->rows, &dst->generated);
  processor_result_free(signatures);
  if (!good) return 0;
  dst->count = 1;
  dst->requests = calloc(1, sizeof *dst->requests);
  if (dst->requests == NULL) {
    fputs("host: out of memory\n", stderr);
    return 0;
  }
  dst->requests->struct_size = sizeof *dst->requests;
  dst->requests->signature_name = dst->generated.signature;
  dst->requests->inputs = dst->generated.inputs;
  dst->requests->num_inputs = dst->generated.num_inputs;
  return 1;
}

static void describe_tensors(const processor_result *result) {
  for (size_t i = 0; i < processor_result_num_tensors(result); ++i) {
    processor_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    if (processor_result_tensor(result, i, &tensor) != PROCESSOR_OK) return;
    printf("output %s: dtype %d, shape [", tensor.name, (int)tensor.dtype);
    for (int32_t axis = 0; axis < tensor.rank; ++axis) {
      printf("%s%lld", axis > 0 ? ", " : "", (long long)tensor.dims[axis]);
    }
    printf("], %zu bytes", tensor.size);
    if (tensor.dtype == PROCESSOR_FLOAT && tensor.size >= sizeof(float)) {
      float first;
      memcpy(&first, tensor.data, sizeof first);
      printf(", first value %g", (double)first);
    }
    putchar('\n');
  }
}

/* Run each request once, and write or describe the responses. */
static int answer_once(const struct arguments *arguments, const processor_model *model,
                       const struct workload *workload) {
  FILE *output = NULL;
  if (arguments->output != NULL) {
    output = fopen(arguments->output, "wb");
    if (output == NULL) {
      fprintf(stderr, "host: %s: %s\n", arguments->output, strerror(errno));
      return 0;
    }
  }
  int good = 1;
  for (size_t i = 0; good && i < workload->count; ++i) {
    processor_error error;
    processor_result *result = NULL;
    if (processor_model_run(model, &workload->requests[i], &result, &error) != PROCESSOR_OK) {
      char what[64];
      snprintf(what, sizeof what, "request %zu", i);
      good = report(what, &error);
      break;
    }
    const void *data;
    size_t size;
    if (processor_result_bytes(result, &data, &size) != PROCESSOR_OK) {
      if (!arguments->json) describe_tensors(result);
    } else if (output != NULL) {
      good = message_write(output, data, size);
      if (!good) fprintf(stderr, "host: %s: %s\n", arguments->output, strerror(errno));
    } else if (!arguments->json) {
      printf("response %zu: %zu bytes\n", i, size);
    }
    processor_result_free(result);
  }
  if (output != NULL && fclose(output) != 0) {
    fprintf(stderr, "host: %s: %s\n", arguments->output, strerror(errno));
    good = 0;
  }
  return good;
}

static int serve(const struct arguments *arguments, const processor_model *model) {
  struct workload workload;
  memset(&workload, 0, sizeof workload);
  int given = arguments->request != NULL || arguments->requests != NULL;
  int good = given ? read_workload(arguments, &workload) : make_workload(arguments, model, &workload);
  good = good && answer_once(arguments, model, &workload);
  if (good && arguments->seconds > 0) {
    struct timing timing;
    good = timing_run(model, workload.requests, workload.count, (int)arguments->threads, arguments->seconds, &timing);
    if (good && arguments->json) {
      timing_print_json(&timing);
    } else if (good) {
      timing_print(&timing);
    }
    if (good && timing.failed > 0) {
      fprintf(stderr, "host: %llu requests failed, the first with %s: %s\n", (unsigned long long)timing.failed,
              processor_status_name(timing.first_error.code), timing.first_error.message);
      good = 0;
    }
  }
  workload_free(&workload);
  return good;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--help") == 0) {
    usage(stdout);
    return EXIT_SUCCESS;
  }
  struct arguments arguments;
  if (!parse_arguments(argc, argv, &arguments)) {
    usage(stderr);
    return 2;
  }
  unsigned library = processor_abi_version(), header = PROCESSOR_ABI_VERSION;
  if (library >> 16 != header >> 16 || library < header) {
    fprintf(stderr, "host: libprocessor.so: ABI version %#x, expected %#x\n", library, header);
    return EXIT_FAILURE;
  }
  processor_load_options options = {sizeof options, PROCESSOR_ABI_VERSION, arguments.model, arguments.config};
  processor_model *model = NULL;
  processor_error error;
  if (processor_model_load(&options, &model, &error) != PROCESSOR_OK) {
    report(arguments.model, &error);
    return EXIT_FAILURE;
  }
  int good = serve(&arguments, model);
  processor_model_free(model);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
