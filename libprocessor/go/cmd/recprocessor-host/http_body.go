// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// bodyError is the refusal of a body, with an HTTP status. The host does not wait for the rest of the body.
type bodyError struct {
	status     int
	text       string
	retryAfter time.Duration // when it may come again; 0: that is not known
}

func (e *bodyError) Error() string { return e.text }

// errGone means that the client has disconnected, so that there is no response.
var errGone = errors.New("the client is gone")

const (
	firstReserve = 1 << 20 // who announces more must send it first
	crowdedRetry = time.Second
)

// readBody reads a body within the limits of size and time.
func readBody(w http.ResponseWriter, r *http.Request, buffer *processor.Buffer, limit int64, within time.Duration) error {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	if r.ContentLength == 0 {
		return nil
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(within)); err != nil {
		return errGone
	}
	// One more byte shows whether the body ends in time.
	err := buffer.Reserve(int(min(max(r.ContentLength, 0), firstReserve)) + 1)
	if err == nil {
		err = buffer.ReadUpTo(r.Body, int(limit))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &bodyError{status: http.StatusRequestTimeout,
			text: fmt.Sprintf("body: not complete after %g s, expected all of it", within.Seconds())}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errGone
	case isOfMemory(err):
		return noRoom(err)
	case err != nil:
		return &bodyError{status: http.StatusBadRequest, text: fmt.Sprintf("body: %v, expected what its headers say", err)}
	case int64(buffer.Len()) > limit:
		return tooLarge(limit)
	}
	// The next request may take its time.
	if control.SetReadDeadline(time.Time{}) != nil {
		return errGone
	}
	return nil
}

// isOfMemory returns whether an error comes from the memory budget and not from a reader.
func isOfMemory(err error) bool {
	var failure *processor.Error
	return errors.As(err, &failure)
}

// noRoom refuses a body for which memory is short now, or which could never fit.
func noRoom(err error) error {
	if processor.CodeOf(err) == processor.InvalidArgument {
		return &bodyError{status: http.StatusRequestEntityTooLarge, text: message(err)}
	}
	return &bodyError{status: http.StatusTooManyRequests, text: message(err), retryAfter: crowdedRetry}
}

// decompress undoes a Content-Encoding, gzip or deflate, piece by piece within the memory budget.
func decompress(body []byte, encoding string, limit int64, inflated *processor.Buffer) error {
	source := bufio.NewReader(bytes.NewReader(body))
	var reader io.Reader
	var err error
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "gzip", "x-gzip":
		var unzip *gzip.Reader
		if unzip, err = gzip.NewReader(source); err == nil {
			unzip.Multistream(false)
			reader = unzip
		}
	case "deflate":
		reader, err = zlib.NewReader(source)
	default:
		return &bodyError{status: http.StatusUnsupportedMediaType,
			text: fmt.Sprintf("content-encoding: '%s', expected gzip, deflate or none", cut(encoding, 40))}
	}
	if err == nil {
		err = inflated.ReadUpTo(reader, int(limit))
	}
	if isOfMemory(err) {
		return noRoom(err)
	}
	if err != nil {
		return &bodyError{status: http.StatusBadRequest,
			text: fmt.Sprintf("body: %v, expected what the content-encoding says", err)}
	}
	if int64(inflated.Len()) > limit {
		return tooLarge(limit)
	}
	if _, err := source.ReadByte(); err != io.EOF {
		return &bodyError{status: http.StatusBadRequest,
			text: fmt.Sprintf("body: %d bytes of compressed data, expected all of it and nothing behind", len(body))}
	}
	return nil
}

func tooLarge(limit int64) error {
	return &bodyError{status: http.StatusRequestEntityTooLarge,
		text: fmt.Sprintf("body: too large, expected at most %d bytes", limit)}
}
