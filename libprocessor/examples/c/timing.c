/* SPDX-License-Identifier: Apache-2.0 */
#include "timing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct worker {
  pthread_t thread;
  const processor_model *model;
  const processor_request *requests;
  size_t count;
  size_t first; /* the first request; threads start with different ones */
  int64_t end_ns;
  struct timing timing;
};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* The buckets of [2^k, 2^(k+1)) begin at TIMING_STEPS * (k - 5); smaller values have one bucket each. */
static int bucket_of(int64_t ns) {
  int shift = 0;
  while (ns >> shift >= 2 * TIMING_STEPS) ++shift;
  int bucket = TIMING_STEPS * shift + (int)(ns >> shift);
  return bucket < TIMING_BUCKETS ? bucket : TIMING_BUCKETS - 1;
}

/* Return the middle of a bucket in nanoseconds. */
static double value_of(int bucket) {
  int shift = bucket < 2 * TIMING_STEPS ? 0 : bucket / TIMING_STEPS - 1;
  double least = (double)(bucket - TIMING_STEPS * shift);
  return (least + (shift > 0 ? 0.5 : 0.0)) * (double)((int64_t)1 << shift);
}

static double percentile_us(const struct timing *timing, double percent) {
  uint64_t wanted = (uint64_t)((double)timing->requests * percent / 100.0);
  uint64_t seen = 0;
  for (int i = 0; i < TIMING_BUCKETS; ++i) {
    seen += timing->buckets[i];
    if (seen > wanted) return value_of(i) / 1e3;
  }
  return (double)timing->max_ns / 1e3;
}

static void *work(void *argument) {
  struct worker *worker = argument;
  struct timing *timing = &worker->timing;
  int64_t begin = now_ns();
  for (size_t i = worker->first; begin < worker->end_ns; ++i) {
    processor_result *result = NULL;
    processor_error error;
    processor_status status = processor_model_run(worker->model, &worker->requests[i % worker->count], &result, &error);
    processor_result_free(result);
    int64_t end = now_ns();
    ++timing->requests;
    ++timing->buckets[bucket_of(end - begin)];
    timing->total_ns += (double)(end - begin);
    if (end - begin > timing->max_ns) timing->max_ns = end - begin;
    if (status != PROCESSOR_OK && timing->failed++ == 0) timing->first_error = error;
    begin = end;
  }
  return NULL;
}

static void add(struct timing *sum, const struct timing *part) {
  sum->requests += part->requests;
  sum->total_ns += part->total_ns;
  if (part->max_ns > sum->max_ns) sum->max_ns = part->max_ns;
  if (sum->failed == 0) sum->first_error = part->first_error;
  sum->failed += part->failed;
  for (int i = 0; i < TIMING_BUCKETS; ++i) sum->buckets[i] += part->buckets[i];
}

int timing_run(const processor_model *model, const processor_request *requests, size_t count, int threads,
               double seconds, struct timing *timing) {
  memset(timing, 0, sizeof *timing);
  struct worker *workers = calloc((size_t)threads, sizeof *workers);
  if (workers == NULL) {
    fputs("host: out of memory\n", stderr);
    return 0;
  }
  int64_t begin = now_ns();
  double cpu_before = cpu_seconds();
  int started = 0;
  for (; started < threads; ++started) {
    struct worker *worker = &workers[started];
    worker->model = model;
    worker->requests = requests;
    worker->count = count;
    worker->first = (size_t)started * count / (size_t)threads;
    worker->end_ns = begin + (int64_t)(seconds * 1e9);
    if (pthread_create(&worker->thread, NULL, work, worker) != 0) break;
  }
  for (int i = 0; i < started; ++i) {
    pthread_join(workers[i].thread, NULL);
    add(timing, &workers[i].timing);
  }
  timing->threads = started;
  timing->seconds = (double)(now_ns() - begin) / 1e9;
  timing->cpu_seconds = cpu_seconds() - cpu_before;
  free(workers);
  if (started < threads) {
    fprintf(stderr, "host: thread %d cannot be started\n", started);
    return 0;
  }
  return 1;
}

static double mean_us(const struct timing *timing) {
  return timing->requests > 0 ? timing->total_ns / (double)timing->requests / 1e3 : 0.0;
}

static double cpu_per_1000(const struct timing *timing) {
  return timing->requests > 0 ? 1e3 * timing->cpu_seconds / (double)timing->requests : 0.0;
}

void timing_print(const struct timing *timing) {
  printf(
      "%llu requests in %.2f s from %d thread%s: %.0f requests/s, p50 %.1f us, p99 %.1f us, "
      "%.3f CPU seconds per 1,000 requests\n",
      (unsigned long long)timing->requests, timing->seconds, timing->threads, timing->threads == 1 ? "" : "s",
      (double)timing->requests / timing->seconds, percentile_us(timing, 50), percentile_us(timing, 99),
      cpu_per_1000(timing));
}

void timing_print_json(const struct timing *timing) {
  printf(
      "{\"threads\": %d, \"seconds\": %.3f, \"requests\": %llu, \"failed\": %llu, \"requests_per_second\": %.1f, "
      "\"cpu_seconds_per_1000_requests\": %.4f, \"latency_us\": {\"mean\": %.1f, \"p50\": %.1f, \"p95\": %.1f, "
      "\"p99\": %.1f, \"max\": %.1f}}\n",
      timing->threads, timing->seconds, (unsigned long long)timing->requests, (unsigned long long)timing->failed,
      (double)timing->requests / timing->seconds, cpu_per_1000(timing), mean_us(timing), percentile_us(timing, 50),
      percentile_us(timing, 95), percentile_us(timing, 99), (double)timing->max_ns / 1e3);
}
