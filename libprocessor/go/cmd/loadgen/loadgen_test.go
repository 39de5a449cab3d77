// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func requestFile(t *testing.T, requests ...[]byte) string {
	t.Helper()
	var data []byte
	for _, request := range requests {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(request))), request...)
	}
	path := filepath.Join(t.TempDir(), "requests.bin")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadRequests(t *testing.T) {
	got, err := readRequests(requestFile(t, []byte("ab"), nil, []byte("c")))
	if err != nil || len(got) != 3 || string(got[0]) != "ab" || len(got[1]) != 0 || string(got[2]) != "c" {
		t.Errorf("got %q (%v)", got, err)
	}
	if _, err := readRequests(requestFile(t)); err == nil {
		t.Error("an empty file was accepted")
	}
	for _, text := range []string{"\x02", "\x02\x00\x00\x00a"} {
		path := filepath.Join(t.TempDir(), "cut")
		_ = os.WriteFile(path, []byte(text), 0o600)
		if _, err := readRequests(path); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestQuantiles(t *testing.T) {
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i + 1)
	}
	got := quantilesOf(values)
	if got.P50 != 500 || got.P99 != 990 || got.P999 != 999 || got.Max != 1000 || got.Mean != 500.5 {
		t.Errorf("got %+v", got)
	}
	total := 0.0
	for _, bucket := range histogram(values) {
		total += bucket[1]
	}
	if total != 1000 {
		t.Errorf("the histogram holds %g, expected 1000", total)
	}
}

func TestSamplesAndAnEarlyEnd(t *testing.T) {
	var calls atomic.Int64
	address, _ := grpcServer(t, &calls)
	path := filepath.Join(t.TempDir(), "samples")
	s := settings{
		address: address, over: "grpc", path: "/test.Echo/Echo", clients: 2, seconds: time.Minute, timeout: 10 * time.Second,
		rate: 500,
	}
	stop := make(chan struct{})
	before := time.Now()
	time.AfterFunc(300*time.Millisecond, func() { close(stop) })
	began, clients, err := measure(s, [][]byte{{}}, stop)
	if err != nil || time.Since(before) > 10*time.Second || began.Before(before) {
		t.Fatalf("began %v, %v after it was to be stopped (%v)", began, time.Since(before), err)
	}
	if err := writeSamples(path, clients); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	if answered := summarize(s, began, clients).Requests; answered == 0 || len(data) != 16*answered {
		t.Errorf("%d bytes of %d requests", len(data), answered)
	}
	for ; len(data) > 0; data = data[16:] {
		at, latency := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		if at > uint64(time.Second) || latency == 0 || latency > uint64(time.Second) {
			t.Errorf("a request at %d ns that took %d ns", at, latency)
		}
	}
}

func TestSchedule(t *testing.T) {
	for _, arrivals := range []string{"even", "poisson"} {
		plan := newSchedule(settings{rate: 1000, arrivals: arrivals, seed: 3})
		last := time.Duration(0)
		for range 10_001 {
			at := plan.take()
			if at < last {
				t.Fatalf("%s: %v after %v", arrivals, at, last)
			}
			last = at
		}
		if last < 9*time.Second || last > 11*time.Second {
			t.Errorf("%s: 10,000 requests take %v, expected 10 s", arrivals, last)
		}
	}
}

// grpcServer answers a BytesValue with itself, and every tenth call with RESOURCE_EXHAUSTED.
func grpcServer(t *testing.T, calls *atomic.Int64) (string, *grpc.Server) {
	t.Helper()
	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 24))
	handler := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		message := &wrapperspb.BytesValue{}
		if err := decode(message); err != nil {
			return nil, err
		}
		if calls.Add(1)%10 == 0 {
			return nil, status.Error(codes.ResourceExhausted, "a tenth")
		}
		return message, nil
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: handler}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String(), server
}

// measureCalls measures for longer and longer until the server has seen 15 calls, since the machine may be busy.
func measureCalls(t *testing.T, calls *atomic.Int64, s settings, requests [][]byte) (settings, report) {
	t.Helper()
	for {
		calls.Store(0)
		began, clients, err := measure(s, requests, nil)
		if err != nil {
			t.Fatal(err)
		}
		if calls.Load() >= 15 || s.seconds > 20*time.Second {
			return s, summarize(s, began, clients)
		}
		s.seconds *= 4
	}
}

