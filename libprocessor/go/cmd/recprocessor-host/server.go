// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // for --profile-listen
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// The time between "not ready" and the refusal of new requests, for clients that watch the health over a stream.
const noticeTime = 100 * time.Millisecond

// The time after which the process ends although a load cannot be interrupted.
const closeTime = 5 * time.Second

// front is one of the servers in front of the host.
type front interface {
	open() error
	serve() error
	address() string
}

// server is a host with its gRPC and HTTP servers. The ports for requests are reserved at the start and opened when the models
// are ready, because if several hosts share a port, the kernel would pass connections to a host that is not ready yet.
// Health and metrics have a separate port, which is open from the start.
type server struct {
	host      *processor.Host
	options   hostOptions
	readiness *readiness
	grpc      *grpcServer
	http      *httpServer
	health    *healthServer           // if it is asked for
	sockets   map[string]*socketFront // those that are asked for, by the names of their endpoints
	opened    bool
	failed    chan error
}

func newServer(host *processor.Host, options hostOptions) (*server, error) {
	secrets, err := tlsConfig(options)
	if err != nil {
		return nil, err
	}
	s := &server{host: host, options: options, readiness: newReadiness(host), failed: make(chan error, 5),
		sockets: map[string]*socketFront{}}
	if s.grpc, err = newGRPCServer(host, s.readiness, options, secrets); err != nil {
		return nil, err
	}
	if s.http, err = newHTTPServer(host, s.readiness, options, secrets); err != nil {
		return nil, err
	}
	if err = s.addSockets(); err != nil {
		return nil, err
	}
	if options.healthPort != noPort {
		s.health, err = newHealthServer(host, s.readiness, options)
	}
	return s, err
}

// addSockets binds the Unix domain sockets.
func (s *server) addSockets() error {
	for _, wanted := range []struct {
		name, path string
		front      socketFront
	}{
		{"grpc-socket", s.options.grpcSocket, socketFront{share: s.grpc.limit, serveOn: s.grpc.server.Serve}},
		{"rest-socket", s.options.restSocket, socketFront{
			share:   func(listener net.Listener) net.Listener { return plainListener(listener, s.http.most) },
			serveOn: s.http.serveOn,
		}},
	} {
		if wanted.path == "" {
			continue
		}
		var err error
		if wanted.front.socket, err = ownSocket(wanted.path, s.options.socketMode); err != nil {
			return err
		}
		s.sockets[wanted.name] = &wanted.front
	}
	return nil
}

// run serves until SIGTERM, SIGINT or SIGHUP; a second one ends the process at once.
func (s *server) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	s.profile()
	if s.health != nil {
		if err := s.start("health", s.health); err != nil {
			return err
		}
	}
	s.host.Watch(s.readiness.update)
	go beat(s.options.stateDir, s.options.hostID)
	select {
	case err := <-s.failed:
		return err
	case <-s.readiness.first:
		if err := s.openForRequests(); err != nil {
			return err
		}
		select {
		case err := <-s.failed:
			return err
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	stop()
	slog.Info("stopping")
	s.end()
	slog.Info("stopped")
	return nil
}

func (s *server) openForRequests() error {
	s.opened = true
	fronts := map[string]front{"grpc": s.grpc, "rest": s.http}
	for name, socket := range s.sockets {
		fronts[name] = socket
	}
	for name, front := range fronts {
		if err := s.start(name, front); err != nil {
			return err
		}
	}
	return nil
}

// start opens a port, serves on it, and publishes its address.
func (s *server) start(name string, front front) error {
	if err := front.open(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		if err := front.serve(); err != nil {
			s.failed <- fmt.Errorf("%s: %w", name, err)
		}
	}()
	slog.Info(fmt.Sprintf("%s: listening on %s", name, front.address()))
	return s.host.SetEndpoint(name, front.address())
}

// end first fails the probes, then refuses new requests, and then waits for requests in flight.
func (s *server) end() {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.drainTime)
	defer cancel()
	if err := s.host.PrepareEnd(); err != nil {
		slog.Warn("end: " + message(err))
	}
	s.readiness.stop()
	for _, name := range []string{"grpc", "rest", "grpc-socket", "rest-socket"} {
		if err := s.host.SetEndpoint(name, ""); err != nil {
			slog.Warn("endpoint: " + message(err))
		}
	}
	if s.opened {
		time.Sleep(min(noticeTime, s.options.drainTime))
		var both sync.WaitGroup
		both.Add(2)
		go func() { defer both.Done(); s.grpc.stop(ctx) }()
		go func() { defer both.Done(); s.http.stop(ctx) }()
		both.Wait()
	}
	for _, front := range s.sockets {
		front.socket.release()
	}
	if err := s.host.Drain(ctx); err != nil {
		slog.Warn("drain: " + message(err))
	}
	if s.health != nil {
		s.health.stop()
	}
	s.unload()
}

// unload frees the host. A load that cannot be interrupted ends with the process.
func (s *server) unload() {
	closed := make(chan struct{})
	go func() {
		s.host.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTime):
		slog.Warn("a load cannot be interrupted, and ends with the process")
		os.Exit(0)
	}
}

// profile serves net/http/pprof if an address was given.
func (s *server) profile() {
	if s.options.profileListen == "" {
		return
	}
	go func() {
		listener, err := net.Listen("tcp", s.options.profileListen)
		if err == nil {
			slog.Info("profiler: listening on " + listener.Addr().String())
			err = http.Serve(listener, http.DefaultServeMux)
		}
		fmt.Fprintf(os.Stderr, "profiler: %v\n", err)
	}()
}
