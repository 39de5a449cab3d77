// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

func TestParseFlags(t *testing.T) {
	s, err := parseFlags([]string{"--model", "a=/m/a", "--model", "b=/m/b=1", "--listen", "127.0.0.1:0"})
	if err != nil || len(s.models) != 2 || s.models[1].name != "b" || s.models[1].path != "/m/b=1" {
		t.Errorf("got %+v (%v)", s, err)
	}
	for _, arguments := range [][]string{
		{}, {"--model", "a"}, {"--model", "=p"}, {"--model", "a=p", "--model", "a=q"}, {"--model", "a=p", "more"},
		{"--model", "a=p", "--max-in-flight", "0"},
	} {
		if _, err := parseFlags(arguments); err == nil {
			t.Errorf("%q was accepted", arguments)
		}
	}
}

func TestModelConfig(t *testing.T) {
	config, err := modelConfig("", "ranking")
	if err != nil || config["model_name"] != "ranking" || config["select_session_policy"] != "LEAST_LOADED" {
		t.Errorf("got %v (%v)", config, err)
	}
	config, err = modelConfig(`{"model_name": "other"}`, "ranking")
	if err != nil || len(config) != 1 || config["model_name"] != "other" {
		t.Errorf("got %v (%v)", config, err)
	}
	for _, text := range []string{"{", "[]", "null", "1"} {
		if _, err := modelConfig(text, "ranking"); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestCodecPassesRawMessagesAndEncodesOthers(t *testing.T) {
	c := newCodec()
	sent, err := c.Marshal(rawResponse("abc"))
	if err != nil || string(sent.Materialize()) != "abc" {
		t.Errorf("got %q (%v)", sent.Materialize(), err)
	}
	request := rawRequest{}
	parts := mem.BufferSlice{mem.SliceBuffer("ab"), mem.SliceBuffer("c")}
	if err := c.Unmarshal(parts, &request); err != nil || string(request.bytes()) != "abc" {
		t.Errorf("got %q (%v)", request.bytes(), err)
	}
	request.free()
	empty := rawRequest{}
	if err := c.Unmarshal(nil, &empty); err != nil || len(empty.bytes()) != 0 {
		t.Errorf("got %q (%v) for an empty message", empty.bytes(), err)
	}
	empty.free()
	encoded, err := c.Marshal(&grpc_health_v1.HealthCheckRequest{Service: "x"})
	decoded := grpc_health_v1.HealthCheckRequest{}
	if err != nil || c.Unmarshal(encoded, &decoded) != nil || decoded.Service != "x" {
		t.Errorf("got %v (%v)", &decoded, err)
	}
}

func TestStatusKeepsCodeAndMessage(t *testing.T) {
	got := status.Convert(statusOf(&processor.Error{Code: processor.NotFound, Message: "output 'a\xff': absent"}))
	if got.Code() != codes.NotFound || got.Message() != "output 'a?': absent" {
		t.Errorf("got %v", got)
	}
	if got := status.Code(statusOf(errors.New("x"))); got != codes.Unknown {
		t.Errorf("got %v, expected UNKNOWN", got)
	}
}
