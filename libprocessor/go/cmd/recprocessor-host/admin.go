// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	mostAdminTime  = time.Hour        // for a request without a deadline: loading a large model takes minutes
	adminGrace     = 10 * time.Second // the proxy says by itself that the time is over; this is for one that hangs
	mostAdminBytes = 1 << 20

	protobufType = "application/x-protobuf"
)

// admin forwards requests to the proxy's admin API.
type admin struct {
	url       string
	tokenFile string // read at every request, so that a new token needs no restart
	client    *http.Client
}

// newAdmin returns nil if no option needs the admin API.
func newAdmin(options hostOptions, allowed bool) *admin {
	if !allowed {
		return nil
	}
	// The operator gives the address of the admin API, so the proxies of the environment are not used.
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	return &admin{url: strings.TrimRight(options.admin, "/"), tokenFile: options.tokenFile, client: client}
}

// post forwards a request and returns the status of the proxy, which may take until the context ends.
func (a *admin) post(ctx context.Context, path, contentType string, data []byte) error {
	most := mostAdminTime
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, max(0, time.Until(deadline)))
	}
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	url := a.url + path + mark + "wait=" + strconv.FormatFloat(most.Seconds(), 'f', 3, 64)
	ctx, cancel := context.WithTimeout(ctx, most+adminGrace)
	defer cancel()
	unavailable := func(err error) error {
		code := codes.Unavailable
		if errors.Is(err, context.DeadlineExceeded) {
			code = codes.DeadlineExceeded
		}
		return status.Error(code, strings.ToValidUTF8(fmt.Sprintf("proxy: %v, expected its admin API", err), "?"))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return unavailable(err)
	}
	request.Header.Set("Content-Type", contentType)
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return unavailable(err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := a.client.Do(request)
	if err != nil {
		return unavailable(err)
	}
	defer response.Body.Close()
	if response.StatusCode < 300 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, mostAdminBytes))
	return refusal(response.StatusCode, body)
}

// handOn forwards a request, or refuses it if the option is off.
func (a *admin) handOn(ctx context.Context, asked, option, path, contentType string, data []byte) error {
	if a == nil {
		return status.Error(codes.PermissionDenied, asked+": off on this host, expected "+option)
	}
	return a.post(ctx, path, contentType, data)
}

// handOnCall returns the handler of an RPC that does the same. Its response is empty; the status has the outcome.
func (a *admin) handOnCall(asked, option, path string) singleHandler {
	return func(ctx context.Context, _ metadata.MD, data []byte) (any, metadata.MD, error) {
		return rawResponse(nil), nil, a.handOn(ctx, asked, option, path, protobufType, data)
	}
}

// refusal converts a refusal of the proxy, {"status": …, "message": …}, possibly within "error", into a status.
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
