// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/url"

	"google.golang.org/grpc/status"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// modelControl handles RepositoryModelLoad and RepositoryModelUnload of the Open Inference Protocol: it refuses them or
// forwards them to the proxy, which decides what is served. A host that loaded a model by itself would have to unload it at
// the next change.
type modelControl struct{ admin *admin } // null: off

func newModelControl(options hostOptions) *modelControl {
	return &modelControl{admin: newAdmin(options, options.allowControl)}
}

const (
	controlPath   = "/v1/repository/"
	controlOption = "--allow-model-control"
)

// handle returns the handler of an RPC.
func (m *modelControl) handle(verb string) singleHandler {
	return m.admin.handOnCall("model "+verb, controlOption, controlPath+verb)
}

// overHTTP handles a request whose path names a model and whose body is JSON or empty.
func (m *modelControl) overHTTP(ctx context.Context, verb, model string, body []byte) error {
	path := controlPath + verb + "?model=" + url.QueryEscape(model)
	err := m.admin.handOn(ctx, "model "+verb, controlOption, path, jsonType, body)
	if err == nil {
		return nil
	}
	found := status.Convert(err)
	return &processor.Error{Code: processor.Code(found.Code()), Message: found.Message()}
}