func TestGRPC(t *testing.T) {
	var calls atomic.Int64
	address, _ := grpcServer(t, &calls)
	// The large one does not fit into the server's windows at once.
	large := append([]byte{0x0a, 0xc0, 0x84, 0x3d}, make([]byte, 1_000_000)...)
	s := settings{
		address: address, over: "grpc", path: "/test.Echo/Echo", clients: 3, seconds: 400 * time.Millisecond,
		timeout: 10 * time.Second, interval: 100 * time.Millisecond, headers: headers{{"x-routing-key", "u"}},
	}
	s, r := measureCalls(t, &calls, s, [][]byte{{}, large, {0x0a, 1, 'x'}})
	failed := r.Failed["RESOURCE_EXHAUSTED"]
	if r.Requests < 10 || failed == 0 || len(r.Failed) != 1 || r.Requests+failed != int(calls.Load()) {
		t.Errorf("got %d answers and %v of %d calls", r.Requests, r.Failed, calls.Load())
	}
	if r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99 || len(r.Intervals) != int(s.seconds/s.interval) {
		t.Errorf("got %+v", r)
	}
	count := 0
	for _, part := range r.Intervals {
		count += part.Requests
	}
	if count != r.Requests {
		t.Errorf("the intervals hold %d, expected %d", count, r.Requests)
	}
}

func TestGRPCFollowsAServerThatGoesAway(t *testing.T) {
	var calls atomic.Int64
	address, server := grpcServer(t, &calls)
	stop := make(chan struct{})
	go func() {
		for calls.Load() < 15 {
			time.Sleep(time.Millisecond)
		}
		server.GracefulStop()
		time.Sleep(2 * time.Second)
		close(stop)
	}()
	s := settings{
		address: address, over: "grpc", path: "/test.Echo/Echo", clients: 2, seconds: 30 * time.Second, timeout: time.Second,
	}
	began, clients, err := measure(s, [][]byte{{}}, stop)
	if err != nil {
		t.Fatal(err)
	}
	r := summarize(s, began, clients)
	for what := range r.Failed { // nobody listens any more, but no call was cut off
		if what != "RESOURCE_EXHAUSTED" && !strings.Contains(what, "refused") {
			t.Errorf("got %v", r.Failed)
		}
	}
	if len(r.Failed) != 2 {
		t.Errorf("got %v", r.Failed)
	}
}

func TestREST(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		number := calls.Add(1)
		switch {
		case r.URL.Path != "/v1/models/m:predict" || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("x-routing-key") != "u" || !bytes.HasPrefix(body, []byte("{")):
			w.WriteHeader(http.StatusBadRequest)
		case number%10 == 0:
			w.WriteHeader(http.StatusTooManyRequests)
		case number%7 == 0:
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
	}))
	defer server.Close()
	path := requestFile(t, []byte("{}"), []byte("{\"x\": 1}"))
	s, err := parseFlags([]string{
		"--address", server.Listener.Addr().String(), "--over", "rest", "--path", "/v1/models/m:predict", "--requests", path,
		"--header", "X-Routing-Key: u", "--clients", "2", "--time", "400ms", "--warmup", "0s", "--rate", "500",
	})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := readRequests(s.requests)
	if err != nil {
		t.Fatal(err)
	}
	began, clients, err := measure(s, requests, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := summarize(s, began, clients)
	if r.Requests < 10 || r.Failed["429"] == 0 || len(r.Failed) != 1 || r.Late == nil {
		t.Errorf("got %+v", r)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, arguments := range [][]string{
		{}, {"--requests", "f", "--over", "udp"}, {"--requests", "f", "--clients", "0"}, {"--requests", "f", "--header", "x"},
		{"--requests", "f", "--rate", "-1"}, {"--requests", "f", "more"}, {"--requests", "f", "--arrivals", "x"},
	} {
		if _, err := parseFlags(arguments); err == nil {
			t.Errorf("%q was accepted", arguments)
		}
	}
	if err := run([]string{"--address", "127.0.0.1:1", "--requests", requestFile(t, nil)}); err == nil {
		t.Error("a server that is not there was measured")
	}
}
