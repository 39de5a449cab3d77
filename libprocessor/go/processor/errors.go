// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"errors"
	"fmt"
)

// Code is a canonical status code. The numbers are those of gRPC: codes.Code(code) is right.
type Code int32

// The canonical codes; processor.h describes when the library returns each.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// String returns the canonical name, for example "INVALID_ARGUMENT".
func (c Code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("CODE(%d)", int32(c))
	}
	return codeNames[c]
}

// Error is the error of all functions of this package.
//
// errors.Is(err, context.DeadlineExceeded) and errors.Is(err, context.Canceled) hold for the codes of that meaning,
// and errors.Is(err, &Error{Code: NotFound}) for any error of that code.
type Error struct {
	Code    Code
	Message string
}

// Error returns "CODE: message".
func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// Is implements the comparison of errors.Is described at Error.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Code == DeadlineExceeded
	case context.Canceled:
		return e.Code == Canceled
	}
	other, ok := target.(*Error)
	return ok && other.Code == e.Code && (other.Message == "" || other.Message == e.Message)
}

// CodeOf returns the code of an error: OK for nil, Unknown for an error of another package.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Code
	}
	return Unknown
}

func failf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// errPast is the error of a request whose deadline has passed, as the library words it.
func errPast() *Error {
	return failf(DeadlineExceeded, "request: the deadline passed before it was answered")
}

// contextError converts the error of a context into an Error.
func contextError(ctx context.Context, when string) *Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errPast()
	}
	return failf(Canceled, "request: it was cancelled %s", when)
}
