// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

const clientClosedRequest = 499

// httpStatus returns the HTTP status of a canonical code.
func httpStatus(code processor.Code) int {
	switch code {
	case processor.OK:
		return http.StatusOK
	case processor.Canceled:
		return clientClosedRequest
	case processor.InvalidArgument, processor.FailedPrecondition, processor.OutOfRange:
		return http.StatusBadRequest
	case processor.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case processor.NotFound:
		return http.StatusNotFound
	case processor.AlreadyExists, processor.Aborted:
		return http.StatusConflict
	case processor.PermissionDenied:
		return http.StatusForbidden
	case processor.ResourceExhausted:
		return http.StatusTooManyRequests
	case processor.Unimplemented:
		return http.StatusNotImplemented
	case processor.Unavailable:
		return http.StatusServiceUnavailable
	case processor.Unauthenticated:
		return http.StatusUnauthorized
	}
	return http.StatusInternalServerError
}

// message returns the text of an error without the name of its code, as UTF-8.
func message(err error) string {
	text := err.Error()
	var failure *processor.Error
	if errors.As(err, &failure) && err == error(failure) {
		text = failure.Message
	}
	return strings.ToValidUTF8(text, "?")
}

// grpcStatus converts a code of the library, which has the same number in gRPC.
func grpcStatus(err error) error {
	if text := tooLargeRequest(""); errors.As(err, &text) {
		return status.Error(codes.ResourceExhausted, text.Error())
	}
	return status.Error(codes.Code(processor.CodeOf(err)), message(err))
}

func invalid(text string) error {
	return &processor.Error{Code: processor.InvalidArgument, Message: text}
}

// The metadata of gRPC and headers of HTTP with which clients describe a request.
const (
	routingKey   = "x-routing-key"
	priority     = "x-priority"
	minEpoch     = "x-min-epoch"
	traceParent  = "traceparent"
	headerLength = "inference-header-content-length" // of HTTP, whose body may hold JSON and, behind it, binary data
)

func parsePriority(value string) (int32, error) {
	number, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32)
	if err != nil {
		return 0, invalid(priority + ": '" + value[:min(len(value), 40)] + "', expected an integer of 32 bits")
	}
	return int32(number), nil
}
