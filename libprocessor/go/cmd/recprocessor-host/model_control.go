// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/url"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// modelControl handles RepositoryModelLoad and RepositoryModelUnload of the Open Inference Protocol: it refuses them, or
// hands them to the proxy. What is served is decided there: a host that loaded by itself would be told to unload at the
// next change.
type modelControl struct{ admin *admin } // null: off

func newModelControl(options hostOptions) *modelControl {
	if !options.allowControl {
		return &modelControl{}
	}
	return &modelControl{admin: newAdmin(options)}
}

// handle returns the handler of an RPC.
func (m *modelControl) handle(verb string) singleHandler {
	return func(ctx context.Context, _ metadata.MD, data []byte) (any, metadata.MD, error) {
		return rawResponse(nil), nil, m.post(ctx, verb, "", protobufType, data)
	}
}

// overHTTP answers a request whose path names a model, and whose body is JSON or nothing.
func (m *modelControl) overHTTP(ctx context.Context, verb, model string, body []byte) error {
	err := m.post(ctx, verb, "?model="+url.QueryEscape(model), jsonType, body)
	if err == nil {
		return nil
	}
	found := status.Convert(err)
	return &processor.Error{Code: processor.Code(found.Code()), Message: found.Message()}
}

func (m *modelControl) post(ctx context.Context, verb, query, contentType string, data []byte) error {
	if m.admin == nil {
		return status.Error(codes.PermissionDenied, "model "+verb+": off on this host, expected --allow-model-control")
	}
	return m.admin.post(ctx, "/v1/repository/"+verb+query, contentType, data)
}
