package main

import (
	"cmp"
	"encoding/json"
)

// The looks of panels.
const (
	number  = "stat"       // the value now
	lines   = "timeseries" // levels
	bars    = "bars"       // events and numbers of objects, stacked
	ranking = "bargauge"   // values over the time range of the dashboard
)

// panel is a picture of the dashboard.
type panel struct {
	look, title, unit string
	// what says what it shows, and what to do about it.
	what string
	// legend names the series of the query expr.
	legend, expr string
	// none is shown if there is no series; default "none".
	none string
	// limits are colours, the first for values below all others. Lines have a line at the last limit.
	limits []limit
}

type limit struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// good and bad are the limits of values that should be high, and low.
func good(from float64) []limit { return []limit{{"red", nil}, {"green", &from}} }
func bad(from float64) []limit  { return []limit{{"green", nil}, {"red", &from}} }

// alarm has bars in shades of red.
var alarm = []limit{{"red", nil}}

type row struct {
	title  string
	height int
	panels []panel
}

// rows are the questions of an operator during an incident, most urgent first. All replicas serve webhooks, so that their counters are added;
// only the leader has gauges of objects, which max takes from a former one, too, until that is scraped again.
var rows = []row{
	{"Does it run", 4, []panel{
		{number, "Replicas", "short", "Replicas that Prometheus scrapes, by version. kubectl get pods -n sallyport-system", "{{version}}", `count by (version) (sallyport_build_info)`, "0", good(1)},
		{number, "Leader", "short", "Reconcilers run only in the leader. kubectl get leases -n sallyport-system", "", `sum(leader_election_master_status{name="sallyport-manager"})`, "0", good(1)},
		{number, "Certificate expires in", "s", "The serving certificate or its authority. It is renewed after five sixths of its validity.", "", `min(sallyport_certificate_expiry_timestamp_seconds) - time()`, "unknown", good(7 * 24 * 3600)},
		{number, "Gate closes in", "s", "While the gate is open, all requests about kinds of others are admitted. kubectl sallyport gate status", "", `max(sallyport_gate_open_until_timestamp_seconds) - time() > 0`, "closed", bad(1)},
	}},
	{"What is wrong", 9, []panel{
		{bars, "Firing alerts", "short", "Only if this Prometheus has the alerts of Sallyport. The page at their runbook_url says what to do.", "{{alertname}}", `count by (alertname) (ALERTS{alertname=~"Sallyport.+",alertstate="firing"})`, "", alarm},
		{bars, "Objects that are not ready", "short", "kubectl sallyport why KIND NAME -n NAMESPACE", "{{kind}} {{reason}}", `sum by (kind, reason) (max by (kind, runtime, status, reason) (sallyport_conditions{type="Ready",status!="True"}))`, "", nil},
	}},
	{"What is denied, and why", 9, []panel{
		{bars, "Denials per minute", "short", "By policy and reason, also those of policies that could not decide. The first for a reason since a replica started is not counted. kubectl get events.events.k8s.io -A --field-selector type=Warning", "{{policy}} {{reason}}", `60 * sum by (policy, reason) (rate(sallyport_decisions_total{verdict=~"denied|error_denied"}[$__rate_interval])) > 0`, "", nil},
		{bars, "Requests without a decision, per minute", "short", "Answered with an error: the failurePolicy of the webhook decides. The first for a cause since a replica started is not counted. The log has each.", "{{cause}}", `60 * sum by (cause) (rate(sallyport_rejected_reviews_total[$__rate_interval])) > 0`, "", nil},
	}},
	{"How slow", 8, []panel{
		{lines, "Decisions of policies", "reqps", "Each policy that a request meets decides once.", "{{verdict}}", `sum by (verdict) (rate(sallyport_decisions_total[$__rate_interval]))`, "", nil},
		{lines, "Duration of decisions, 99th percentile", "s", "With the facts that the policy reads. The API server waits for webhook.timeoutSeconds.", "{{webhook}}", `histogram_quantile(0.99, sum by (webhook, le) (rate(sallyport_decision_duration_seconds_bucket[$__rate_interval])))`, "", nil},
		{ranking, "Slowest policies, 99th percentile", "s", "Within the time range of the dashboard.", "{{policy}}", `topk(8, histogram_quantile(0.99, sum by (policy, le) (rate(sallyport_decision_duration_seconds_bucket[$__range]))) > 0)`, "", bad(1)},
	}},
	{"How stale", 8, []panel{
		{bars, "Denials that live facts did not confirm, per minute", "short", "Caches were stale.", "{{policy}} {{outcome}}", `60 * sum by (policy, outcome) (rate(sallyport_confirmations_total{outcome!="confirmed"}[$__rate_interval])) > 0`, "", nil},
		{lines, "Caches not heard from for", "suffix:min", "The API server sends news every few minutes. Policies with freshness Cached read these.", "{{kind}}", `(time() - min by (kind) (sallyport_fact_cache_heard_timestamp_seconds)) / 60`, "", bad(15)},
		{bars, "Replicas without the current policy", "short", "kubectl sallyport policies", "{{policy}} {{state}}", `count by (policy, state) (sallyport_policy_info{state!~"current|library"})`, "", nil},
	}},
	{"What is stuck", 8, []panel{
		{bars, "Unfinished operations", "short", "kubectl get svmop -A", "{{type}} {{phase}}", `max by (type, phase) (sallyport_operations_unfinished)`, "", nil},
		{lines, "Oldest unfinished operation", "suffix:min", "kubectl get svmop -A --sort-by .metadata.creationTimestamp", "{{type}} {{phase}}", `(time() - max by (type, phase) (sallyport_operations_unfinished_since_timestamp_seconds)) / 60`, "", bad(180)},
		{bars, "Members that pools lack", "short", "kubectl sallyport why svmpool NAME -n NAMESPACE", "{{pool_namespace}}/{{pool}}", `max by (pool_namespace, pool) (sallyport_pool_replicas{state="wanted"}) - sum by (pool_namespace, pool) (max by (pool_namespace, pool, state) (sallyport_pool_replicas{state=~"ready|stopped"})) > 0`, "", nil},
	}},
	{"What the runtimes do", 8, []panel{
		{bars, "Operations per minute", "short", "Finished operations, by result.", "{{type}} {{result}}", `60 * sum by (type, result) (rate(sallyport_operations_total[$__rate_interval])) > 0`, "", nil},
		{bars, "Failed calls of runtimes, per minute", "short", "kubectl get svsrv. The log of the leader has the errors.", "{{runtime}} {{verb}} {{outcome}}", `60 * sum by (runtime, verb, outcome) (rate(sallyport_runtime_calls_total{outcome!="success"}[$__rate_interval])) > 0`, "", nil},
		{lines, "Duration of calls of runtimes, 99th percentile", "s", "How fast vCenters and the API server answer.", "{{runtime}} {{verb}}", `histogram_quantile(0.99, sum by (runtime, verb, le) (rate(sallyport_runtime_call_duration_seconds_bucket[$__rate_interval])))`, "", nil},
	}},
	{"The fleet", 8, []panel{
		{bars, "Machines by readiness", "short", "kubectl get svm -A -o wide", "{{runtime}} {{reason}}", `sum by (runtime, reason) (max by (runtime, status, reason) (sallyport_conditions{kind="VirtualMachine",type="Ready"}))`, "", nil},
		{lines, "Objects that violate policies", "short", "Existing objects that a policy would deny. kubectl sallyport audit", "{{policy}}", `max by (policy) (sallyport_policy_violations) > 0`, "", nil},
		{lines, "Overrides since the replicas started", "short", "Requests that a policy would have denied, and that an override admitted.", "{{policy}}", `sum by (policy) (sallyport_policy_overrides_total)`, "", nil},
	}},
}

