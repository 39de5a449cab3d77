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
	control   *modelControl
	limit     int64
	readTime  time.Duration
}

// ServeHTTP implements http.Handler.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	where, err := findRoute(r.URL.EscapedPath())
	if err == nil {
		err = checkMethod(r.Method, &where)
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
	if where.what.protocol == controlProtocol {
		a.handOn(w, r, &where, &body, &inflated)
		return
	}
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

// checkMethod refuses a method that a path does not support. For HEAD, net/http sends only the head of the response.
func checkMethod(method string, where *route) error {
	if method == where.allowed || method == http.MethodHead && where.allowed == http.MethodGet {
		return nil
	}
	protocol, allowed := where.what.protocol, where.allowed
	if where.page != noPage {
		protocol = easPredict.protocol
	}
	if allowed == http.MethodGet {
		allowed = "GET, HEAD"
	}
	return &routeError{http.StatusMethodNotAllowed,
		"method " + cut(method, 20) + ": not for this path, expected " + allowed, protocol, allowed}
}

// answer reads the request and passes it to the library.
func (a *application) answer(w http.ResponseWriter, r *http.Request, where *route, body, inflated *processor.Buffer) (*processor.Answer, error) {
	request := processor.HostRequest{
		Protocol: where.what.protocol, Method: where.what.method,
		Model: where.model, Version: where.version, Label: where.label,
	}
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var pairs [4]processor.Pair
	request.Metadata = pairs[:0]
	for _, name := range [...]struct{ key, header string }{
		{routingKey, "X-Routing-Key"}, {minEpoch, "X-Min-Epoch"},
		{traceParent, "Traceparent"}, {headerLength, "Inference-Header-Content-Length"},
	} {
		if value, ok := lastValue(r.Header, name.header); ok {
			request.Metadata = append(request.Metadata, processor.Pair{Key: name.key, Value: value})
		}
	}
	if value, ok := lastValue(r.Header, "X-Priority"); ok {
		if request.Priority, err = parsePriority(value); err != nil {
			return nil, err
		}
	}
	if request.Data, err = a.body(w, r, body, inflated); err != nil {
		return nil, err
	}
	answer, err := a.host.Process(ctx, &request)
	if err != nil && context.Cause(r.Context()) == error(errGivenUp) {
		err = errGivenUp
	}
	return answer, err
}

// withTimeout returns a context with the timeout that the client requests.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	value, ok := lastValue(r.Header, "X-Timeout-Ms")
	if !ok {
		return r.Context(), func() {}, nil
	}
	millis, err := strconv.ParseUint(value, 10, 64)
	if err != nil || len(value) > 10 {
		return nil, nil, invalid("x-timeout-ms: '" + cut(value, 40) + "', expected milliseconds")
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(millis)*time.Millisecond)
	return ctx, cancel, nil
}

// body reads the body of a request and decompresses it.
func (a *application) body(w http.ResponseWriter, r *http.Request, body, inflated *processor.Buffer) ([]byte, error) {
	if err := readBody(w, r, body, a.limit, a.readTime); err != nil {
		return nil, err
	}
	encoding, ok := lastValue(r.Header, "Content-Encoding")
	if !ok || encoding == "identity" {
		return body.Bytes(), nil
	}
	if err := decompress(body.Bytes(), encoding, a.limit, inflated); err != nil {
		return nil, err
	}
	body.Free()
	return inflated.Bytes(), nil
}

// handOn forwards a request to load or unload a model to the proxy.
func (a *application) handOn(w http.ResponseWriter, r *http.Request, where *route, body, inflated *processor.Buffer) {
	ctx, cancel, err := withTimeout(r)
	if err == nil {
		defer cancel()
		var data []byte
		if data, err = a.body(w, r, body, inflated); err == nil {
			err = a.control.overHTTP(ctx, where.what.method, where.model, data)
		}
	}
	if err != nil {
		fail(w, err, nil, where.what.protocol)
		return
	}
	send(w, http.StatusOK, nil, jsonType)
}

// show responds with a page of the host itself, such as its metrics.
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
	// This fails only if the client has disconnected.
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

// fail responds with an error and the version that refused the request, if it is known.
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

// refuse responds with a failure in the form of the protocol: JSON, or text for raw requests.
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
