/* SPDX-License-Identifier: Apache-2.0 */
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static int fail(const char *object, const char *why) {
  fprintf(stderr, "host: %s: %s\n", object, why);
  return 0;
}

/* An element type, its size, and the number 1 in it, little-endian. */
static const struct element {
  const char *name;
  int32_t dtype;
  size_t size;
  unsigned char one[16];
} elements[] = {
    {"DT_FLOAT", PROCESSOR_FLOAT, 4, {0, 0, 0x80, 0x3f}},
    {"DT_DOUBLE", PROCESSOR_DOUBLE, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
    {"DT_INT32", PROCESSOR_INT32, 4, {1}},
    {"DT_UINT8", PROCESSOR_UINT8, 1, {1}},
    {"DT_INT16", PROCESSOR_INT16, 2, {1}},
    {"DT_INT8", PROCESSOR_INT8, 1, {1}},
    {"DT_STRING", PROCESSOR_STRING, 1, {'a'}},
    {"DT_COMPLEX64", PROCESSOR_COMPLEX64, 8, {0, 0, 0x80, 0x3f}},
    {"DT_INT64", PROCESSOR_INT64, 8, {1}},
    {"DT_BOOL", PROCESSOR_BOOL, 1, {1}},
    {"DT_BFLOAT16", PROCESSOR_BFLOAT16, 2, {0x80, 0x3f}},
    {"DT_UINT16", PROCESSOR_UINT16, 2, {1}},
    {"DT_COMPLEX128", PROCESSOR_COMPLEX128, 16, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
    {"DT_HALF", PROCESSOR_HALF, 2, {0, 0x3c}},
    {"DT_UINT32", PROCESSOR_UINT32, 4, {1}},
    {"DT_UINT64", PROCESSOR_UINT64, 8, {1}},
};

static const struct element *find_element(const char *name) {
  for (size_t i = 0; i < sizeof elements / sizeof *elements; ++i) {
    if (strcmp(elements[i].name, name) == 0) return &elements[i];
  }
  return NULL;
}

/* An input of the signature. */
struct spec {
  char *name;
  char *dtype;
  int64_t dims[GENERATE_MAX_RANK];
  int32_t rank;
};

/* An open rank becomes one dimension. */
static void read_shape(struct json *json, int64_t rows, struct spec *dst) {
  if (json_peek(json) == 'n') {
    json_skip(json);
    dst->rank = 1;
    dst->dims[0] = rows;
    return;
  }
  int first = 1;
  while (json_next(json, '[', ']', &first)) {
    int64_t dim = json_integer(json);
    if (dst->rank == GENERATE_MAX_RANK) {
      json->failed = 1;
      return;
    }
    dst->dims[dst->rank] = dim >= 0 ? dim : dst->rank == 0 ? rows : 1;
    ++dst->rank;
  }
}

static void read_spec(struct json *json, int64_t rows, struct spec *dst) {
  memset(dst, 0, sizeof *dst);
  int first = 1;
  while (json_next(json, '{', '}', &first)) {
    char *key = json_string(json);
    json_expect(json, ':');
    if (key != NULL && strcmp(key, "name") == 0 && dst->name == NULL) {
      dst->name = json_string(json);
    } else if (key != NULL && strcmp(key, "dtype") == 0 && dst->dtype == NULL) {
      dst->dtype = json_string(json);
    } else if (key != NULL && strcmp(key, "shape") == 0 && dst->rank == 0) {
      read_shape(json, rows, dst);
    } else {
      json_skip(json);
    }
    free(key);
  }
}

/* Allocate the values of one tensor, at an address that the library can use without a copy. */
static int fill(const struct element *element, const struct spec *spec, processor_tensor *dst) {
  size_t count = 1;
  for (int32_t i = 0; i < spec->rank; ++i) {
    size_t dim = (size_t)spec->dims[i];
    if (dim > 0 && count > ((size_t)1 << 32) / dim) return fail(spec->name, "more than 2^32 elements");
    count *= dim;
  }
  size_t size = count * element->size;
  unsigned char *data = aligned_alloc(64, (size + 64) / 64 * 64);
  int64_t *dims = calloc((size_t)spec->rank + 1, sizeof *dims);
  dst->data = data;
  dst->dims = dims;
  if (data == NULL || dims == NULL) return fail(spec->name, "out of memory");
  for (size_t i = 0; i < count; ++i) memcpy(data + i * element->size, element->one, element->size);
  memcpy(dims, spec->dims, (size_t)spec->rank * sizeof *dims);
  dst->struct_size = sizeof *dst;
  dst->dtype = element->dtype;
  dst->rank = spec->rank;
  dst->size = size;
  dst->item_size = element->dtype == PROCESSOR_STRING ? 1 : 0;
  return 1;
}

/* Append one input, and take ownership of its name. */
static int append(struct spec *spec, struct generated *dst) {
  const struct element *element = spec->dtype != NULL ? find_element(spec->dtype) : NULL;
  if (spec->name == NULL || element == NULL) {
    return fail(spec->name != NULL ? spec->name : "signature", "an input without a name or of a dtype not known here");
  }
  processor_tensor *larger = realloc(dst->inputs, (dst->num_inputs + 1) * sizeof *larger);
  if (larger == NULL) return fail("signature", "out of memory");
  dst->inputs = larger;
  processor_tensor *input = &dst->inputs[dst->num_inputs++];
  memset(input, 0, sizeof *input);
  input->name = spec->name;
  int good = fill(element, spec, input);
  spec->name = NULL;
  return good;
}

static int read_inputs(struct json *json, int64_t rows, struct generated *dst) {
  int good = 1, first = 1;
  while (good && json_next(json, '[', ']', &first)) {
    struct spec spec;
    read_spec(json, rows, &spec);
    good = !json->failed && append(&spec, dst);
    free(spec.name);
    free(spec.dtype);
  }
  return good;
}

/* Read one signature: its name, whether it is the default one and, if `dst` is not NULL, its inputs. */
static int read_signature(struct json *json, int64_t rows, char **name, int *is_default, struct generated *dst) {
  int good = 1, first = 1;
  *name = NULL;
  *is_default = 0;
  while (good && json_next(json, '{', '}', &first)) {
    char *key = json_string(json);
    json_expect(json, ':');
    if (key != NULL && strcmp(key, "signature_name") == 0 && *name == NULL) {
      *name = json_string(json);
    } else if (key != NULL && strcmp(key, "default") == 0) {
      *is_default = json_peek(json) == 't';
      json_skip(json);
    } else if (key != NULL && strcmp(key, "inputs") == 0 && dst != NULL && dst->inputs == NULL) {
      good = read_inputs(json, rows, dst);
    } else {
      json_skip(json);
    }
    free(key);
  }
  if (good && (json->failed || *name == NULL)) good = fail("signatures", "not the JSON expected");
  if (!good) {
    free(*name);
    *name = NULL;
  }
  return good;
}

/* Move `json` to the start of the requested signature. */
static int find_signature(struct json *json, const char *wanted) {
  int first = 1;
  while (json_next(json, '[', ']', &first)) {
    struct json ahead = *json;
    char *name;
    int is_default;
    if (!read_signature(&ahead, 1, &name, &is_default, NULL)) return 0;
    int found = wanted != NULL ? strcmp(name, wanted) == 0 : is_default;
    free(name);
    if (found) return 1;
    json->at = ahead.at;
  }
  return fail(wanted != NULL ? wanted : "signatures", "the model has no such signature");
}

int generate(const char *text, size_t size, const char *signature, int64_t rows, struct generated *dst) {
  struct json json = {text, text + size, 0};
  int is_default;
  memset(dst, 0, sizeof *dst);
  if (find_signature(&json, signature) && read_signature(&json, rows, &dst->signature, &is_default, dst)) return 1;
  generated_free(dst);
  return 0;
}

void generated_free(struct generated *generated) {
  for (size_t i = 0; i < generated->num_inputs; ++i) {
    free((char *)generated->inputs[i].name);
    free((void *)generated->inputs[i].data);
    free((int64_t *)generated->inputs[i].dims);
  }
  free(generated->inputs);
  free(generated->signature);
  memset(generated, 0, sizeof *generated);
}
