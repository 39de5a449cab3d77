// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// serve makes a host with one model, "ranking", whose version 1 has one session, and waits until it is ready.
func serve(t testing.TB, more map[string]any) *Host {
	t.Helper()
	version := map[string]any{"path": testModel(t), "config": map[string]any{"session_num": 1}}
	for key, value := range more {
		version[key] = value
	}
	folder := t.TempDir()
	text, err := json.Marshal(map[string]any{
		"schema": 1, "generation": 1, "maintenance_cpus": "0",
		"models": map[string]any{
			"ranking": map[string]any{"baseline": 1, "versions": map[string]any{"1": version}},
		},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "desired.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	host, err := NewHost(HostOptions{StateDir: folder, ID: "host-0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	waitUntil(t, "the host is ready", func() bool {
		status, err := host.Status()
		return err == nil && status.State == "ready" && status.Models["ranking"].Versions["1"].State == "ready"
	})
	return host
}

func waitUntil(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("it has not come to this: %s", what)
}

func predict(data []byte) *HostRequest {
	return &HostRequest{Protocol: "tfserving", Method: "Predict", Model: "ranking", Data: data}
}

// slowRequest serializes a PredictRequest for "slow", whose time grows with the cube of the size.
func slowRequest(size int32) []byte {
	tensor := protowire.AppendTag(tensorProto(Int32), 7, protowire.BytesType) // int_val
	tensor = protowire.AppendBytes(tensor, protowire.AppendVarint(nil, uint64(size)))
	spec := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "slow")
	request := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), spec)
	return append(request, inputEntry("size", tensor)...)
}

