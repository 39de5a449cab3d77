// SPDX-License-Identifier: Apache-2.0
#include "request_file.h"

#include <cstdint>
#include <fstream>
#include <stdexcept>

namespace processor::bench {

std::vector<std::string> ReadRequestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<std::string> requests;
  uint8_t length[4];
  while (file.read(reinterpret_cast<char*>(length), sizeof length)) {
    const uint32_t size = length[0] | length[1] << 8 | length[2] << 16 | static_cast<uint32_t>(length[3]) << 24;
    std::string request(size, '\0');
    if (!file.read(request.data(), size)) throw std::runtime_error(path + ": cut short");
    requests.push_back(std::move(request));
  }
  if (file.gcount() != 0) throw std::runtime_error(path + ": cut short");
  if (requests.empty()) throw std::runtime_error(path + ": holds no request");
  return requests;
}

}  // namespace processor::bench
