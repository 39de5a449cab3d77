// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

const (
	textType    = "text/plain; charset=utf-8"
	jsonType    = "application/json"
	binaryType  = "application/octet-stream"
	metricsType = "text/plain; version=0.0.4; charset=utf-8"
)

// application answers HTTP requests.
type application struct {
	host      *processor.Host
	readiness *readiness
	limit     int64
	readTime  time.Duration
}

// ServeHTTP implements http.Handler.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	where, err := findRoute(r.URL.EscapedPath())
	if err == nil && r.Method != where.allowed {
		protocol := where.what.protocol
		if where.page != noPage {
			protocol = easPredict.protocol
		}
		err = &routeError{http.StatusMethodNotAllowed,
			"method " + cut(r.Method, 20) + ": not for this path, expected " + where.allowed, protocol, where.allowed}
	}
	if err != nil {
		refuseRoute(w, err)
		return
	}
	if where.page != noPage {
		a.show(w, where.page)
		return
	}
	var body, inflated processor.Buffer
	defer body.Free()
	defer inflated.Free()
	answer, err := a.answer(w, r, &where, &body, &inflated)
	defer answer.Free()
	if err != nil {
		fail(w, err, answer, where.what.protocol)
		return
	}
	header := w.Header()
	provenance(answer, func(name, value string) { header[canonical[name]] = []string{value} })
	contentType := binaryType
	if answer.HeaderLength > 0 {
		header["Inference-Header-Content-Length"] = []string{strconv.Itoa(answer.HeaderLength)}
	} else if strings.HasSuffix(where.what.protocol, "_json") {
		contentType = jsonType
	}
	send(w, http.StatusOK, answer.Bytes(), contentType)
}

// answer reads the request and hands it to the library.
func (a *application) answer(w http.ResponseWriter, r *http.Request, where *route, body, inflated *processor.Buffer) (*processor.Answer, error) {
	ctx := r.Context()
	request := processor.HostRequest{
		Protocol: where.what.protocol, Method: where.what.method,
		Model: where.model, Version: where.version, Label: where.label,
	}
	if value, ok := lastValue(r.Header, "X-Timeout-Ms"); ok {
		millis, err := strconv.ParseUint(value, 10, 64)
		if err != nil || len(value) > 10 {
			return nil, invalid("x-timeout-ms: '" + cut(value, 40) + "', expected milliseconds")
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(millis)*time.Millisecond)
		defer cancel()
	}
	var pairs [3]processor.Pair
	request.Metadata = pairs[:0]
	for _, name := range [...]struct{ key, header string }{
		{routingKey, "X-Routing-Key"}, {traceParent, "Traceparent"}, {headerLength, "Inference-Header-Content-Length"},
	} {
		if value, ok := lastValue(r.Header, name.header); ok {
			request.Metadata = append(request.Metadata, processor.Pair{Key: name.key, Value: value})
		}
	}
	var err error
	if value, ok := lastValue(r.Header, "X-Priority"); ok {
		if request.Priority, err = parsePriority(value); err != nil {
			return nil, err
		}
	}
	if err = readBody(w, r, body, a.limit, a.readTime); err != nil {
		return nil, err
	}
	request.Data = body.Bytes()
	if encoding, ok := lastValue(r.Header, "Content-Encoding"); ok && encoding != "identity" {
		if err = decompress(request.Data, encoding, a.limit, inflated); err != nil {
			return nil, err
		}
		body.Free()
		request.Data = inflated.Bytes()
	}
	answer, err := a.host.Process(ctx, &request)
	if err != nil && context.Cause(r.Context()) == error(errGivenUp) {
		err = errGivenUp
	}
	return answer, err
}

// show answers a page of the host's own.
func (a *application) show(w http.ResponseWriter, which page) {
	switch which {
	case metricsPage:
		text, err := a.host.Metrics()
		if err != nil {
			fail(w, err, nil, easPredict.protocol)
			return
		}
		send(w, http.StatusOK, text, metricsType)
	case alivePage:
		send(w, http.StatusOK, []byte("ok\n"), textType)
	default:
		state, ready := a.readiness.state()
		status := http.StatusOK
		if !ready {
			status = http.StatusServiceUnavailable
		}
		send(w, status, []byte(state+"\n"), textType)
	}
}

func send(w http.ResponseWriter, status int, body []byte, contentType string) {
	header := w.Header()
	header["Content-Type"] = []string{contentType}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	// Fails only if the client is gone.
	_, _ = w.Write(body)
}

func refuseRoute(w http.ResponseWriter, err error) {
	var where *routeError
	errors.As(err, &where)
	if where.allowed != "" {
		w.Header().Set("Allow", where.allowed)
	}
	refuse(w, where.status, where.text, where.protocol)
}

// fail answers an error, with what is known of who refused.
func fail(w http.ResponseWriter, err error, answer *processor.Answer, protocol string) {
	if errors.Is(err, errGone) {
		panic(http.ErrAbortHandler) // ends the connection without an answer
	}
	header := w.Header()
	var body *bodyError
	if errors.As(err, &body) {
		header["Connection"] = []string{"close"}
		if body.retryAfter > 0 {
			header["Retry-After"] = []string{strconv.FormatInt(roundUp(body.retryAfter, time.Second), 10)}
		}
		refuse(w, body.status, body.text, protocol)
		return
	}
	provenance(answer, func(name, value string) { header[canonical[name]] = []string{value} })
	if answer != nil && answer.RetryAfter > 0 {
		header["Retry-After"] = []string{strconv.FormatInt(max(1, roundUp(answer.RetryAfter, time.Second)), 10)}
	}
	refuse(w, httpStatus(processor.CodeOf(err)), message(err), protocol)
}

// refuse answers a failure in the way of a protocol: JSON, or for raw requests text.
func refuse(w http.ResponseWriter, status int, text, protocol string) {
	if protocol == "eas" {
		send(w, status, []byte(text+"\n"), textType)
		return
	}
	body, err := json.Marshal(map[string]string{"error": text})
	if err != nil {
		body = []byte(`{"error": "host: its message cannot be written"}`)
	}
	send(w, status, body, jsonType)
}
