package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.dev/sallyport/test/depth"
)

// metrics is an API of metrics: whatever is asked for has the same value.
type metrics struct{ value atomic.Int64 }

// serveMetrics has the API server hand what is asked for in the groups of external and of custom metrics to one of ours.
func (tm *team) serveMetrics() *metrics {
	tm.Helper()
	m := &metrics{}
	server := httptest.NewTLSServer(m)
	tm.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	tm.Must(err)
	_, port, err := net.SplitHostPort(address.Host)
	tm.Must(err)
	tm.must(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}`,
		"create", "-f", "-")
	for group, version := range map[string]string{"external.metrics.k8s.io": "v1beta1", "custom.metrics.k8s.io": "v1beta2"} {
		tm.must(fmt.Sprintf(`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "%[2]s.%[1]s"}, "spec": {
			"group": %[1]q, "version": %[2]q, "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
			"service": {"namespace": %[3]q, "name": "metrics", "port": %[4]s}}}`, group, version, tm.namespace, port), "create", "-f", "-")
		tm.Cleanup(func() { stack.plane.Kubectl(tm.Context(), "delete", "apiservice", version+"."+group) })
		tm.must("", "wait", "apiservice/"+version+"."+group, "--for=condition=Available", "--timeout=3m")
	}
	return m
}

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

// An autoscaler goes by the length of a queue, which is what there is of machines whose processors no metrics server sees: up, down, and
// of a pool that gives up named members alone, only up.
func TestPoolAutoscaler(t *testing.T) {
	depth.Only(t)
	tm := newTeam(t)
	queue := tm.serveMetrics()
	tm.must(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "queue"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}`,
		"create", "-f", "-")
	scaler := func(pool, metric string) {
		tm.must(fmt.Sprintf(`{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": %[1]q}, "spec": {
			"minReplicas": 1, "maxReplicas": 4, "metrics": [%[2]s], "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
			"scaleTargetRef": {"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "name": %[1]q}}}`, pool, metric), "create", "-f", "-")
	}
	queue.value.Store(2)
	tm.pool("external", 1, "NewestFirst", "")
	tm.pool("object", 1, "OldestFirst", "")
	tm.pool("explicit", 1, "Explicit", "")
	external := `{"type": "External", "external": {"metric": {"name": "queue_length"}, "target": {"type": "AverageValue", "averageValue": "1"}}}`
	scaler("external", external)
	scaler("explicit", external)
	scaler("object", `{"type": "Object", "object": {"metric": {"name": "length"}, "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "queue"},
		"target": {"type": "AverageValue", "averageValue": "1"}}}`)
	for _, pool := range []string{"external", "object", "explicit"} {
		tm.members(pool, 2)
	}
	queue.value.Store(4)
	for _, pool := range []string{"external", "object", "explicit"} {
		tm.members(pool, 4)
	}
	queue.value.Store(1)
	tm.members("external", 1)
	tm.members("object", 1)
	tm.Until("the autoscaler says why it does not scale the pool down", func() (string, bool) {
		says := tm.get("hpa/explicit", `.status.conditions[?(@.type=="AbleToScale")].message`)
		return says, strings.Contains(says, "pools-scale-down/")
	})
	tm.members("explicit", 4)
}
