/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests from several threads for some time, and counts them. */
#ifndef TIMING_H_
#define TIMING_H_

#include <stddef.h>
#include <stdint.h>

#include <processor/processor.h>

/* Latencies by size: 64 steps to each doubling, so a percentile is off by less than 1.6 %. */
#define TIMING_STEPS 64
#define TIMING_BUCKETS (TIMING_STEPS * 36)

struct timing {
  int threads;
  double seconds;
  double cpu_seconds; /* of the whole process, including TensorFlow threads */
  uint64_t requests;
  uint64_t failed;
  processor_error first_error;
  double total_ns;
  int64_t max_ns;
  uint64_t buckets[TIMING_BUCKETS];
};

/* Send `requests` [count] in turn from every thread. Returns 0 on failure, after printing the reason to stderr. */
int timing_run(const processor_model *model, const processor_request *requests, size_t count, int threads,
               double seconds, struct timing *timing);

void timing_print(const struct timing *timing);

/* Print one line: threads, seconds, requests, failed, requests_per_second, cpu_seconds_per_1000_requests,
 * latency_us {mean, p50, p95, p99, max}. */
void timing_print_json(const struct timing *timing);

#endif /* TIMING_H_ */
