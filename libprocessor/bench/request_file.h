// SPDX-License-Identifier: Apache-2.0
// Files of serialized requests: for each a 4-byte little-endian length, then its bytes.
#ifndef PROCESSOR_BENCH_REQUEST_FILE_H_
#define PROCESSOR_BENCH_REQUEST_FILE_H_

#include <string>
#include <vector>

namespace processor::bench {

/// Reads all requests of a file. Throws std::runtime_error if it cannot be read, is cut short, or holds none.
std::vector<std::string> ReadRequestFile(const std::string& path);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_REQUEST_FILE_H_
