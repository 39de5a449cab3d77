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
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

const mostHeadBytes = 65536

// httpServer serves HTTP.
type httpServer struct {
	server   *http.Server
	port     *port
	most     int                             // connections
	share    func(net.Listener) net.Listener // with limits and TLS
	listener net.Listener                    // once it is opened
	giveUp   context.CancelCauseFunc         // ends the requests in flight
}

// errGivenUp is the reason why requests are ended at the end of the host.
var errGivenUp = &processor.Error{Code: processor.Unavailable, Message: "host: it is stopping"}

// The time in which clients must read the last responses.
const lastWords = time.Second

func newHTTPServer(host *processor.Host, ready *readiness, options hostOptions, secrets *tls.Config) (*httpServer, error) {
	reserved, err := reserve(host, options.address, options.restPort)
	if err != nil {
		return nil, err
	}
	base, giveUp := context.WithCancelCause(context.Background())
	server := &http.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		Handler: withCORS(&application{
			host: host, readiness: ready, control: newModelControl(options), limit: int64(options.maxMessage()),
			readTime: options.readTime,
		}, options.corsOrigins),
		ReadHeaderTimeout: options.readTime,
		IdleTimeout:       options.idleTime,
		MaxHeaderBytes:    mostHeadBytes,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		// Only HTTP/1.1; the other port serves HTTP/2.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	most := mostConnections(options.maxConnections, options)
	share := func(listener net.Listener) net.Listener {
		if secrets == nil {
			return plainListener(listener, most)
		}
		secrets = secrets.Clone()
		secrets.NextProtos = []string{"http/1.1"}
		return framedListener{Listener: tls.NewListener(&limited{Listener: listener, most: most}, secrets)}
	}
	return &httpServer{server: server, port: reserved, most: most, share: share, giveUp: giveUp}, nil
}

// plainListener limits a listener without TLS.
func plainListener(listener net.Listener, most int) net.Listener {
	return framedListener{Listener: &limited{Listener: listener, most: most}, halfClose: true}
}

// open starts to accept connections.
func (s *httpServer) open() error {
	listener, err := s.port.listen()
	if err == nil {
		s.listener = s.share(listener)
	}
	return err
}

func (s *httpServer) serve() error { return s.serveOn(s.listener) }

func (s *httpServer) serveOn(listener net.Listener) error {
	if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *httpServer) address() string { return s.port.address }

// stop refuses new requests and waits for those in flight until the context ends; the remaining ones are then ended.
func (s *httpServer) stop(ctx context.Context) {
	if s.server.Shutdown(ctx) == nil {
		return
	}
	s.giveUp(errGivenUp)
	last, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if s.server.Shutdown(last) != nil {
		_ = s.server.Close()
	}
}

// provenanceNames are the headers that a page may read.
var provenanceNames = []string{
	"x-model-name", "x-model-version", "x-model-epoch", "x-model-age-ms", "x-arm", "x-session", "x-cpuset", "x-queue-us", "x-run-us",
}

// canonical are the names of headers as Go writes them.
var canonical = map[string]string{}

func init() {
	for _, name := range provenanceNames {
		canonical[name] = http.CanonicalHeaderKey(name)
	}
}

// lastValue returns the last value of a header.
func lastValue(header http.Header, canonicalName string) (string, bool) {
	values := header[canonicalName]
	if len(values) == 0 {
		return "", false
	}
	return strings.TrimSpace(values[len(values)-1]), true
}
