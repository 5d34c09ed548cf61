package main

import "encoding/json"

// panel is a picture of the dashboard, with queries by their legend.
type panel struct {
	title, unit string
	// what says what to do about it.
	what    string
	queries [][2]string // legend, expression
	stat    bool        // a number instead of lines
}

type row struct {
	title  string
	panels []panel
}

// rows are the questions of an operator during an incident, most urgent first. All replicas serve webhooks, so that their counters are added;
// only the leader has gauges of objects, which max takes from a former one, too, until that is scraped again.
var rows = []row{
	{"Is it there", []panel{
		{"Replicas that serve", "short", "", [][2]string{{"{{version}}", `count by (version) (sallyport_build_info)`}}, true},
		{"Leader", "short", "Reconcilers run only in the leader.", [][2]string{{"leaders", `sum(leader_election_master_status{name="sallyport-manager"})`}}, true},
		{"Certificate expires in", "s", "", [][2]string{{"", `min(sallyport_certificate_expiry_timestamp_seconds) - time()`}}, true},
		{"Gate open for", "s", "kubectl sallyport gate status", [][2]string{{"", `clamp_min(max(sallyport_gate_open_until_timestamp_seconds) - time(), 0)`}}, true},
	}},
	{"What is denied, and why", []panel{
		{"Denials", "reqps", "The decision records have the requests.", [][2]string{{"{{policy}}/{{reason}}", `sum by (policy, reason) (rate(sallyport_decisions_total{verdict="denied"}[$__rate_interval]))`}}, false},
		{"Decisions", "reqps", "", [][2]string{{"{{verdict}}", `sum by (verdict) (rate(sallyport_decisions_total[$__rate_interval]))`}}, false},
		{"Overrides", "short", "Requests that a policy would have denied, by policy.", [][2]string{{"{{policy}}", `sum by (policy) (increase(sallyport_policy_overrides_total[$__rate_interval]))`}}, false},
		{"Requests without a decision", "reqps", "The failurePolicy decides about them.", [][2]string{{"{{cause}}", `sum by (cause) (rate(sallyport_rejected_reviews_total[$__rate_interval]))`}}, false},
	}},
	{"How slow, how stale", []panel{
		{"Slowest policies, 99th percentile", "s", "", [][2]string{{"{{policy}}", `topk(5, histogram_quantile(0.99, sum by (policy, le) (rate(sallyport_decision_duration_seconds_bucket[$__rate_interval]))))`}}, false},
		{"Denials that live facts did not confirm", "reqps", "The cache was stale.", [][2]string{{"{{policy}} {{outcome}}", `sum by (policy, outcome) (rate(sallyport_confirmations_total[$__rate_interval]))`}}, false},
		{"Caches not heard from for", "s", "Policies with freshness Cached read these.", [][2]string{{"{{kind}}", `time() - min by (kind) (sallyport_fact_cache_heard_timestamp_seconds)`}}, false},
		{"Policies not current", "short", "kubectl sallyport policies", [][2]string{{"{{policy}} {{state}}", `max by (policy, state) (sallyport_policy_info{state!="current"})`}}, false},
	}},
	{"What is stuck", []panel{
		{"Unfinished operations", "short", "", [][2]string{{"{{type}} {{phase}}", `max by (type, phase) (sallyport_operations_unfinished)`}}, false},
		{"Oldest unfinished operation", "s", "", [][2]string{{"{{type}} {{phase}}", `time() - max by (type, phase) (sallyport_operations_unfinished_since_timestamp_seconds)`}}, false},
		{"Objects that are not ready", "short", "kubectl sallyport why KIND NAME", [][2]string{{"{{kind}} {{reason}}", `max by (kind, reason) (sallyport_conditions{type="Ready",status!="True"})`}}, false},
		{"Failed calls of runtimes", "reqps", "", [][2]string{{"{{runtime}} {{verb}} {{outcome}}", `sum by (runtime, verb, outcome) (rate(sallyport_runtime_calls_total{outcome!="success"}[$__rate_interval]))`}}, false},
	}},
	{"The fleet", []panel{
		{"Operations by result", "short", "", [][2]string{{"{{type}} {{result}}", `sum by (type, result) (increase(sallyport_operations_total[$__rate_interval]))`}}, false},
		{"Machines by readiness", "short", "", [][2]string{{"{{runtime}} {{reason}}", `max by (runtime, reason) (sallyport_conditions{kind="VirtualMachine",type="Ready"})`}}, false},
		{"Members that pools lack", "short", "", [][2]string{{"{{pool_namespace}}/{{pool}}", `max by (pool_namespace, pool) (sallyport_pool_replicas{state="wanted"}) - max by (pool_namespace, pool) (sallyport_pool_replicas{state="ready"}) > 0`}}, false},
		{"Objects that violate policies", "short", "", [][2]string{{"{{policy}}", `max by (policy) (sallyport_policy_violations)`}}, false},
	}},
}

// dashboard returns the JSON of Grafana. A dashboard has 24 columns.
func dashboard() ([]byte, error) {
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	var panels []any
	y := 0
	for _, r := range rows {
		panels = append(panels, map[string]any{"type": "row", "title": r.title, "gridPos": place(0, y, 24, 1), "panels": []any{}})
		y++
		width := 24 / len(r.panels)
		for i, p := range r.panels {
			kind := "timeseries"
			if p.stat {
				kind = "stat"
			}
			var targets []any
			for n, q := range p.queries {
				targets = append(targets, map[string]any{"refId": string(rune('A' + n)), "expr": q[1], "legendFormat": q[0], "datasource": source})
			}
			panels = append(panels, map[string]any{
				"type": kind, "title": p.title, "description": p.what, "datasource": source, "gridPos": place(i*width, y, width, 7), "targets": targets,
				"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
			})
		}
		y += 7
	}
	text, err := json.MarshalIndent(map[string]any{
		"title": "Sallyport", "uid": "sallyport", "tags": []string{"sallyport"}, "schemaVersion": 39, "refresh": "30s", "editable": true,
		"time": map[string]any{"from": "now-3h", "to": "now"}, "panels": panels,
		"templating": map[string]any{"list": []any{map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"}}},
	}, "", " ")
	return append(text, '\n'), err
}

func place(x, y, w, h int) map[string]int { return map[string]int{"x": x, "y": y, "w": w, "h": h} }
