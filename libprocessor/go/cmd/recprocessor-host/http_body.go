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
	"sync"
	"time"
)

// bodyError is a body that is refused, with an HTTP status. What is left of it is not waited for.
type bodyError struct {
	status int
	text   string
}

func (e *bodyError) Error() string { return e.text }

// errGone: the client is gone, nobody is left to be answered.
var errGone = errors.New("the client is gone")

// Buffers that bodies are read into, kept for the next unless they have grown large.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const (
	largestKept  = 1 << 20
	firstReserve = 1 << 20 // who announces more must send it first
)

func keepBody(buffer *bytes.Buffer) {
	if buffer.Cap() <= largestKept {
		buffer.Reset()
		bodies.Put(buffer)
	}
}

// readBody reads a body so large and so slow as the host puts up with.
func readBody(w http.ResponseWriter, r *http.Request, buffer *bytes.Buffer, limit int64, within time.Duration) error {
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
	buffer.Grow(int(min(max(r.ContentLength, 0), firstReserve)) + bytes.MinRead)
	_, err := buffer.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &bodyError{http.StatusRequestTimeout,
			fmt.Sprintf("body: not complete after %g s, expected all of it", within.Seconds())}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errGone
	case err != nil:
		return &bodyError{http.StatusBadRequest, fmt.Sprintf("body: %v, expected what its headers say", err)}
	case int64(buffer.Len()) > limit:
		return tooLarge(limit)
	}
	// What follows may take its time.
	if control.SetReadDeadline(time.Time{}) != nil {
		return errGone
	}
	return nil
}

// decompress undoes a Content-Encoding: gzip or deflate.
func decompress(body []byte, encoding string, limit int64) ([]byte, error) {
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
		return nil, &bodyError{http.StatusUnsupportedMediaType,
			fmt.Sprintf("content-encoding: '%s', expected gzip, deflate or none", cut(encoding, 40))}
	}
	buffer := &bytes.Buffer{}
	if err == nil {
		_, err = buffer.ReadFrom(io.LimitReader(reader, limit+1))
	}
	if err != nil {
		return nil, &bodyError{http.StatusBadRequest, fmt.Sprintf("body: %v, expected what the content-encoding says", err)}
	}
	if int64(buffer.Len()) > limit {
		return nil, tooLarge(limit)
	}
	if _, err := source.ReadByte(); err != io.EOF {
		return nil, &bodyError{http.StatusBadRequest,
			fmt.Sprintf("body: %d bytes of compressed data, expected all of it and nothing behind", len(body))}
	}
	return buffer.Bytes(), nil
}

func tooLarge(limit int64) error {
	return &bodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("body: too large, expected at most %d bytes", limit)}
}
