/* SPDX-License-Identifier: Apache-2.0 */
/* Files of serialized messages, each behind its length: 4 bytes, little-endian. */
#ifndef MESSAGES_H_
#define MESSAGES_H_

#include <stddef.h>
#include <stdio.h>

struct message {
  const void *data;
  size_t size;
};

/* Messages, and the file that they lie in. */
struct messages {
  unsigned char *memory;
  struct message *items;
  size_t count;
};

/* Read all messages of a file. On failure they answer 0, and have said why on stderr. */
int messages_read(const char *path, struct messages *dst);

/* Take a whole file as one message. */
int messages_read_one(const char *path, struct messages *dst);

/* Write one message behind its length; 0 on failure, errno says why. */
int message_write(FILE *file, const void *data, size_t size);

void messages_free(struct messages *messages);

#endif /* MESSAGES_H_ */
