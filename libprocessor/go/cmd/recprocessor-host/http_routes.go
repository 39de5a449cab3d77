// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// page is a path that the host itself serves.
type page int

const (
	noPage page = iota
	metricsPage
	alivePage
	readyPage
)

// controlProtocol is the protocol of routes that are forwarded to the proxy; the method names the action.
const controlProtocol = "control"

// route is the method and model of a URL.
type route struct {
	what    operation
	page    page
	allowed string // the HTTP method
	model   string
	version int64
	label   string
}

// routeError is the error of an unknown path. protocol is that of the client, allowed an HTTP method that the path supports.
type routeError struct {
	status   int
	text     string
	protocol string
	allowed  string
}

func (e *routeError) Error() string { return e.text }

var (
	easPredict = operation{"eas", "predict"}

	fixedRoutes = map[string]route{
		"/":                    {what: easPredict, allowed: http.MethodPost},
		"/v2":                  {what: operation{"kserve_json", "server_metadata"}, allowed: http.MethodGet},
		"/v2/models/stats":     {what: operation{"kserve_json", "stats"}, allowed: http.MethodGet},
		"/v2/repository/index": {what: operation{"kserve_json", "index"}, allowed: http.MethodPost},
		"/v2/health/live":      {what: operation{"kserve_json", "live"}, allowed: http.MethodGet},
		"/v2/health/ready":     {what: operation{"kserve_json", "server_ready"}, allowed: http.MethodGet},
		"/metrics":             {page: metricsPage, allowed: http.MethodGet},
		// The paths of TensorFlow Serving.
		"/monitoring/prometheus/metrics": {page: metricsPage, allowed: http.MethodGet},
		"/healthz":                       {page: alivePage, allowed: http.MethodGet},
		"/readyz":                        {page: readyPage, allowed: http.MethodGet},
	}
	// The parts after the model, below /v1/models.
	tfservingVerbs = map[string]route{
		":predict":  {what: operation{"tfserving_json", "predict"}, allowed: http.MethodPost},
		":classify": {what: operation{"tfserving_json", "classify"}, allowed: http.MethodPost},
		":regress":  {what: operation{"tfserving_json", "regress"}, allowed: http.MethodPost},
		":eas":      {what: easPredict, allowed: http.MethodPost},
		"/metadata": {what: operation{"tfserving_json", "metadata"}, allowed: http.MethodGet},
		"":          {what: operation{"tfserving_json", "status"}, allowed: http.MethodGet},
	}
	// The parts after the model, below /v2/models.
	kserveVerbs = map[string]route{
		"/infer":  {what: operation{"kserve_json", "infer"}, allowed: http.MethodPost},
		"/ready":  {what: operation{"kserve_json", "ready"}, allowed: http.MethodGet},
		"/config": {what: operation{"kserve_json", "config"}, allowed: http.MethodGet},
		"/stats":  {what: operation{"kserve_json", "stats"}, allowed: http.MethodGet},
		"":        {what: operation{"kserve_json", "metadata"}, allowed: http.MethodGet},
	}
)

// findRoute returns the route of a path that is still percent-encoded. Raw requests of DeepRec Processor use the path of its
// clients, /api/predict/M, or / if there is only one model.
func findRoute(path string) (route, error) {
	if found, ok := fixedRoutes[path]; ok {
		return found, nil
	}
	if found, ok := fixedRoutes[strings.TrimRight(path, "/")]; ok {
		return found, nil
	}
	if rest, ok := strings.CutPrefix(path, "/v1/models/"); ok {
		return modelRoute(path, rest, tfservingVerbs, ":/", false)
	}
	if rest, ok := strings.CutPrefix(path, "/v2/models/"); ok {
		return modelRoute(path, rest, kserveVerbs, "/", true)
	}
	if rest, ok := strings.CutPrefix(path, "/v2/repository/models/"); ok {
		model, verb := cutAny(rest, "/")
		if model == "" || verb != "/load" && verb != "/unload" {
			return route{}, notFound(path)
		}
		found := route{what: operation{controlProtocol, verb[1:]}, allowed: http.MethodPost}
		return found, found.setModel(model)
	}
	if rest, ok := strings.CutPrefix(path, "/api/predict/"); ok {
		if model, _, _ := strings.Cut(rest, "/"); model != "" {
			found := route{what: easPredict, allowed: http.MethodPost}
			return found, found.setModel(model)
		}
	}
	return route{}, notFound(path)
}

// modelRoute reads M[/versions/V] or M[/labels/L], and a verb. As in the messages, a version that is not a number is a label.
func modelRoute(path, rest string, verbs map[string]route, ends string, texts bool) (route, error) {
	model, rest := cutAny(rest, ends)
	version, label := "", ""
	if after, ok := strings.CutPrefix(rest, "/versions/"); ok {
		if version, rest = cutAny(after, ends); version == "" {
			return route{}, notFound(path)
		}
		if texts && !isNumber(version) {
			version, label = "", version
		}
	} else if after, ok := strings.CutPrefix(rest, "/labels/"); ok {
		if label, rest = cutAny(after, ends); label == "" {
			return route{}, notFound(path)
		}
	}
	found, ok := verbs[rest]
	if !ok || model == "" {
		return route{}, notFound(path)
	}
	if err := found.setModel(model); err != nil {
		return found, err
	}
	var err error
	if found.label, err = unquote(label, found.what.protocol); err != nil {
		return found, err
	}
	if version != "" {
		err = found.setVersion(version)
	}
	return found, err
}

func (r *route) setModel(quoted string) error {
	var err error
	r.model, err = unquote(quoted, r.what.protocol)
	return err
}

func (r *route) setVersion(text string) error {
	number, err := strconv.ParseUint(text, 10, 63) // takes no sign
	if err != nil {
		return &routeError{status: http.StatusBadRequest, protocol: r.what.protocol,
			text: fmt.Sprintf("version '%s': expected a number from 1 to %d", cut(text, 40), uint64(1<<63-1))}
	}
	if number == 0 { // to the library 0 says that none is named
		return &routeError{status: http.StatusNotFound, protocol: r.what.protocol,
			text: "version 0: not served, expected 1 or more"}
	}
	r.version = int64(number)
	return nil
}

func unquote(quoted, protocol string) (string, error) {
	text, err := url.PathUnescape(quoted)
	if err != nil || !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return "", &routeError{status: http.StatusBadRequest, protocol: protocol,
			text: fmt.Sprintf("path: '%s', expected percent-encoded UTF-8", cut(quoted, 200))}
	}
	return text, nil
}

// isNumber returns whether a version is a number, even an impossible one.
func isNumber(text string) bool {
	digits := strings.TrimLeft(text, "+-")
	return len(text)-len(digits) <= 1 && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func notFound(path string) error {
	protocol := "tfserving_json"
	if strings.HasPrefix(path, "/api/") {
		protocol = "eas"
	}
	return &routeError{status: http.StatusNotFound, protocol: protocol,
		text: fmt.Sprintf("path '%s': not known, expected one of docs/hosts.md", cut(path, 200))}
}

// cutAny splits a text before the first of some characters.
func cutAny(text, ends string) (string, string) {
	if i := strings.IndexAny(text, ends); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

func cut(text string, size int) string { return text[:min(len(text), size)] }
