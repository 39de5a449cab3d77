/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *path, const char *why) {
  fprintf(stderr, "host: %s: %s\n", path, why);
  return 0;
}

/* Read a whole file. The caller frees it; NULL on failure. */
static unsigned char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fail(path, strerror(errno));
    return NULL;
  }
  size_t capacity = 1 << 16;
  unsigned char *memory = malloc(capacity);
  *size = 0;
  while (memory != NULL) {
    *size += fread(memory + *size, 1, capacity - *size, file);
    if (*size < capacity) break;
    capacity *= 2;
    unsigned char *larger = realloc(memory, capacity);
    if (larger == NULL) free(memory);
    memory = larger;
  }
  if (memory == NULL) {
    fail(path, "out of memory");
  } else if (ferror(file)) {
    fail(path, strerror(errno));
    free(memory);
    memory = NULL;
  }
  fclose(file);
  return memory;
}

static uint32_t read_length(const unsigned char *src) {
  return (uint32_t)src[0] | (uint32_t)src[1] << 8 | (uint32_t)src[2] << 16 | (uint32_t)src[3] << 24;
}

/* Count the messages and, if `items` is not NULL, list them. Returns 0 if the last one is truncated. */
static int list(const unsigned char *memory, size_t size, struct message *items, size_t *count) {
  *count = 0;
  for (size_t at = 0; at < size; ++*count) {
    if (size - at < 4) return 0;
    size_t length = read_length(memory + at);
    at += 4;
    if (length > size - at) return 0;
    if (items != NULL) {
      items[*count].data = memory + at;
      items[*count].size = length;
    }
    at += length;
  }
  return 1;
}

int messages_read(const char *path, struct messages *dst) {
  size_t size;
  memset(dst, 0, sizeof *dst);
  dst->memory = read_file(path, &size);
  if (dst->memory == NULL) return 0;
  if (!list(dst->memory, size, NULL, &dst->count) || dst->count == 0) {
    messages_free(dst);
    return fail(path, "not a list of messages, expected each behind its length in 4 bytes, little-endian");
  }
  dst->items = calloc(dst->count, sizeof *dst->items);
  if (dst->items == NULL) {
    messages_free(dst);
    return fail(path, "out of memory");
  }
  return list(dst->memory, size, dst->items, &dst->count);
}

int messages_read_one(const char *path, struct messages *dst) {
  size_t size;
  memset(dst, 0, sizeof *dst);
  dst->memory = read_file(path, &size);
  if (dst->memory == NULL) return 0;
  dst->items = calloc(1, sizeof *dst->items);
  if (dst->items == NULL) {
    messages_free(dst);
    return fail(path, "out of memory");
  }
  dst->items->data = dst->memory;
  dst->items->size = size;
  dst->count = 1;
  return 1;
}

int message_write(FILE *file, const void *data, size_t size) {
  unsigned char length[4];
  if (size > UINT32_MAX) {
    errno = EFBIG;
    return 0;
  }
  for (int i = 0; i < 4; ++i) length[i] = (unsigned char)(size >> 8 * i);
  return fwrite(length, 1, 4, file) == 4 && fwrite(data, 1, size, file) == size;
}

void messages_free(struct messages *messages) {
  free(messages->memory);
  free(messages->items);
  memset(messages, 0, sizeof *messages);
}