func TestHostAnswersBytesAndSaysWhoDid(t *testing.T) {
	host := serve(t, nil)
	for range 30 { // the first ones through the library's queue, the later ones directly
		answer, err := host.Process(context.Background(), predict(tfservingRequest()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(answer.Bytes(), []byte("item 0!")) {
			t.Errorf("the response %q does not hold what the model makes of \"item 0\"", answer.Bytes())
		}
		if answer.Model != "ranking" || answer.Version != 1 || answer.Arm != "baseline" || answer.Session != 0 {
			t.Errorf("got %+v", answer)
		}
		if answer.Run <= 0 || answer.Total < answer.Run || answer.Work < answer.Run {
			t.Errorf("got %+v, expected durations", answer)
		}
		answer.Free()
		answer.Free()
	}
	if kind := kindOf(predict(tfservingRequest())); !host.pace.short(kind) {
		t.Error("a request that takes no time is not known to be short")
	}
}

func TestHostFailsWithTheReason(t *testing.T) {
	host := serve(t, nil)
	many := make([]Pair, MaxPairs+1)
	for i := range many {
		many[i] = Pair{"x-key", "value"}
	}
	for _, c := range []struct {
		request HostRequest
		code    Code
		word    string
	}{
		{HostRequest{Protocol: "tfserving", Data: []byte{0xff}}, InvalidArgument, ""},
		{HostRequest{Protocol: "morse", Data: []byte{1}}, Unimplemented, "morse"},
		{HostRequest{Protocol: "tfserving", Method: "Absent", Data: tfservingRequest()}, Unimplemented, "Absent"},
		{HostRequest{Protocol: "tfserving", Model: "absent", Data: tfservingRequest()}, NotFound, "absent"},
		{HostRequest{Protocol: "tfserving", Version: 9, Data: tfservingRequest()}, NotFound, "9"},
		{HostRequest{Protocol: "tfserving", Label: "canary", Data: tfservingRequest()}, InvalidArgument, "canary"},
		{HostRequest{Protocol: "tfserving", Model: "a\x00b"}, InvalidArgument, "zero byte"},
		{HostRequest{Protocol: "tfserving", Metadata: many, Data: tfservingRequest()}, InvalidArgument, "33 pairs"},
	} {
		answer, err := host.Process(context.Background(), &c.request)
		expectCode(t, err, c.code, c.word)
		if len(answer.Bytes()) > 0 {
			t.Errorf("%v: an answer with bytes", err)
		}
		answer.Free()
	}
	expired, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	_, err := host.Process(expired, predict(tfservingRequest()))
	expectCode(t, err, DeadlineExceeded)
}

func TestHostTakesMetadata(t *testing.T) {
	host := serve(t, nil)
	request := predict(tfservingRequest())
	request.Priority = -3
	for _, value := range []string{"", "a user", "\x00\xff", strings.Repeat("x", 100_000)} {
		request.Metadata = []Pair{{"X-Routing-Key", value}, {"traceparent", value}}
		answer, err := host.Process(context.Background(), request)
		if err != nil {
			t.Errorf("%d bytes: %v", len(value), err)
		}
		answer.Free()
	}
}

func TestHostKeepsAKindShortWhenARequestAsksForAnEpoch(t *testing.T) {
	host := serve(t, nil)
	request := predict(tfservingRequest())
	for i := 0; i < 1000 && !host.pace.short(kindOf(request)); i++ {
		answer, err := host.Process(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Free()
	}
	request.Metadata = []Pair{{"X-Min-Epoch", "1"}}
	answer, err := host.Process(context.Background(), request)
	answer.Free()
	if CodeOf(err) != FailedPrecondition || !strings.Contains(err.Error(), "follows no timeline") {
		t.Errorf("%v, expected that the model follows no timeline", err)
	}
	if !host.pace.short(kindOf(request)) {
		t.Error("requests without an epoch wait for a thread of the library now")
	}
}

func TestHostKeepsConcurrentRequestsApart(t *testing.T) {
	host := serve(t, nil)
	var all sync.WaitGroup
	for caller := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range 50 {
				name := fmt.Sprintf("item %d of %d", i, caller)
				request := bytes.ReplaceAll(tfservingRequest(), []byte("item 0"), []byte(name[:6]))
				answer, err := host.Process(context.Background(), predict(request))
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Contains(answer.Bytes(), []byte(name[:6]+"!")) {
					t.Errorf("got %q for %q", answer.Bytes(), name[:6])
				}
				answer.Free()
			}
		}()
	}
	all.Wait()
	waitUntil(t, "no slot is taken", func() bool { return host.direct.taken.Load() == 0 })
}

// startSlow sends a slow request, and returns where its error or nil arrives.
func startSlow(t *testing.T, host *Host, size int32) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	_, err := host.ProcessAsync(context.Background(), predict(slowRequest(size)), func(answer *Answer, err error) {
		answer.Free()
		ended <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ended
}

func TestHostCancelsWhatWaits(t *testing.T) {
	host := serve(t, map[string]any{"config": map[string]any{"session_num": 1, "worker_threads": 1}})
	start := func(size int32) <-chan error { return startSlow(t, host, size) }
	process := func(ctx context.Context) error {
		answer, err := host.Process(ctx, predict(slowRequest(1)))
		answer.Free()
		return err
	}
	whileBusy(t, start, func() error {
		late, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		return checkCode(process(late), DeadlineExceeded)
	})
	whileBusy(t, start, func() error {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		return checkCode(process(ctx), Canceled)
	})
	whileBusy(t, start, func() error {
		cancelled := make(chan error, 1)
		id, err := host.ProcessAsync(context.Background(), predict(slowRequest(1)), func(answer *Answer, err error) {
			answer.Free()
			cancelled <- err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Cancel(id); err != nil {
			return err
		}
		err = <-cancelled
		expectCode(t, host.Cancel(id), NotFound)
		return checkCode(err, Canceled)
	})
}

func TestHostRefusesWhenTooManyWait(t *testing.T) {
	host := serve(t, map[string]any{"limits": map[string]any{"max_queue": 1}})
	answers := make(chan error, 20)
	for range 20 {
		_, err := host.ProcessAsync(context.Background(), predict(slowRequest(600)), func(answer *Answer, err error) {
			if CodeOf(err) == ResourceExhausted && (answer == nil || answer.RetryAfter <= 0 || answer.Model != "ranking") {
				err = fmt.Errorf("%w, but %+v does not say when to come again", err, answer)
			}
			answer.Free()
			answers <- err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for range 20 {
		if err := <-answers; err != nil {
			expectCode(t, err, ResourceExhausted)
			if _, plain := err.(*Error); !plain {
				t.Error(err)
			}
			refused++
		}
	}
	if refused == 0 || refused == 20 {
		t.Errorf("%d of 20 were refused, expected some", refused)
	}
}

func TestHostTellsOfItself(t *testing.T) {
	host := serve(t, nil)
	seen := make(chan *HostStatus, 100)
	host.Watch(func(status *HostStatus) {
		select {
		case seen <- status:
		default:
		}
	})
	status := <-seen
	if !json.Valid(status.JSON) || status.Generation != 1 || directCalls(status) != runtime.GOMAXPROCS(0) {
		t.Errorf("got %s", status.JSON)
	}
	if err := host.SetEndpoint("grpc", "127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	if status, err := host.Status(); err != nil || !bytes.Contains(status.JSON, []byte("127.0.0.1:1")) {
		t.Errorf("got %s (%v), expected the endpoint", status.JSON, err)
	}
	if err := host.SetEndpoint("grpc", ""); err != nil {
		t.Error(err)
	}
	answer, err := host.Process(context.Background(), predict(tfservingRequest()))
	if err != nil {
		t.Fatal(err)
	}
	answer.Free()
	text, err := host.Metrics()
	if err != nil || !bytes.Contains(text, []byte(`recprocessor_requests_total{model="ranking"`)) {
		t.Errorf("got %s (%v)", text, err)
	}
}

func TestHostSaysWhyItDoesNotStart(t *testing.T) {
	folder := t.TempDir()
	first, err := NewHost(HostOptions{StateDir: folder, ID: "host-0"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = NewHost(HostOptions{StateDir: folder, ID: "host-0"})
	expectCode(t, err, AlreadyExists, "host-0")
	_, err = NewHost(HostOptions{StateDir: folder, ID: "../x"})
	expectCode(t, err, InvalidArgument)
	_, err = NewHost(HostOptions{StateDir: folder, ID: "a\x00b"})
	expectCode(t, err, InvalidArgument, "zero byte")
	_, err = NewHost(HostOptions{StateDir: folder, ID: "host-1", MaintenanceCPUs: "99999"})
	expectCode(t, err, InvalidArgument)
}

func TestHostDrainsAndCloses(t *testing.T) {
	host := serve(t, nil)
	ended := startSlow(t, host, 800)
	if err := host.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("what was admitted before: %v", err)
	}
	_, err := host.Process(context.Background(), predict(tfservingRequest()))
	expectCode(t, err, Unavailable)
	host.Close()
	host.Close()
	_, err = host.Process(context.Background(), predict(tfservingRequest()))
	expectCode(t, err, FailedPrecondition)
	if _, err := host.Status(); !errors.Is(err, &Error{Code: FailedPrecondition}) {
		t.Errorf("got %v", err)
	}
}

func TestHostIsClosedUnderLoad(t *testing.T) {
	host := serve(t, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				answer, err := host.Process(context.Background(), predict(tfservingRequest()))
				answer.Free()
				switch CodeOf(err) {
				case OK:
				case FailedPrecondition, Canceled, Unavailable:
					return
				default:
					t.Error(err)
					return
				}
			}
		}()
	}
	time.Sleep(50 * time.Millisecond)
	host.Close()
	all.Wait()
}
