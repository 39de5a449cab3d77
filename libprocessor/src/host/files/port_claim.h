// SPDX-License-Identifier: Apache-2.0
// A claim of a host on a port. Processes that share a port must be hosts of one state directory, because the kernel
// gives each connection to any of them.
//
// A claim is a lock on a file per address and port, in a folder of the user on this machine, which holds the path of
// the state directory. Hosts of one directory share it, and the kernel drops it with the last of their processes.
#ifndef PROCESSOR_HOST_FILES_PORT_CLAIM_H_
#define PROCESSOR_HOST_FILES_PORT_CLAIM_H_

#include <string>

#include "absl/status/status.h"
#include "src/host/files/file.h"

namespace processor {

/// Holds a claim until it is destroyed. The host's control owns the claims of a host.
class PortClaim {
 public:
  /// Claims a port. `address` is an IP address or a name; a wildcard address collides with every other address of the
  /// same port.
  /// \return ALREADY_EXISTS that names both directories; INVALID_ARGUMENT; else the error of the file system.
  static absl::Status Take(const std::string& address, int port, const std::string& state_dir, PortClaim* claim);

 private:
  File file_;
};

/// Returns the folder of the claims: one for each user of a machine.
std::string PortClaimFolder();

}  // namespace processor

#endif  // PROCESSOR_HOST_FILES_PORT_CLAIM_H_
