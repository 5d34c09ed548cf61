package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"sallyport.dev/sallyport/test/support/site"
)

// metrics is an API of metrics: whatever is asked for has the same value.
type metrics struct{ value atomic.Int64 }

// ServeHTTP answers as a metrics adapter does.
func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // apis, group, version, namespaces, ...
	if len(parts) < 3 {
		http.NotFound(w, r)
		return
	}
	groupVersion := parts[1] + "/" + parts[2]
	const now = "2026-11-23T00:00:00Z"
	value := fmt.Sprint(m.value.Load())
	var answer any
	switch {
	case len(parts) == 3:
		answer = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": []any{}}
	case parts[1] == "external.metrics.k8s.io":
		answer = map[string]any{"kind": "ExternalMetricValueList", "apiVersion": groupVersion, "metadata": map[string]any{}, "items": []any{
			map[string]any{"metricName": parts[len(parts)-1], "metricLabels": map[string]any{}, "timestamp": now, "value": value},
		}}
	default: // namespaces/NS/services/NAME/METRIC
		answer = map[string]any{"kind": "MetricValueList", "apiVersion": groupVersion, "metadata": map[string]any{}, "items": []any{
			map[string]any{
				"describedObject": map[string]any{"kind": "Service", "namespace": parts[4], "name": parts[6], "apiVersion": "v1"},
				"metric":          map[string]any{"name": parts[7]}, "timestamp": now, "value": value,
			},
		}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func TestPoolAutoscaler(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	m := &metrics{}
	server := httptest.NewTLSServer(m)
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	queue := func(ts *testscript.TestScript, _ bool, args []string) {
		length, err := strconv.Atoi(args[0])
		ts.Check(err)
		m.value.Store(int64(length))
	}
	stack.Run(t, site.Scripts{
		Dir: "testdata/autoscaler", Alone: true, Variables: map[string]string{"PORT": port},
		Commands: map[string]func(*testscript.TestScript, bool, []string){"queue": queue},
	})
}
