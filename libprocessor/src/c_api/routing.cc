// SPDX-License-Identifier: Apache-2.0
// The modern ABI's view of the routing of experiments.
#include "src/host/desired/routing.h"

#include "processor/processor.h"

namespace {

std::string_view Bytes(const void *data, size_t size) {
  return data == nullptr ? std::string_view() : std::string_view(static_cast<const char *>(data), size);
}

}  // namespace

extern "C" uint32_t processor_routing_bucket(const void *salt, size_t salt_size, const void *key, size_t key_size) {
  return processor::RoutingBucket(Bytes(salt, salt_size), Bytes(key, key_size));
}
