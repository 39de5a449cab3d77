// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions([]string{"--state-dir", "s", "--grpc-port=0", "--read-seconds", "0.5", "--max-message-mb", "1",
		"--cors-origin", "https://a.example", "--cors-origin=https://b.example", "--allow-reload-rpc=false", "--allow-reload-rpc=false"})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.corsOrigins) != 2 || o.stateDir != "s" || o.hostID != "host-0" || o.address != "127.0.0.1" || o.grpcPort != 0 || o.restPort != 8501 ||
		o.readTime != 500*time.Millisecond || o.maxMessage() != mib || o.logFormat != "json" || o.logLevel != "info" {
		t.Errorf("got %+v", o)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for words, arguments := range map[string][]string{
		"--state-dir":           {},
		"grpc-port":             {"--grpc-port", "65536"},
		"rest-port":             {"--rest-port", "-1"},
		"max-message-mb":        {"--max-message-mb", "0"},
		"drain-seconds":         {"--drain-seconds", "nan"},
		"log-level":             {"--log-level", "loud"},
		"expected both or none": {"--tls-cert", "c"},
		"expected one":          {"--client-ca", "c"},
		"URL of the proxy":      {"--allow-reload-rpc"},
		"flags only":            {"more"},
		"expected one value":    {"--cpus", "0", "--cpus", "1"},
		`"8500" and "8501"`:     {"--grpc-port", "8500", "--grpc-port=8501"},
		"not defined":           {"--absent"},
	} {
		if words != "--state-dir" {
			arguments = append([]string{"--state-dir", "s"}, arguments...)
		}
		_, err := parseOptions(arguments)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: got %v, expected %q", arguments, err, words)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	set, err := parseCPUs("0-2,5")
	if err != nil || set.Count() != 4 || !set.IsSet(2) || set.IsSet(3) || !set.IsSet(5) {
		t.Errorf("got %v (%v)", set, err)
	}
	for _, text := range []string{"", "x", "1-0", "-1", "1,", "0-99999", "1--2"} {
		if _, err := parseCPUs(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
