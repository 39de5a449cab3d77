/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

static int fail(struct json *json) {
  json->failed = 1;
  return 0;
}

static int is_one_of(char c, const char *set) { return c != '\0' && strchr(set, c) != NULL; }

char json_peek(struct json *json) {
  while (json->at < json->end && is_one_of(*json->at, " \t\r\n")) ++json->at;
  return json->at < json->end ? *json->at : '\0';
}

int json_take(struct json *json, char wanted) {
  if (json->failed || json_peek(json) != wanted) return 0;
  ++json->at;
  return 1;
}

void json_expect(struct json *json, char wanted) {
  if (!json_take(json, wanted)) fail(json);
}

/* Write a code point as UTF-8. Returns the number of bytes. */
static size_t encode(unsigned long point, char *dst) {
  if (point < 0x80) {
    dst[0] = (char)point;
    return 1;
  }
  if (point < 0x800) {
    dst[0] = (char)(0xc0 | point >> 6);
    dst[1] = (char)(0x80 | (point & 0x3f));
    return 2;
  }
  dst[0] = (char)(0xe0 | point >> 12);
  dst[1] = (char)(0x80 | (point >> 6 & 0x3f));
  dst[2] = (char)(0x80 | (point & 0x3f));
  return 3;
}

/* Read the escape sequence after a backslash. */
static size_t unescape(struct json *json, char *dst) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (json->at == json->end) return (size_t)fail(json);
  char c = *json->at++;
  if (is_one_of(c, from)) {
    *dst = to[strchr(from, c) - from];
    return 1;
  }
  if (c != 'u' || json->end - json->at < 4) return (size_t)fail(json);
  char digits[5] = {0}, *end;
  memcpy(digits, json->at, 4);
  unsigned long point = strtoul(digits, &end, 16);
  if (end != digits + 4) return (size_t)fail(json);
  json->at += 4;
  return encode(point, dst);
}

char *json_string(struct json *json) {
  json_expect(json, '"');
  if (json->failed) return NULL;
  char *text = malloc((size_t)(json->end - json->at) + 1);
  if (text == NULL) {
    fail(json);
    return NULL;
  }
  size_t size = 0;
  while (!json->failed) {
    if (json->at == json->end) {
      fail(json);
      break;
    }
    char c = *json->at++;
    if (c == '"') break;
    if (c == '\\') {
      size += unescape(json, text + size);
    } else {
      text[size++] = c;
    }
  }
  text[size] = '\0';
  if (json->failed) {
    free(text);
    return NULL;
  }
  return text;
}

/* Read digits, letters and signs: a number or a word. Returns its length. */
static size_t word(struct json *json, char *dst, size_t capacity) {
  size_t size = 0;
  json_peek(json);
  while (json->at < json->end && size + 1 < capacity && !is_one_of(*json->at, ",:]} \t\r\n\"[{")) {
    dst[size++] = *json->at++;
  }
  dst[size] = '\0';
  if (size == 0) fail(json);
  return size;
}

int64_t json_integer(struct json *json) {
  char text[32], *end;
  word(json, text, sizeof text);
  int64_t value = strtoll(text, &end, 10);
  if (end == text || *end != '\0') fail(json);
  return value;
}

int json_next(struct json *json, char open, char close, int *first) {
  int begins = *first;
  *first = 0;
  if (begins) json_expect(json, open);
  if (json->failed || json_take(json, close)) return 0;
  if (!begins) json_expect(json, ',');
  return !json->failed;
}

void json_skip(struct json *json) {
  int depth = 0;
  do {
    if (json->failed) return;
    if (json_take(json, '{') || json_take(json, '[')) {
      ++depth;
    } else if (json_take(json, '}') || json_take(json, ']')) {
      --depth;
    } else if (json_take(json, ',') || json_take(json, ':')) {
      continue;
    } else if (json_peek(json) == '"') {
      free(json_string(json));
    } else {
      char text[64];
      word(json, text, sizeof text);
    }
  } while (depth > 0);
}
