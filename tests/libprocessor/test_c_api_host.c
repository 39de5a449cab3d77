/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses every function of hosts in processor.h from plain C99: test_c_api_host MODEL STATE, where MODEL is the folder that
 * tests/helpers/models/host_model.py exports and STATE a folder for the host. Exits with 0 if all is as the header says, else
 * it prints what is not.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <processor/processor.h>

#include "c_api_checks.h"

static processor_error error;
static const char* state_dir;

static processor_host_request make_request(const unsigned char* data, size_t size) {
  processor_host_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.protocol = "eas";
  request.data = data;
  request.size = size;
  return request;
}

static processor_result_info info_of(const processor_result* result) {
  processor_result_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  CHECK(processor_result_get_info(result, &info) == PROCESSOR_OK);
  return info;
}

/* Writes desired.json; a host that looks meanwhile may find half of it, and looks again. */
static void desire(int generation, const char* model) {
  char path[4096];
  snprintf(path, sizeof path, "%s/desired.json", state_dir);
  FILE* file = fopen(path, "w");
  CHECK(file != NULL);
  if (file == NULL) return;
  fprintf(file, "{\"schema\": 1, \"generation\": %d, \"models\": {\"m\": {\"baseline\": 7, \"versions\": ", generation);
  fprintf(file, "{\"7\": {\"path\": \"%s\", \"config\": {\"session_num\": 2}}}}}}", model);
  fclose(file);
}

static int status_has(const processor_host* host, const char* words) {
  processor_result* result = NULL;
  const void* data = NULL;
  size_t size = 0;
  int found = 0;
  CHECK(processor_host_status(host, &result, &error) == PROCESSOR_OK);
  if (result != NULL && processor_result_bytes(result, &data, &size) == PROCESSOR_OK) {
    found = holds(data, size, words, strlen(words));
  }
  processor_result_free(result);
  return found;
}

static void wait_for(const processor_host* host, const char* words) {
  const struct timespec pause = {0, 10000000};
  for (int i = 0; i < 3000 && !status_has(host, words); ++i) nanosleep(&pause, NULL);
  CHECK(status_has(host, words));
}

static void check_create_errors(void) {
  processor_host_options options = {sizeof options, PROCESSOR_ABI_VERSION, state_dir, "a/b", NULL, 0, 0};
  processor_host* host = (processor_host*)&options;
  CHECK(processor_host_create(&options, &host, &error) == PROCESSOR_INVALID_ARGUMENT && host == NULL);
  CHECK(strstr(error.message, "host_id") != NULL);
  options.host_id = "c";
  options.maintenance_cpus = "none";
  CHECK(processor_host_create(&options, &host, &error) == PROCESSOR_INVALID_ARGUMENT && host == NULL);
  options.maintenance_cpus = NULL;
  options.abi_version += 1;
  CHECK(processor_host_create(&options, &host, NULL) == PROCESSOR_FAILED_PRECONDITION && host == NULL);
  processor_host_free(NULL);
  CHECK(processor_sizeof("processor_host_options") == sizeof(processor_host_options));
  CHECK(processor_sizeof("processor_host_request") == sizeof(processor_host_request));
  CHECK(processor_sizeof("processor_pair") == sizeof(processor_pair));
}

static void check_desired(void) {
  static const char good[] = "{\"schema\": 1, \"generation\": 1, \"models\": {}}";
  static const char bad[] =
      "{\"schema\": 1, \"generation\": 1, \"models\": {\"m\": {\"baseline\": 7, \"versions\": {\"7\": {\"path\": "
      "\"/m\","
      " \"config\": {\"cpusets\": \"0;1\"}}}}}}";
  char faults[1024];
  size_t size = 0;
  CHECK(processor_desired_check(good, strlen(good), NULL, faults, sizeof faults, &size, &error) == PROCESSOR_OK);
  CHECK(size == 2 && strcmp(faults, "[]") == 0);
  CHECK(processor_desired_check(bad, strlen(bad), "0", faults, sizeof faults, &size, &error) == PROCESSOR_OK);
  CHECK(size > 2 && strstr(faults, "cpusets") != NULL);
  CHECK(processor_desired_check(bad, strlen(bad), "0", faults, 4, &size, &error) == PROCESSOR_OK);
  CHECK(size > 4 && strlen(faults) == 3);
  CHECK(processor_desired_check("{", 1, NULL, NULL, 0, &size, &error) == PROCESSOR_INVALID_ARGUMENT);
}

