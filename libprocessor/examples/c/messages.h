/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes files of serialized messages, each after its length of 4 bytes, little-endian. */
#ifndef MESSAGES_H_
#define MESSAGES_H_

#include <stddef.h>
#include <stdio.h>

struct message {
  const void *data;
  size_t size;
};

/* Messages, and the file that contains them. */
struct messages {
  unsigned char *memory;
  struct message *items;
  size_t count;
};

/* Read all messages of a file. Returns 0 on failure, after printing the reason to stderr. */
int messages_read(const char *path, struct messages *dst);

/* Read a whole file as one message. Returns 0 on failure, after printing the reason to stderr. */
int messages_read_one(const char *path, struct messages *dst);

/* Write one message after its length. Returns 0 on failure; errno has the reason. */
int message_write(FILE *file, const void *data, size_t size);

void messages_free(struct messages *messages);

#endif /* MESSAGES_H_ */
