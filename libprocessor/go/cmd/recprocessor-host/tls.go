// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// tlsConfig returns the certificates of the server, and whether clients need one; nil without TLS.
func tlsConfig(options hostOptions) (*tls.Config, error) {
	if options.tlsCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(options.tlsCert, options.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w, expected a certificate and its key", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if options.clientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(options.clientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--client-ca: no certificate in '%s', expected at least one", options.clientCA)
	}
	return config, nil
}

// plainOverSockets are credentials for ports: a Unix domain socket has no TLS, because its permissions decide who may connect.
type plainOverSockets struct {
	credentials.TransportCredentials
}

func (c plainOverSockets) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if connection.LocalAddr().Network() == "unix" {
		return insecure.NewCredentials().ServerHandshake(connection)
	}
	return c.TransportCredentials.ServerHandshake(connection)
}

func (c plainOverSockets) Clone() credentials.TransportCredentials {
	return plainOverSockets{c.TransportCredentials.Clone()}
}