static void check_request_bytes(void) {
  const uint64_t before = processor_request_bytes_limit();
  CHECK(before >= (uint64_t)256 << 20);
  CHECK(processor_request_bytes_set_limit(1, &error) == PROCESSOR_INVALID_ARGUMENT);
  CHECK(processor_request_bytes_limit() == before);
  CHECK(processor_request_bytes_set_limit(1 << 20, &error) == PROCESSOR_OK);
  CHECK(processor_request_bytes_limit() == 1 << 20);
  CHECK(processor_request_bytes_claim(0, 2 << 20, &error) == PROCESSOR_INVALID_ARGUMENT);
  CHECK(processor_request_bytes_claim(0, 60000, &error) == PROCESSOR_OK);
  CHECK(processor_request_bytes_claim(0, 500000, &error) == PROCESSOR_RESOURCE_EXHAUSTED);
  processor_request_bytes_release(60000);
  CHECK(processor_request_bytes_set_limit(before, &error) == PROCESSOR_OK);
}

static void check_process(const processor_host* host) {
  unsigned char data[256];
  processor_host_request request = make_request(data, write_eas(data));
  const processor_pair pairs[] = {{"traceparent", "00", 2}, {"X-Routing-Key", "17", 2}};
  request.metadata = pairs;
  request.num_metadata = 2;
  processor_result* result = NULL;
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_OK);
  if (result != NULL) {
    const void* response = NULL;
    size_t size = 0;
    CHECK(processor_result_bytes(result, &response, &size) == PROCESSOR_OK && holds_scores(response, size));
    processor_result_info info = info_of(result);
    CHECK(info.session >= 0 && info.session < 2 && info.model_version == 7 && info.run_ns > 0);
    CHECK(info.total_ns >= info.run_ns && info.retry_after_us == 0 && info.batch_rows == 0);
    CHECK(info.model_name != NULL && strcmp(info.model_name, "m") == 0);
    CHECK(info.arm != NULL && strcmp(info.arm, "baseline") == 0);
    CHECK(info.cpuset != NULL && strcmp(info.cpuset, "") == 0);
    /* A caller who knows less of the struct is given less. */
    info.struct_size = 64;
    info.arm = "as it was";
    CHECK(processor_result_get_info(result, &info) == PROCESSOR_OK && strcmp(info.arm, "as it was") == 0);
    processor_result_free(result);
  }
  request.model_version = 8;
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_NOT_FOUND);
  CHECK(result != NULL && info_of(result).model_name == NULL);
  processor_result_free(result);
  request.model_version = -1;
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_INVALID_ARGUMENT && result == NULL);
  request.model_version = 0;
  request.protocol = NULL;
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_INVALID_ARGUMENT && result == NULL);
  request.protocol = "morse";
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_UNIMPLEMENTED);
  processor_result_free(result);
}

/* One that is answered, and one that is refused: the target hears of both. */
static void check_process_async(const processor_host* host) {
  unsigned char data[256];
  processor_host_request request = make_request(data, write_eas(data));
  processor_queue* queue = NULL;
  CHECK(processor_queue_create(&queue, &error) == PROCESSOR_OK);
  if (queue == NULL) return;
  processor_target target;
  memset(&target, 0, sizeof target);
  target.struct_size = sizeof target;
  CHECK(processor_host_process_async(host, &request, &target, NULL, &error) == PROCESSOR_INVALID_ARGUMENT);
  target.queue = queue;
  uint64_t id = 0;
  for (target.tag = 1; target.tag <= 2; ++target.tag) {
    request.model_version = (int64_t)(target.tag - 1) * 8;
    CHECK(processor_host_process_async(host, &request, &target, &id, &error) == PROCESSOR_OK);
  }
  CHECK(id == 0);
  CHECK(processor_host_cancel(host, id, &error) == PROCESSOR_NOT_FOUND);
  for (int seen = 0; seen != 3;) {
    struct pollfd wanted = {processor_queue_fd(queue), POLLIN, 0};
    CHECK(poll(&wanted, 1, 10000) == 1);
    processor_completion completion;
    if (processor_queue_next(queue, &completion, 1) == 0) break;
    seen |= (int)completion.tag;
    CHECK(completion.error.code == (completion.tag == 1 ? PROCESSOR_OK : PROCESSOR_NOT_FOUND));
    CHECK(completion.result != NULL);
    processor_result_free(completion.result);
  }
  processor_queue_free(queue);
}

