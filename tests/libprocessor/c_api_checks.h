/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that go on after a failure, and the request that test_c_api.c and test_c_api_drop_in.c send. */
#ifndef C_API_CHECKS_H_
#define C_API_CHECKS_H_

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

/* Every check is run, whatever failed before. */
#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                             \
    }                                                                         \
  } while (0)

/* The inputs of one request with two rows: y = x . [1, 2, 4] is 7 and -1, echo is "ab!" and "!". */
static const float x_values[6] = {1, 1, 1, 1, 1, -1};

static inline size_t put(unsigned char* dst, size_t at, const void* data, size_t size) {
  memcpy(dst + at, data, size);
  return at + size;
}

/* The serialized request of these inputs in "eas". */
static inline size_t write_eas(unsigned char* dst) {
  /* x: dtype 1, array_shape {dim: [2, 3] packed}, float_val packed */
  static const unsigned char x_head[] = {0x12, 0x27, 0x0a, 0x01, 'x',  0x12, 0x22, 0x08, 0x01,
                                         0x12, 0x04, 0x0a, 0x02, 0x02, 0x03, 0x1a, 0x18};
  /* s: dtype 7, array_shape {dim: [2]}, string_val "ab", "" */
  static const unsigned char s[] = {0x12, 0x12, 0x0a, 0x01, 's',  0x12, 0x0d, 0x08, 0x07, 0x12,
                                    0x03, 0x0a, 0x01, 0x02, 0x32, 0x02, 'a',  'b',  0x32, 0x00};
  size_t size = put(dst, 0, x_head, sizeof x_head);
  size = put(dst, size, x_values, sizeof x_values);
  return put(dst, size, s, sizeof s);
}

/* Does a block of memory hold another? */
static inline int holds(const void* memory, size_t size, const void* part, size_t part_size) {
  for (size_t i = 0; i + part_size <= size; ++i) {
    if (memcmp((const char*)memory + i, part, part_size) == 0) return 1;
  }
  return 0;
}

static inline int holds_scores(const void* memory, size_t size) {
  static const float scores[2] = {7, -1};
  return holds(memory, size, scores, sizeof scores) && holds(memory, size, "ab!", 3);
}

#endif /* C_API_CHECKS_H_ */
