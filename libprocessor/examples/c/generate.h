/* SPDX-License-Identifier: Apache-2.0 */
/* Makes up a request from the signature of a model: every number is 1, every string "a". */
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
 * json       what processor_model_signatures() answered.
 * signature  NULL: the default one of the model.
 * rows       what an open dimension becomes if it is the first of its tensor; others become 1.
 *
 * On failure it answers 0, and has said why on stderr.
 */
int generate(const char *json, size_t size, const char *signature, int64_t rows, struct generated *dst);

void generated_free(struct generated *generated);

#endif /* GENERATE_H_ */
