// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

func expectStatus(t *testing.T, err error, status int) {
	t.Helper()
	var body *bodyError
	if !errors.As(err, &body) || body.status != status {
		t.Errorf("got %v, expected HTTP status %d", err, status)
	}
}

func gzipped(data []byte) []byte {
	out := &bytes.Buffer{}
	writer := gzip.NewWriter(out)
	_, _ = writer.Write(data)
	writer.Close()
	return out.Bytes()
}

func deflated(data []byte) []byte {
	out := &bytes.Buffer{}
	writer := zlib.NewWriter(out)
	_, _ = writer.Write(data)
	writer.Close()
	return out.Bytes()
}

func TestDecompress(t *testing.T) {
	data := bytes.Repeat([]byte("abc"), 1000)
	inflate := func(body []byte, encoding string, limit int64) ([]byte, error) {
		var inflated processor.Buffer
		t.Cleanup(inflated.Free)
		err := decompress(body, encoding, limit, &inflated)
		return inflated.Bytes(), err
	}
	for encoding, body := range map[string][]byte{"gzip": gzipped(data), " X-GZIP ": gzipped(data), "deflate": deflated(data)} {
		if got, err := inflate(body, encoding, 3000); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: got %d bytes (%v)", encoding, len(got), err)
		}
		_, err := inflate(body, encoding, 2999)
		expectStatus(t, err, http.StatusRequestEntityTooLarge)
		_, err = inflate(body[:len(body)-3], encoding, 3000)
		expectStatus(t, err, http.StatusBadRequest)
		_, err = inflate(append(body[:len(body):len(body)], 'x'), encoding, 3000)
		expectStatus(t, err, http.StatusBadRequest)
		_, err = inflate([]byte("neither"), encoding, 3000)
		expectStatus(t, err, http.StatusBadRequest)
	}
	_, err := inflate(data, "br", 3000)
	expectStatus(t, err, http.StatusUnsupportedMediaType)
}

func TestBombsFindNoRoom(t *testing.T) {
	before := processor.MaxRequestBytes()
	defer func() { _ = processor.SetMaxRequestBytes(before) }()
	if err := processor.SetMaxRequestBytes(4 << 20); err != nil {
		t.Fatal(err)
	}
	bomb := gzipped(make([]byte, 3<<20))
	var first, second processor.Buffer
	expectStatus(t, decompress(bomb, "gzip", 64<<20, &first), http.StatusRequestEntityTooLarge)
	first.Free()
	if err := first.Reserve(1 << 20); err != nil {
		t.Fatal(err)
	}
	err := decompress(gzipped(make([]byte, 1_500_000)), "gzip", 64<<20, &second)
	expectStatus(t, err, http.StatusTooManyRequests)
	second.Free()
	first.Free()
	if err := decompress(gzipped(make([]byte, 1_500_000)), "gzip", 64<<20, &second); err != nil {
		t.Error(err)
	}
	second.Free()
}

// bodyServer answers with what readBody reads, or its status.
func bodyServer(t *testing.T, limit int64, within time.Duration) (*httptest.Server, chan error) {
	failures := make(chan error, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buffer := &processor.Buffer{}
		defer buffer.Free()
		if err := readBody(w, r, buffer, limit, within); err != nil {
			failures <- err
			fail(w, err, nil, "tfserving_json")
			return
		}
		send(w, http.StatusOK, buffer.Bytes(), binaryType)
	}))
	t.Cleanup(server.Close)
	return server, failures
}

func TestReadBody(t *testing.T) {
	server, failures := bodyServer(t, 100_000, 10*time.Second)
	post := func(body io.Reader) (int, []byte) {
		response, err := http.Post(server.URL, binaryType, body)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		got, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, got
	}
	for _, size := range []int{0, 1, 5000, 100_000} {
		data := bytes.Repeat([]byte("x"), size)
		if status, got := post(bytes.NewReader(data)); status != 200 || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %d with %d bytes", size, status, len(got))
		}
		chunked := struct{ io.Reader }{bytes.NewReader(data)} // of a length that nobody knows
		if status, got := post(chunked); status != 200 || !bytes.Equal(got, data) {
			t.Errorf("%d bytes in chunks: got %d with %d bytes", size, status, len(got))
		}
	}
	for _, body := range []io.Reader{
		bytes.NewReader(make([]byte, 100_001)), struct{ io.Reader }{bytes.NewReader(make([]byte, 100_001))},
	} {
		if status, got := post(body); status != 413 || !strings.Contains(string(got), "too large") {
			t.Errorf("got %d %q", status, got)
		}
		expectStatus(t, <-failures, http.StatusRequestEntityTooLarge)
	}
}

func TestReadBodyDoesNotWaitForEver(t *testing.T) {
	server, failures := bodyServer(t, 1000, 50*time.Millisecond)
	for _, last := range []bool{false, true} {
		client, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"); err != nil {
			t.Fatal(err)
		}
		if last { // the client is gone in the middle
			client.Close()
			if err := <-failures; !errors.Is(err, errGone) {
				t.Errorf("got %v, expected that it is gone", err)
			}
			continue
		}
		answer, err := io.ReadAll(client)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
			t.Errorf("got %q (%v)", answer, err)
		}
		expectStatus(t, <-failures, http.StatusRequestTimeout)
		client.Close()
	}
}

func TestLimitedListener(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &limited{Listener: plain, most: 2}
	defer listener.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- connection
		}
	}()
	dial := func() net.Conn {
		client, err := net.Dial("tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	dial()
	dial()
	first := <-accepted
	<-accepted
	third := dial()
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("a third connection is served")
	}
	first.Close()
	first.Close() // counts once
	dial()
	<-accepted
	if listener.count != 2 {
		t.Errorf("%d connections are counted, expected 2", listener.count)
	}
}