static void check_host(const char* model) {
  processor_host_options options = {sizeof options, PROCESSOR_ABI_VERSION, state_dir, "c", NULL, 0, 0};
  processor_host* host = NULL;
  CHECK(processor_host_create(&options, &host, &error) == PROCESSOR_OK);
  if (host == NULL) return;
  processor_host* second = NULL;
  CHECK(processor_host_create(&options, &second, &error) == PROCESSOR_ALREADY_EXISTS && second == NULL);
  desire(1, model);
  wait_for(host, "\"state\":\"ready\",\"path\"");
  check_process(host);
  check_process_async(host);

  CHECK(processor_host_set_endpoint(host, "grpc", "127.0.0.1:8500", &error) == PROCESSOR_OK);
  CHECK(status_has(host, "\"grpc\":\"127.0.0.1:8500\""));
  CHECK(processor_host_set_endpoint(host, "grpc", NULL, &error) == PROCESSOR_OK);
  CHECK(!status_has(host, "grpc"));
  CHECK(processor_host_set_endpoint(host, "", "x", &error) == PROCESSOR_INVALID_ARGUMENT);
  CHECK(processor_host_claim_port(host, "127.0.0.1", 1, &error) == PROCESSOR_OK);
  CHECK(processor_host_claim_port(host, "127.0.0.1", 0, &error) == PROCESSOR_INVALID_ARGUMENT);
  CHECK(processor_host_claim_port(host, NULL, 1, &error) == PROCESSOR_INVALID_ARGUMENT);
  processor_result* metrics = NULL;
  const void* text = NULL;
  size_t size = 0;
  CHECK(processor_host_metrics(host, &metrics, &error) == PROCESSOR_OK);
  CHECK(processor_result_bytes(metrics, &text, &size) == PROCESSOR_OK);
  CHECK(holds(text, size, "recprocessor_requests_total{", 28));
  processor_result_free(metrics);

  CHECK(processor_host_prepare_end(host, &error) == PROCESSOR_OK);
  CHECK(processor_host_prepare_end(NULL, &error) == PROCESSOR_INVALID_ARGUMENT);
  CHECK(processor_host_drain(host, processor_now_us() + 10000000, &error) == PROCESSOR_OK);
  unsigned char data[256];
  processor_host_request request = make_request(data, write_eas(data));
  processor_result* result = NULL;
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_UNAVAILABLE);
  processor_result_free(result);
  processor_host_free(host);
  processor_host_free(host);
  CHECK(processor_host_process(host, &request, &result, &error) == PROCESSOR_FAILED_PRECONDITION && result == NULL);
  CHECK(processor_host_status(host, &result, &error) == PROCESSOR_FAILED_PRECONDITION && result == NULL);
  CHECK(processor_host_create(&options, &host, &error) == PROCESSOR_OK);
  processor_host_free(host);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fputs("usage: test_c_api_host MODEL STATE\n", stderr);
    return 2;
  }
  state_dir = argv[2];
  CHECK(mkdir(state_dir, 0700) == 0);
  check_create_errors();
  check_desired();
  check_host(argv[1]);
  check_request_bytes();
  CHECK(processor_routing_bucket("salt", 4, "key", 3) < 10000);
  if (failures > 0) fprintf(stderr, "%d checks failed\n", failures);
  return failures > 0;
}
