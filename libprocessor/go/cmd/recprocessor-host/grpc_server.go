// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

const (
	mostCalls           = 8192 // in flight over gRPC
	mostGRPCConnections = 1_000_000
	streamWorkers       = 32
	// Bytes that a client may send before gRPC asks for more. A larger message has its own window once it has begun.
	streamWindow     = 256 << 10
	connectionWindow = 4 << 20
)

// grpcServer serves gRPC: raw bytes to and from the library, health and reflection.
type grpcServer struct {
	host        *processor.Host
	server      *grpc.Server
	port        *port
	listener    net.Listener // once it is opened
	reload      singleHandler
	control     *modelControl
	arrivals    *arrivals
	singles     map[string]bool // the methods with one request, as "/service/method"
	crowd       *crowd
	most        int // bytes of a request
	connections int // at most
	inFlight    atomic.Int64
	stopping    chan struct{}
}

func newGRPCServer(host *processor.Host, ready *readiness, options hostOptions, secrets *tls.Config) (*grpcServer, error) {
	s := &grpcServer{
		host: host, reload: reload(options), control: newModelControl(options),
		singles: map[string]bool{}, most: options.maxMessage(), crowd: newCrowd(processor.MaxRequestBytes()),
		stopping: make(chan struct{}), connections: mostConnections(mostGRPCConnections, options),
	}
	s.arrivals = newArrivals(options.readTime, s.crowd)
	how := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(options.maxMessage())),
		grpc.MaxRecvMsgSize(options.maxMessage()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(1024),
		// Windows of fixed size: to adapt them, gRPC would send a ping with almost every request.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		// A client must start HTTP/2 soon after connecting, and a client that has vanished is detected.
		grpc.ConnectionTimeout(max(options.readTime, time.Millisecond)),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: orNever(options.pingAfter), Timeout: orNever(options.pingTimeout),
			MaxConnectionAge: orNever(options.mostAge), MaxConnectionIdle: orNever(options.mostIdle),
		}),
		// Many clients ping an idle connection every half minute; by default, gRPC would disconnect them.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: max(options.pingLeast, 1), PermitWithoutStream: true}),
		grpc.InTapHandle(s.begin),
		grpc.StreamInterceptor(s.endStreams),
		grpc.UnaryInterceptor(ready.check), // all other methods are streams here
		grpc.SharedWriteBuffer(true),
		// The stacks of such goroutines have already grown.
		grpc.NumStreamWorkers(streamWorkers),
	}
	if secrets != nil {
		how = append(how, grpc.Creds(plainOverSockets{credentials.NewTLS(secrets)}))
	}
	s.server = grpc.NewServer(how...)
	s.register()
	healthpb.RegisterHealthServer(s.server, ready.health)
	if err := addReflection(s.server); err != nil {
		return nil, err
	}
	var err error
	s.port, err = reserve(host, options.address, options.grpcPort)
	return s, err
}

// open starts to accept connections.
func (s *grpcServer) open() error {
	listener, err := s.port.listen()
	if err == nil {
		s.listener = s.limit(listener)
	}
	return err
}

func (s *grpcServer) limit(listener net.Listener) net.Listener {
	return &limited{Listener: listener, most: s.connections}
}

// orNever converts 0, which means never, because 0 would select gRPC's default.
func orNever(interval time.Duration) time.Duration {
	if interval == 0 {
		return math.MaxInt64
	}
	return interval
}

// register adds a handler for every method.
func (s *grpcServer) register() {
	for service, table := range grpcMethods {
		description := grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil)}
		add := func(method string, handler grpc.StreamHandler) {
			description.Streams = append(description.Streams, grpc.StreamDesc{
				StreamName: method, Handler: handler, ClientStreams: true,
			})
			s.singles["/"+service+"/"+method] = true
		}
		for _, method := range table.methods {
			add(method, s.unary(operation{table.protocol, method}))
		}
		switch service {
		case modelService:
			add(reloadMethod, s.single(s.reload))
		case inferenceService:
			add(loadMethod, s.single(s.control.handle("load")))
			add(unloadMethod, s.single(s.control.handle("unload")))
			description.Streams = append(description.Streams, grpc.StreamDesc{
				StreamName: streamMethod, Handler: s.inferStream, ServerStreams: true, ClientStreams: true,
			})
		}
		s.server.RegisterService(&description, s)
	}
}

func (s *grpcServer) serve() error { return s.server.Serve(s.listener) }

func (s *grpcServer) address() string { return s.port.address }

// stop refuses new calls and waits for those in flight until the context ends; the remaining ones are then cancelled.
func (s *grpcServer) stop(ctx context.Context) {
	close(s.stopping)
	defer s.crowd.stop()
	ended := make(chan struct{})
	go func() {
		s.server.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		s.server.Stop()
		<-ended
	}
}
