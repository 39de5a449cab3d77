// SPDX-License-Identifier: Apache-2.0

package main

// reload handles HandleReloadConfigRequest: it refuses the request or forwards it to the proxy unchanged, and responds when
// the new models are available. The response is an empty message, whose status means OK.
func reload(options hostOptions) singleHandler {
	admin := newAdmin(options, options.allowReload)
	return admin.handOnCall("HandleReloadConfigRequest", "--allow-reload-rpc", "/v1/reload")
}
