// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
)

const plainRequest = "GET / HTTP/1.1\r\nhost: x\r\n\r\n"

func TestFramingFindsRequestsWithTwoLengths(t *testing.T) {
	both := "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-LENGTH: 3\r\n\r\n"
	for name, before := range map[string]string{
		"alone":      "",
		"after none": plainRequest,
		"after body": "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\na\n\r\nb",
		"after chunks": "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" +
			"5;name=value\r\na\n\r\nb\r\n0\r\nx-trailer: 1\r\n\r\n",
		"after a long line": "GET /" + strings.Repeat("x", 500) + " HTTP/1.1\nx-long: " + strings.Repeat("y", 500) + "\n\n",
	} {
		for _, size := range []int{1, 2, 7, 4096} {
			text, f, taken := before+both, framing{}, 0
			var failure error
			for taken < len(text) && failure == nil {
				part := text[taken:min(len(text), taken+size)]
				var good int
				if good, failure = f.take([]byte(part)); failure == nil {
					taken += len(part)
				} else if at := taken + good; good > 0 && at != len(before) {
					t.Errorf("%s, %d at a time: %d bytes are good, expected %d", name, size, at, len(before))
				}
			}
			if !errors.Is(failure, errTwoLengths) {
				t.Errorf("%s, %d at a time: got %v", name, size, failure)
			}
		}
	}
}

func TestFramingFindsWhatOthersReadOtherwise(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked\r\n"
	long := "POST /" + strings.Repeat("x", 500)
	for text, expected := range map[string]error{
		"POST / HTTP/1.1\r\ncontent-length: 5, 5\r\n" + chunked + "\r\n":                                                    errTwoLengths,
		"POST / HTTP/1.1\r\n" + chunked + "content-length:\r\n\r\n":                                                         errTwoLengths,
		"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\na\r\n" + "POST / HTTP/1.1\r\ncontent-length: 1\r\n" + chunked + "\r\n": errTwoLengths,
		"POST / HTTP/1.1\r\n" + chunked + "content-length:\r\n 5\r\n\r\n":                                                   errFolded,
		"POST / HTTP/1.1\r\ntransfer-encoding:\r\n\tchunked\r\n\r\n":                                                        errFolded,
		"POST / HTTP/1.0\r\n" + chunked + "\r\n":                                                                            errOldChunks,
		long + " HTTP/1.0\r\n" + chunked + "\r\n":                                                                           errOldChunks,
		plainRequest + "POST / HTTP/1.0\nconnection: keep-alive\n" + chunked + "\n":                                         errOldChunks,
	} {
		for _, size := range []int{1, 3, 4096} {
			f := framing{}
			var failure error
			for rest := text; len(rest) > 0 && failure == nil; rest = rest[min(len(rest), size):] {
				_, failure = f.take([]byte(rest[:min(len(rest), size)]))
			}
			if !errors.Is(failure, expected) {
				t.Errorf("%q, %d at a time: got %v, expected %v", text, size, failure, expected)
			}
		}
	}
}

func TestFramingLeavesOtherRequestsAlone(t *testing.T) {
	for name, text := range map[string]string{
		"none":       plainRequest,
		"length":     "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc",
		"twice":      "POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
		"chunks":     "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"of 1.0":     "POST / HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc",
		"empty line": "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc\r\n",
		"in a body":  "POST / HTTP/1.1\r\ncontent-length: 45\r\n\r\ncontent-length: 1\r\ntransfer-encoding: chunked",
		"in a value": "GET / HTTP/1.1\r\nx: content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f := framing{}
		if _, err := f.take([]byte(text + plainRequest)); err != nil || !f.between() || f.requests != 2 {
			t.Errorf("%s: got %v, %d requests", name, err, f.requests)
		}
		if _, err := f.take([]byte("G")); err != nil || f.between() {
			t.Errorf("%s: got %v, expected to be within a request", name, err)
		}
	}
}

func TestFramingGivesUpOnWhatIsNoHTTP(t *testing.T) {
	for _, text := range []string{"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
		"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n"} {
		f := framing{}
		if _, err := f.take([]byte(text + plainRequest)); err != nil || f.state != opaque {
			t.Errorf("%q: got %v in state %d", text, err, f.state)
		}
	}
}
