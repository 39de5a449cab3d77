// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestCodesAreThoseOfGRPC(t *testing.T) {
	names := map[Code]codes.Code{
		OK: codes.OK, Canceled: codes.Canceled, Unknown: codes.Unknown, InvalidArgument: codes.InvalidArgument,
		DeadlineExceeded: codes.DeadlineExceeded, NotFound: codes.NotFound, AlreadyExists: codes.AlreadyExists,
		PermissionDenied: codes.PermissionDenied, ResourceExhausted: codes.ResourceExhausted,
		FailedPrecondition: codes.FailedPrecondition, Aborted: codes.Aborted, OutOfRange: codes.OutOfRange,
		Unimplemented: codes.Unimplemented, Internal: codes.Internal, Unavailable: codes.Unavailable,
		DataLoss: codes.DataLoss, Unauthenticated: codes.Unauthenticated,
	}
	if len(names) != 17 {
		t.Fatalf("%d codes, expected 17", len(names))
	}
	for ours, theirs := range names {
		var parsed codes.Code
		if err := parsed.UnmarshalJSON([]byte(`"` + ours.String() + `"`)); err != nil || parsed != theirs {
			t.Errorf("%v is %v in gRPC (%v), expected %v", ours, parsed, err, theirs)
		}
		if codes.Code(ours) != theirs {
			t.Errorf("%v is %d, expected %d", ours, ours, theirs)
		}
	}
	if Code(99).String() != "CODE(99)" {
		t.Errorf("got %v", Code(99))
	}
}

func TestErrorsCanBeToldApart(t *testing.T) {
	err := fmt.Errorf("ranking: %w", failf(DeadlineExceeded, "late"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Error("expected DEADLINE_EXCEEDED to be the context's error, and no other")
	}
	if !errors.Is(err, &Error{Code: DeadlineExceeded}) || errors.Is(err, &Error{Code: NotFound}) {
		t.Error("expected errors to be equal by their code")
	}
	var failure *Error
	if !errors.As(err, &failure) || failure.Message != "late" || failure.Error() != "DEADLINE_EXCEEDED: late" {
		t.Errorf("got %v", failure)
	}
	if CodeOf(nil) != OK || CodeOf(err) != DeadlineExceeded || CodeOf(errors.New("x")) != Unknown {
		t.Error("CodeOf does not answer the codes of nil, Error and other errors")
	}
}
