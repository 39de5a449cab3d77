// SPDX-License-Identifier: Apache-2.0

package main

// reload handles HandleReloadConfigRequest: it refuses it, or hands it to the proxy as it came, and answers once the
// models that are new are available. The response is a message with a status that, written empty, says OK.
func reload(options hostOptions) singleHandler {
	admin := newAdmin(options, options.allowReload)
	return admin.handOnCall("HandleReloadConfigRequest", "--allow-reload-rpc", "/v1/reload")
}
