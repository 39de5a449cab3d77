// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	reloadTime      = 30 * time.Second
	mostReloadBytes = 1 << 20
)

// reload handles HandleReloadConfigRequest: it refuses it, or hands it to the proxy as it came. The response is a message
// with a status that, written empty, says OK.
type reload struct {
	url       string // empty: off
	tokenFile string // read at every request, so that a new token needs no restart
	client    *http.Client
}

func newReload(options hostOptions) *reload {
	r := &reload{tokenFile: options.tokenFile}
	if options.allowReload {
		r.url = strings.TrimRight(options.admin, "/") + "/v1/reload"
	}
	// The admin API is on this machine or named by the operator: no proxy of the environment stands between.
	r.client = &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, Timeout: reloadTime}
	return r
}

func (r *reload) handle(ctx context.Context, _ metadata.MD, data []byte) (any, metadata.MD, error) {
	if r.url == "" {
		return nil, nil, status.Error(codes.PermissionDenied,
			"HandleReloadConfigRequest: off on this host, expected --allow-reload-rpc")
	}
	return rawResponse(nil), nil, r.forward(ctx, data)
}

func (r *reload) forward(ctx context.Context, data []byte) error {
	unavailable := func(err error) error {
		return status.Error(codes.Unavailable, strings.ToValidUTF8(fmt.Sprintf("proxy: %v, expected its admin API", err), "?"))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(data))
	if err != nil {
		return unavailable(err)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if r.tokenFile != "" {
		token, err := os.ReadFile(r.tokenFile)
		if err != nil {
			return unavailable(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := r.client.Do(request)
	if err != nil {
		return unavailable(err)
	}
	defer response.Body.Close()
	if response.StatusCode < 300 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, mostReloadBytes))
	return refusal(response.StatusCode, body)
}

// refusal makes a status of what the proxy refused: {"status": …, "message": …}, perhaps within "error".
func refusal(httpStatus int, body []byte) error {
	type said struct {
		Status  *string `json:"status"`
		Message *string `json:"message"`
	}
	whole := struct {
		said
		Error *said `json:"error"`
	}{}
	code, found := codes.Unavailable, map[int]codes.Code{
		400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.NotFound,
	}
	if known, ok := found[httpStatus]; ok {
		code = known
	}
	text := fmt.Sprintf("proxy: HTTP status %d", httpStatus)
	if json.Unmarshal(body, &whole) == nil {
		what := whole.said
		if whole.Error != nil {
			what = *whole.Error
		}
		if what.Status != nil && what.Message != nil {
			if err := code.UnmarshalJSON([]byte(`"` + *what.Status + `"`)); err != nil {
				code = codes.Unknown
			}
			text = *what.Message
		}
	}
	return status.Error(code, strings.ToValidUTF8(text, "?"))
}
