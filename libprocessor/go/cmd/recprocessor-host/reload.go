// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// reload handles HandleReloadConfigRequest: it refuses it, or hands it to the proxy as it came. The response is a message
// with a status that, written empty, says OK.
type reload struct{ admin *admin } // null: off

func newReload(options hostOptions) *reload {
	if !options.allowReload {
		return &reload{}
	}
	return &reload{admin: newAdmin(options)}
}

// handle answers once the models that are new are available.
func (r *reload) handle(ctx context.Context, _ metadata.MD, data []byte) (any, metadata.MD, error) {
	if r.admin == nil {
		return nil, nil, status.Error(codes.PermissionDenied,
			"HandleReloadConfigRequest: off on this host, expected --allow-reload-rpc")
	}
	return rawResponse(nil), nil, r.admin.post(ctx, "/v1/reload", protobufType, data)
}
