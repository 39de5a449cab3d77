// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthService is the health service of gRPC, which cannot list more than 100 names, extended for hosts with more models.
type healthService struct {
	*health.Server
	mu       sync.Mutex
	statuses map[string]healthpb.HealthCheckResponse_ServingStatus
}

func newHealthService() *healthService {
	return &healthService{
		Server: health.NewServer(), statuses: map[string]healthpb.HealthCheckResponse_ServingStatus{},
	}
}

// SetServingStatus sets whether a service or model is ready.
func (s *healthService) SetServingStatus(name string, status healthpb.HealthCheckResponse_ServingStatus) {
	s.mu.Lock()
	s.statuses[name] = status
	s.mu.Unlock()
	s.Server.SetServingStatus(name, status)
}

// Shutdown makes all services and models not ready.
func (s *healthService) Shutdown() {
	s.mu.Lock()
	for name := range s.statuses {
		s.statuses[name] = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.mu.Unlock()
	s.Server.Shutdown()
}

// List implements grpc.health.v1.Health.
func (s *healthService) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &healthpb.HealthListResponse{Statuses: make(map[string]*healthpb.HealthCheckResponse, len(s.statuses))}
	for name, status := range s.statuses {
		answer.Statuses[name] = &healthpb.HealthCheckResponse{Status: status}
	}
	return answer, nil
}
