/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the JSON that the library writes from front to back, without building a tree. A host that has a JSON library
 * would use that instead.
 *
 * After a failure, the reader keeps its position, and every further step fails as well.
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

/* Return the next character that is not white space; NUL at the end. */
char json_peek(struct json *json);

/* Skip the next character that is not white space, if it is `wanted`. Returns whether it was. */
int json_take(struct json *json, char wanted);

/* Skip the next character that is not white space; it is a failure if it is not `wanted`. */
void json_expect(struct json *json, char wanted);

/* Read a string into memory that the caller frees; NULL on failure. */
char *json_string(struct json *json);

/* Read a whole number. */
int64_t json_integer(struct json *json);

/* Skip a value of any kind. */
void json_skip(struct json *json);

/*
 * Step through an object or an array:
 *
 *     int first = 1;
 *     while (json_next(json, '{', '}', &first)) { char *key = json_string(json); json_expect(json, ':'); ... }
 */
int json_next(struct json *json, char open, char close, int *first);

#endif /* JSON_H_ */
