// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// restConnection implements the part of HTTP/1.1 that one POST at a time needs.
type restConnection struct {
	socket socket
	reader *bufio.Reader
	head   string
	out    bytes.Buffer
	done   bool // the server has closed it after the last answer
}

func dialREST(s settings) (connection, error) {
	plain, err := dial(s.address, s.timeout)
	if err != nil {
		return nil, err
	}
	c := &restConnection{socket: plain, reader: bufio.NewReaderSize(plain, 65536)}
	c.head = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n", s.path, authority(s.address), s.contentType)
	for _, more := range s.headers {
		c.head += more.name + ": " + more.value + "\r\n"
	}
	c.head += "Content-Length: "
	return c, nil
}

func (c *restConnection) close() { c.socket.close() }

func (c *restConnection) ask(request []byte) (string, error) {
	if c.done || c.socket.closed() {
		return "", errGoAway
	}
	c.out.Reset()
	c.out.WriteString(c.head)
	c.out.WriteString(strconv.Itoa(len(request)))
	c.out.WriteString("\r\n\r\n")
	c.out.Write(request)
	if _, err := c.socket.Write(c.out.Bytes()); err != nil {
		return "", err
	}
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < len("HTTP/1.1 200") {
		return "", fmt.Errorf("status line %q", line)
	}
	status := string(line[9:12])
	length := -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(strings.TrimSpace(string(value))); err != nil {
				return "", err
			}
		case bytes.EqualFold(name, []byte("connection")):
			c.done = bytes.EqualFold(bytes.TrimSpace(value), []byte("close"))
		}
	}
	if length < 0 {
		return "", errors.New("no content-length, expected one")
	}
	if _, err := io.CopyN(io.Discard, c.reader, int64(length)); err != nil {
		return "", err
	}
	if status == "200" {
		status = "OK"
	}
	return status, nil
}
