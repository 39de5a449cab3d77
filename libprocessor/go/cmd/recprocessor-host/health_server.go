// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// healthServer serves health and metrics on a separate port without TLS, even before the models are loaded.
type healthServer struct {
	server   *http.Server
	port     *port
	listener net.Listener
}

func newHealthServer(host *processor.Host, ready *readiness, options hostOptions) (*healthServer, error) {
	reserved, err := reserve(host, options.address, options.healthPort)
	if err != nil {
		return nil, err
	}
	all := &application{host: host, readiness: ready}
	return &healthServer{port: reserved, server: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if where, err := findRoute(r.URL.EscapedPath()); err != nil || where.page == noPage {
				refuse(w, http.StatusNotFound, "path: not at this port, expected /healthz, /readyz or /metrics", "")
				return
			}
			all.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: options.readTime,
		IdleTimeout:       options.idleTime,
		MaxHeaderBytes:    mostHeadBytes,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}}, nil
}

func (s *healthServer) open() error {
	listener, err := s.port.listen()
	if err == nil {
		s.listener = &limited{Listener: listener, most: healthConnections}
	}
	return err
}

func (s *healthServer) serve() error {
	if err := s.server.Serve(s.listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func (s *healthServer) address() string { return s.port.address }

func (s *healthServer) stop() { _ = s.server.Close() }
