// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

const mostHeadBytes = 65536

// httpServer is the HTTP side.
type httpServer struct {
	server   *http.Server
	listener net.Listener
}

func newHTTPServer(host *processor.Host, ready *readiness, options hostOptions, secrets *tls.Config) (*httpServer, error) {
	listener, err := listen(options.address, options.restPort)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: &application{
			host: host, readiness: ready, limit: int64(options.maxMessage()), readTime: options.readTime,
		},
		ReadHeaderTimeout: options.readTime,
		IdleTimeout:       options.idleTime,
		MaxHeaderBytes:    mostHeadBytes,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		// HTTP/1.1 alone: HTTP/2 is what the other port is for.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	var shared net.Listener = &limited{Listener: listener, most: options.maxConnections}
	if secrets != nil {
		secrets = secrets.Clone()
		secrets.NextProtos = []string{"http/1.1"}
		shared = tls.NewListener(shared, secrets)
	}
	return &httpServer{server: server, listener: shared}, nil
}

func (s *httpServer) serve() error {
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *httpServer) address() string { return s.listener.Addr().String() }

// stop takes no more requests and waits for those in flight until the context ends; what is left then is cut off.
func (s *httpServer) stop(ctx context.Context) {
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
}

// canonical are the names of headers as Go writes them.
var canonical = map[string]string{}

func init() {
	for _, name := range []string{
		"x-model-name", "x-model-version", "x-arm", "x-session", "x-cpuset", "x-queue-us", "x-run-us",
	} {
		canonical[name] = http.CanonicalHeaderKey(name)
	}
}

// lastValue is a header's value; of several the last.
func lastValue(header http.Header, canonicalName string) (string, bool) {
	values := header[canonicalName]
	if len(values) == 0 {
		return "", false
	}
	return strings.TrimSpace(values[len(values)-1]), true
}
