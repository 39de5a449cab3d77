// SPDX-License-Identifier: Apache-2.0
// Who serves at a port. Processes that share a port must be hosts of one state directory, since the kernel hands every
// connection to any of them; it does not ask.
//
// A claim is a lock on a file per address and port, in a folder of the user on this machine, which holds the path of the
// state directory. Hosts of one directory share it, and it goes with the last of their processes.
#ifndef PROCESSOR_HOST_FILES_PORT_CLAIM_H_
#define PROCESSOR_HOST_FILES_PORT_CLAIM_H_

#include <string>

#include "absl/status/status.h"
#include "src/host/files/file.h"

namespace processor {

class PortClaim {
 public:
  /// `address`: an IP address or a name. One that stands for all addresses collides with every other of the same port.
  /// \return ALREADY_EXISTS that names both directories; INVALID_ARGUMENT; what the file system says.
  static absl::Status Take(const std::string& address, int port, const std::string& state_dir, PortClaim* claim);

 private:
  File file_;
};

/// The folder of the files: of this user, on this machine.
std::string PortClaimFolder();

}  // namespace processor

#endif  // PROCESSOR_HOST_FILES_PORT_CLAIM_H_
