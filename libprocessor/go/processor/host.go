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

// Host serves the models and versions that the file desired.json in a state directory names, and follows that file;
// docs/model_host.md describes it. Its methods may be called from any number of goroutines at once, also while it is
// closed.
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

// HostOptions say which host to be, and where.
type HostOptions struct {
	// StateDir must be there.
	StateDir string
	// ID of the host: one process at a time has it.
	ID string
	// MaintenanceCPUs are those that versions are loaded on, as in "0-1"; empty: as desired.json says.
	MaintenanceCPUs string
	// OwnsProcess says that the process does nothing else. While baselines have CPUs to themselves, its threads, but for
	// those of sessions and what works in the background, are moved to the other CPUs, if these have room for what reading
	// requests and writing answers takes. Of one host in a process.
	OwnsProcess bool
}

// How often the number of sessions is looked up.
const watchPeriod = 200 * time.Millisecond

// NewHost opens a state directory and begins to serve what its desired.json names. It returns before models are loaded:
// Status shows how far they are.
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

// Drain refuses new requests with Unavailable and waits until the admitted ones have been answered, or the context ends:
// the host goes on draining then.
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

// Status answers what is served now.
func (h *Host) Status() (*HostStatus, error) {
	status := &HostStatus{}
	text, err := decode(C.shim_host_status(h.handle), status)
	status.JSON = text
	return status, err
}

// Metrics answers counters and histograms in the text format of Prometheus.
func (h *Host) Metrics() ([]byte, error) {
	answer := C.shim_host_metrics(h.handle)
	if err := answerError(answer); err != nil {
		return nil, err
	}
	defer C.processor_result_free(answer.result)
	contents := C.shim_look(answer.result)
	return copyBytes(contents.data, contents.size), nil
}

// SetEndpoint has actual.json tell where the program listens; an empty address: it does not any more.
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

// ClaimPort claims a port for the state directory, before anything listens there; until the host is closed. AlreadyExists
// names both directories if a host of another one has claimed it.
func (h *Host) ClaimPort(address string, port int) error {
	if err := checkText("address", address); err != nil {
		return err
	}
	cAddress := C.CString(address)
	defer C.free(unsafe.Pointer(cAddress))
	return answerError(C.shim_host_claim_port(h.handle, cAddress, C.int32_t(port)))
}

// PrepareEnd gives up what is being loaded, since the process is about to end in order; requests are answered as before.
// Otherwise a process that ends while it loads a version counts as one that died of it.
func (h *Host) PrepareEnd() error { return answerError(C.shim_host_prepare_end(h.handle)) }

// Watch has a function called with the status several times a second, from one goroutine. There is one such function.
func (h *Host) Watch(listener func(*HostStatus)) { h.watcher.Store(&listener) }

// watch keeps the number of direct calls at that of the sessions, and tells the listener.
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

// directCalls is how many calls may hold a thread: one for each CPU, or as many as there are sessions, but more than two
// for a CPU would only wait for each other.
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

// slots counts calls that hold a thread.
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
