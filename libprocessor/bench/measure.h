// SPDX-License-Identifier: Apache-2.0
// One round of a load test: some client threads, each sending its next request as soon as the last is answered.
#ifndef PROCESSOR_BENCH_MEASURE_H_
#define PROCESSOR_BENCH_MEASURE_H_

#include <cstddef>

#include "engine.h"

namespace processor::bench {

/// Sends requests 0 .. num_requests - 1 over and over for `seconds`. Throws std::runtime_error if one is refused.
Round Measure(Engine* engine, size_t num_requests, size_t threads, double seconds);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_MEASURE_H_