// dashboard returns the JSON of Grafana. A dashboard has 24 columns.
func dashboard() ([]byte, error) {
	var panels []any
	y := 0
	for _, r := range rows {
		panels = append(panels, map[string]any{"type": "row", "title": r.title, "gridPos": place(0, y, 24, 1), "panels": []any{}})
		y++
		width := 24 / len(r.panels)
		for i, p := range r.panels {
			panels = append(panels, p.at(place(i*width, y, width, r.height)))
		}
		y += r.height
	}
	text, err := json.MarshalIndent(map[string]any{
		"title": "Sallyport", "uid": "sallyport", "tags": []string{"sallyport"}, "schemaVersion": 39, "refresh": "30s", "editable": true,
		"graphTooltip": 1, "time": map[string]any{"from": "now-3h", "to": "now"}, "panels": panels,
		"templating": map[string]any{"list": []any{map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"}}},
	}, "", " ")
	return append(text, '\n'), err
}

func place(x, y, w, h int) map[string]int { return map[string]int{"x": x, "y": y, "w": w, "h": h} }

// at returns the JSON of a panel. Grafana replaces what is left out by defaults, such as a red value from 80 on.
func (p panel) at(place map[string]int) map[string]any {
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	target := map[string]any{"refId": "A", "expr": p.expr, "legendFormat": p.legend, "datasource": source}
	defaults := map[string]any{"unit": p.unit, "min": 0, "noValue": cmp.Or(p.none, "none")}
	kind, options := p.look, map[string]any{}
	if p.limits != nil {
		defaults["thresholds"] = map[string]any{"mode": "absolute", "steps": p.limits}
	}
	switch p.look {
	case number, ranking:
		target["instant"], target["range"] = true, false // an old value is no value
		options["reduceOptions"] = map[string]any{"calcs": []string{"lastNotNull"}}
		defaults["color"] = map[string]any{"mode": "thresholds"}
		if p.look == number {
			options["colorMode"], options["graphMode"] = "background", "none"
		} else {
			options["orientation"], options["displayMode"] = "horizontal", "basic"
		}
	case bars:
		kind = lines
		if p.limits != nil {
			defaults["color"] = map[string]any{"mode": "shades", "fixedColor": p.limits[0].Color}
		}
		defaults["custom"] = map[string]any{"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "stacking": map[string]any{"mode": "normal", "group": "A"}}
	case lines:
		custom := map[string]any{"lineWidth": 2, "fillOpacity": 5}
		if p.limits != nil {
			custom["thresholdsStyle"], custom["axisSoftMax"] = map[string]any{"mode": "dashed"}, p.limits[len(p.limits)-1].Value
		}
		defaults["custom"] = custom
	}
	if kind == lines {
		options["tooltip"] = map[string]any{"mode": "multi", "sort": "desc"}
		options["legend"] = map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true}
	}
	return map[string]any{
		"type": kind, "title": p.title, "description": p.what, "datasource": source, "gridPos": place, "targets": []any{target},
		"options": options, "fieldConfig": map[string]any{"defaults": defaults, "overrides": []any{}},
	}
}
