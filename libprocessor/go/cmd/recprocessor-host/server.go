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

// Between "not ready" and the refusal of new requests, for those who watch the health over a stream.
const noticeTime = 100 * time.Millisecond

// server is the whole: a host, two servers in front of it, and their end.
type server struct {
	host      *processor.Host
	options   hostOptions
	readiness *readiness
	grpc      *grpcServer
	http      *httpServer
}

func newServer(host *processor.Host, options hostOptions) (*server, error) {
	secrets, err := tlsConfig(options)
	if err != nil {
		return nil, err
	}
	s := &server{host: host, options: options, readiness: newReadiness(host)}
	if s.grpc, err = newGRPCServer(host, s.readiness, options, secrets); err != nil {
		return nil, err
	}
	s.http, err = newHTTPServer(host, s.readiness, options, secrets)
	return s, err
}

// run serves until SIGTERM, SIGINT or SIGHUP; a second one ends the process at once.
func (s *server) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	failed := make(chan error, 2)
	for name, one := range map[string]interface {
		serve() error
		address() string
	}{"grpc": s.grpc, "rest": s.http} {
		go func() {
			if err := one.serve(); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
		if err := s.host.SetEndpoint(name, one.address()); err != nil {
			return err
		}
		slog.Info(fmt.Sprintf("%s: listening on %s", name, one.address()))
	}
	s.profile()
	s.host.Watch(s.readiness.update)
	go beat(s.options.stateDir, s.options.hostID)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop()
	slog.Info("stopping")
	s.end()
	slog.Info("stopped")
	return nil
}

// end tells probes first, then refuses what is new, then waits for what is in flight.
func (s *server) end() {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.drainTime)
	defer cancel()
	s.readiness.stop()
	for _, name := range []string{"grpc", "rest"} {
		if err := s.host.SetEndpoint(name, ""); err != nil {
			slog.Warn("endpoint: " + message(err))
		}
	}
	time.Sleep(min(noticeTime, s.options.drainTime))
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); s.grpc.stop(ctx) }()
	go func() { defer both.Done(); s.http.stop(ctx) }()
	both.Wait()
	if err := s.host.Drain(ctx); err != nil {
		slog.Warn("drain: " + message(err))
	}
}

// profile serves net/http/pprof, if it is asked for.
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
