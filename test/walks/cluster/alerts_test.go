package cluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/alerts"
)

// Alerts, the series with which promtool tests them, and the queries of the dashboard name metrics and labels as the manager and the API server export them. A metric that
// this run does not export, because nothing of its kind happened, has its name in the program.
func TestAlertsOfARun(t *testing.T) {
	stack.Up(t)
	exported := alerts.Exported{}
	manager, err := stack.Sallyport.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exported.Add(manager)
	exported.Add(must(t, "", "get", "--raw", "/metrics"))
	for _, name := range []string{
		"sallyport_build_info", "sallyport_conditions_since_timestamp_seconds", "sallyport_fact_cache_synced", "sallyport_fact_cache_heard_timestamp_seconds",
		"sallyport_certificate_trusted", "sallyport_certificate_renewal_timestamp_seconds",
		"sallyport_certificate_rotation_since_timestamp_seconds", "leader_election_master_status", "workqueue_longest_running_processor_seconds",
		"controller_runtime_reconcile_errors_total",
	} {
		if _, is := exported[name]; !is {
			t.Errorf("the manager exports no %s", name)
		}
	}
	exported.CheckLabels(t)
	program := source(t)
	for _, r := range alerts.Rules(t) {
		exported.Check(t, r, func(metric string) bool {
			return strings.HasPrefix(metric, "apiserver_") || strings.Contains(program, `"`+strings.TrimSuffix(metric, "_since_timestamp_seconds")+`"`)
		})
	}
	for _, q := range alerts.Queries(t) {
		exported.Check(t, q, func(metric string) bool {
			return metric == "ALERTS" || strings.Contains(program, `"`+strings.TrimSuffix(strings.TrimSuffix(metric, "_bucket"), "_since_timestamp_seconds")+`"`)
		})
	}
	var series struct {
		AtRest map[string]any
		Alerts map[string]map[string]any
	}
	alerts.Decode(t, "../../../charts/testdata/alerts.yaml", &series)
	series.Alerts["at rest"] = series.AtRest
	for _, of := range series.Alerts {
		for text := range of {
			exported.CheckSeries(t, text)
		}
	}
}

// source returns the code of the program.
func source(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"certs", "cmd", "reconcilers", "webhooks"} {
		err := filepath.WalkDir("../../../"+folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
