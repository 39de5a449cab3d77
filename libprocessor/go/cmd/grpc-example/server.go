// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

const serviceName = "tensorflow.serving.PredictionService"

// server answers Predict for the models that it was given.
type server struct {
	grpc        *grpc.Server
	health      *health.Server
	models      map[string]*processor.Model
	names       string
	inFlight    atomic.Int64
	maxInFlight int64
}

func newServer(s settings, models map[string]*processor.Model) *server {
	names := make([]string, 0, len(models))
	for name := range models {
		names = append(names, name)
	}
	sort.Strings(names)
	result := &server{
		grpc:        grpc.NewServer(serverOptions(s)...),
		health:      health.NewServer(),
		models:      models,
		names:       strings.Join(names, ", "),
		maxInFlight: s.maxInFlight,
	}
	result.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Predict", Handler: handlePredict}},
	}, result)
	healthpb.RegisterHealthServer(result.grpc, result.health)
	for _, name := range []string{"", "PredictionService", serviceName} {
		result.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	return result
}

func serverOptions(s settings) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(s.maxMessage),
		grpc.MaxSendMsgSize(s.maxMessage),
		// Clients that ping an idle connection every half minute are common, and are cut off by default.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

func handlePredict(self any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	s := self.(*server)
	if s.inFlight.Add(1) > s.maxInFlight {
		s.inFlight.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "host: %d requests are in flight, expected at most as many",
			s.maxInFlight)
	}
	defer s.inFlight.Add(-1)
	request := rawRequest{}
	if err := decode(&request); err != nil {
		return nil, err
	}
	defer request.free()
	model, err := s.modelFor(request.bytes())
	if err != nil {
		return nil, err
	}
	response, err := model.Process(ctx, "tfserving", request.bytes())
	if err != nil {
		return nil, statusOf(err)
	}
	return rawResponse(response), nil
}

// modelFor finds the model that a request names. A single model gets every request, and checks the name itself.
func (s *server) modelFor(request []byte) (*processor.Model, error) {
	if len(s.models) == 1 {
		for _, model := range s.models {
			return model, nil
		}
	}
	name, err := modelName(request)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "request: its model_spec does not parse: %v", err)
	}
	model, ok := s.models[name]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "model %q: it is not served here, expected one of %s", name, s.names)
	}
	return model, nil
}

// statusOf hands a code of the library on, number for number.
func statusOf(err error) error {
	message := err.Error()
	if failure, ok := err.(*processor.Error); ok {
		message = failure.Message
	}
	return status.Error(codes.Code(processor.CodeOf(err)), strings.ToValidUTF8(message, "?"))
}

// shutDown drops readiness first, so that nothing new is sent here, and then lets the running requests end.
func (s *server) shutDown(delay, timeout time.Duration) {
	slog.Info("shutting down", "in_flight", s.inFlight.Load())
	s.health.Shutdown()
	time.Sleep(delay)
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(timeout):
		slog.Warn("requests were still running after the drain timeout", "in_flight", s.inFlight.Load())
		s.grpc.Stop()
	}
}
