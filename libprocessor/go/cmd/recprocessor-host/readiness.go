// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"maps"
	"sync"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// readiness tells probes whether the host and each of its models are ready. The host is ready from the time when the first
// desired state is loaded until it stops; a model is ready while one of its versions is.
type readiness struct {
	host   *processor.Host
	health *healthService

	mu       sync.Mutex
	now      string
	stopping bool
	ready    bool
	models   map[string]bool
	first    chan struct{} // closed when it has been ready once
}

func newReadiness(host *processor.Host) *readiness {
	r := &readiness{host: host, health: newHealthService(), now: "starting", first: make(chan struct{})}
	r.tell(false, nil)
	return r
}

// state returns the state of the host, and whether it accepts requests.
func (r *readiness) state() (string, bool) {
	r.lookAgain("")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.now == "ready"
}

// lookAgain updates the readiness before "not ready" is reported. The name is that of a model, or empty.
func (r *readiness) lookAgain(name string) {
	r.mu.Lock()
	ready, isModel := r.models[name]
	known := r.stopping || r.ready && (ready || !isModel)
	r.mu.Unlock()
	if !known {
		r.look()
	}
}

func (r *readiness) look() {
	if status, err := r.host.Status(); err == nil {
		r.update(status)
	}
}

// check is an interceptor of the health service.
func (r *readiness) check(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	switch asked := request.(type) {
	case *healthpb.HealthCheckRequest:
		r.lookAgain(asked.Service)
	case *healthpb.HealthListRequest:
		r.look()
	}
	return handler(ctx, request)
}

// update reads the status of the host.
func (r *readiness) update(status *processor.HostStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return
	}
	if status.State != r.now {
		slog.Info("host is " + status.State)
	}
	r.now = status.State
	models := readyModels(status)
	ready := r.now == "ready"
	if ready == r.ready && maps.Equal(models, r.models) {
		return
	}
	if ready {
		select {
		case <-r.first:
		default:
			close(r.first)
		}
	}
	for name := range r.models {
		if _, ok := models[name]; !ok {
			r.health.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
		}
	}
	r.tell(ready, models)
	r.ready, r.models = ready, models
}

// stop makes the host and all models not ready.
func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.stopping = "draining", true
	r.health.Shutdown()
}

func (r *readiness) tell(ready bool, models map[string]bool) {
	set := func(name string, yes bool) {
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if yes {
			status = healthpb.HealthCheckResponse_SERVING
		}
		r.health.SetServingStatus(name, status)
	}
	for _, name := range healthNames {
		set(name, ready)
	}
	for name, modelReady := range models {
		set(name, ready && modelReady)
	}
}

// readyModels returns for every model whether one of its versions is ready.
func readyModels(status *processor.HostStatus) map[string]bool {
	models := make(map[string]bool, len(status.Models))
	for name, model := range status.Models {
		models[name] = false
		for _, version := range model.Versions {
			models[name] = models[name] || version.State == "ready"
		}
	}
	return models
}
