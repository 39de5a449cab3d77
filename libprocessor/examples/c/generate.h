/* SPDX-License-Identifier: Apache-2.0 */
/* Generates a request from the signature of a model: every number is 1, every string "a". */
#ifndef GENERATE_H_
#define GENERATE_H_

#include <stddef.h>
#include <stdint.h>

#include <processor/processor.h>

#define GENERATE_MAX_RANK 16

/* The inputs of a signature, and the memory that they point into. */
struct generated {
  char *signature;
  processor_tensor *inputs;
  size_t num_inputs;
};

/*
 * Make inputs for a signature.
 *
 * json       the result of processor_model_signatures().
 * signature  NULL: the default signature of the model.
 * rows       the size of an open first dimension; other open dimensions become 1.
 *
 * Returns 0 on failure, after printing the reason to stderr.
 */
int generate(const char *json, size_t size, const char *signature, int64_t rows, struct generated *dst);

void generated_free(struct generated *generated);

#endif /* GENERATE_H_ */
