/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the JSON that the library writes, front to back, without building a tree. A host that has a JSON library
 * will use that instead.
 *
 * After a failure the reader stays where it was, and every further step fails as well.
 */
#ifndef JSON_H_
#define JSON_H_

#include <stddef.h>
#include <stdint.h>

struct json {
  const char *at;
  const char *end;
  int failed;
};

/* The next character that is not white space; NUL at the end. */
char json_peek(struct json *json);

/* Take the next character that is not white space, if it is `wanted`. */
int json_take(struct json *json, char wanted);

/* Demand it. */
void json_expect(struct json *json, char wanted);

/* Read a string into memory that the caller frees; NULL on failure. */
char *json_string(struct json *json);

/* Read a whole number. */
int64_t json_integer(struct json *json);

/* Read over a value of any kind. */
void json_skip(struct json *json);

/*
 * Step through an object or an array:
 *
 *     int first = 1;
 *     while (json_next(json, '{', '}', &first)) { char *key = json_string(json); json_expect(json, ':'); ... }
 */
int json_next(struct json *json, char open, char close, int *first);

#endif /* JSON_H_ */
