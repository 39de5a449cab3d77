// SPDX-License-Identifier: Apache-2.0

package processor

// #include "host_shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Host serves the models and versions in the file desired.json of a state directory, and follows changes of that file;
// docs/model_host.md describes it. Any number of goroutines may call its methods, even while it is being closed.
type Host struct {
	handle      *C.processor_host
	calls       *gate // counts callers, and keeps new ones out at the end
	direct      slots // calls that may hold a thread
	pace        pace
	names       names
	completions *completions
	closing     sync.Once
	closed      chan struct{}
	watching    sync.WaitGroup
	watcher     atomic.Pointer[func(*HostStatus)]
}

// HostOptions are the options of NewHost.
type HostOptions struct {
	// StateDir is the state directory, which must exist.
	StateDir string
	// ID of the host, which only one process at a time may have.
	ID string
	// MaintenanceCPUs are the CPUs on which versions are loaded, for example "0-1"; empty: those in desired.json.
	MaintenanceCPUs string
	// OwnsProcess says that the process does nothing else; only one host of a process may set it. While baselines have
	// exclusive CPUs, the threads of the process, except those of sessions and background work, are moved to the other
	// CPUs, if these have enough time for reading requests and writing responses.
	OwnsProcess bool
}

// The interval in which the number of sessions is updated.
const watchPeriod = 200 * time.Millisecond

// NewHost opens a state directory and starts to serve the models in its desired.json. It returns before models are loaded;
// Status shows their progress.
func NewHost(options HostOptions) (*Host, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	for what, text := range map[string]string{
		"state directory": options.StateDir, "host id": options.ID, "maintenance CPUs": options.MaintenanceCPUs,
	} {
		if err := checkText(what, text); err != nil {
			return nil, err
		}
	}
	folder, id := C.CString(options.StateDir), C.CString(options.ID)
	defer C.free(unsafe.Pointer(folder))
	defer C.free(unsafe.Pointer(id))
	var cpus *C.char
	if options.MaintenanceCPUs != "" {
		cpus = C.CString(options.MaintenanceCPUs)
		defer C.free(unsafe.Pointer(cpus))
	}
	host := &Host{calls: newGate(math.MaxInt, 0), closed: make(chan struct{})}
	host.direct.most.Store(int32(runtime.GOMAXPROCS(0)))
	var err error
	if host.completions, err = newCompletions(); err != nil {
		return nil, err
	}
	var owns C.int
	if options.OwnsProcess {
		owns = 1
	}
	if err := answerError(C.shim_host_create(folder, id, cpus, owns, &host.handle)); err != nil {
		host.completions.close()
		return nil, err
	}
	host.watching.Add(1)
	go host.watch()
	return host, nil
}

// Close frees the host: it refuses new requests, fails the waiting ones with Canceled, waits for the running ones, and
// unloads what is loaded. A second call does nothing.
func (h *Host) Close() {
	h.closing.Do(func() {
		h.calls.close(failf(FailedPrecondition, "host: it has been closed"), nil)
		close(h.closed)
		h.watching.Wait()
		C.processor_host_free(h.handle)
		_ = h.calls.wait(context.Background())
		h.completions.close()
	})
}

// Drain refuses new requests with Unavailable and waits until the admitted ones are complete or the context ends. The host
// continues to drain in the latter case.
func (h *Host) Drain(ctx context.Context) error {
	ended := make(chan error, 1)
	deadline, err := deadlineOf(ctx)
	if err != nil {
		return err
	}
	go func() { ended <- answerError(C.shim_host_drain(h.handle, deadline)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return contextError(ctx, "while requests were running")
	}
}

// HostStatus is what a host serves; docs/model_host.md explains the keys of JSON, "actual.json".
type HostStatus struct {
	// State is "starting", "ready" or "draining".
	State      string `json:"state"`
	Generation uint64 `json:"generation"`
	Models     map[string]struct {
		// Versions by number.
		Versions map[string]VersionStatus `json:"versions"`
	} `json:"models"`
	// JSON is the whole text.
	JSON json.RawMessage `json:"-"`
}

// VersionStatus is the state of a version: "loading", "warming", "ready", "draining" or "failed".
type VersionStatus struct {
	State    string `json:"state"`
	Error    string `json:"error"`
	Sessions int    `json:"sessions"`
}

// Status returns what is served now.
func (h *Host) Status() (*HostStatus, error) {
	status := &HostStatus{}
	text, err := decode(C.shim_host_status(h.handle), status)
	status.JSON = text
	return status, err
}

// Metrics returns counters and histograms in the text format of Prometheus.
func (h *Host) Metrics() ([]byte, error) {
	answer := C.shim_host_metrics(h.handle)
	if err := answerError(answer); err != nil {
		return nil, err
	}
	defer C.processor_result_free(answer.result)
	contents := C.shim_look(answer.result)
	return copyBytes(contents.data, contents.size), nil
}

// SetEndpoint publishes in actual.json where the program listens. An empty address removes the endpoint.
func (h *Host) SetEndpoint(name, address string) error {
	for _, text := range []string{name, address} {
		if err := checkText("endpoint", text); err != nil {
			return err
		}
	}
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var cAddress *C.char
	if address != "" {
		cAddress = C.CString(address)
		defer C.free(unsafe.Pointer(cAddress))
	}
	return answerError(C.shim_host_set_endpoint(h.handle, cName, cAddress))
}

// ClaimPort claims a port for the state directory until the host is closed. It must be called before the program listens on
// the port. It fails with AlreadyExists, which names both directories, if a host of another directory has claimed it.
func (h *Host) ClaimPort(address string, port int) error {
	if err := checkText("address", address); err != nil {
		return err
	}
	cAddress := C.CString(address)
	defer C.free(unsafe.Pointer(cAddress))
	return answerError(C.shim_host_claim_port(h.handle, cAddress, C.int32_t(port)))
}

// PrepareEnd cancels loads, because the process is about to end in an orderly way; requests are still served. Without it, a
// process that ends while it loads a version is regarded as killed by that version.
func (h *Host) PrepareEnd() error { return answerError(C.shim_host_prepare_end(h.handle)) }

// Watch sets the one function that is called with the status several times a second, from one goroutine.
func (h *Host) Watch(listener func(*HostStatus)) { h.watcher.Store(&listener) }

// watch adapts the number of direct calls to that of the sessions, and calls the listener.
func (h *Host) watch() {
	defer h.watching.Done()
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		if status, err := h.Status(); err == nil {
			h.direct.most.Store(int32(directCalls(status)))
			if listener := h.watcher.Load(); listener != nil {
				(*listener)(status)
			}
		}
		select {
		case <-ticker.C:
		case <-h.closed:
			return
		}
	}
}

// directCalls returns how many calls may occupy a thread: one per CPU, or as many as there are sessions, but at most two per
// CPU, because more would only wait for each other.
func directCalls(status *HostStatus) int {
	sessions := 0
	for _, model := range status.Models {
		for _, version := range model.Versions {
			if version.State == "ready" {
				sessions += version.Sessions
			}
		}
	}
	cpus := runtime.GOMAXPROCS(0)
	return max(cpus, min(sessions, 2*cpus))
}

// slots counts the calls that occupy a thread.
type slots struct {
	most  atomic.Int32
	taken atomic.Int32
}

func (s *slots) take() bool {
	if s.taken.Add(1) <= s.most.Load() {
		return true
	}
	s.taken.Add(-1)
	return false
}

func (s *slots) giveBack() { s.taken.Add(-1) }
