package charts_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// isOfPrometheus reports whether an object is of a kind of the Prometheus operator.
func isOfPrometheus(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "monitoring.coreos.com"
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// promtool runs Prometheus' own tool. Debian has it in the package prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not in PATH: the alerts are not evaluated")
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Prometheus finds no fault with the rules. They fire after their time, and say what they should.
func TestAlertsAreTold(t *testing.T) {
	promtool(t, "check", "rules", "sallyport/files/alerts.yaml")
	promtool(t, "test", "rules", "testdata/alerts_test.yaml")
}

// promTest is a test of promtool: the alerts that fire after five hours.
type promTest struct {
	Name     string       `json:"name"`
	Interval string       `json:"interval"`
	Series   []promSeries `json:"input_series"`
	Exprs    []promExpr   `json:"promql_expr_test"`
}

type promSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type promExpr struct {
	Expr    string       `json:"expr"`
	At      string       `json:"eval_time"`
	Samples []promSample `json:"exp_samples"`
}

type promSample struct {
	Labels string `json:"labels"`
	Value  int    `json:"value"`
}

// newPromTest returns the test in which the named alerts fire, and no other, by the series.
func newPromTest(names string, series map[string]string) promTest {
	test := promTest{Name: names, Interval: "1m"}
	for _, of := range slices.Sorted(maps.Keys(series)) {
		if values := series[of]; values != "" {
			values = strings.NewReplacer("now", "0+60", "old", "-10000000", "ahead", "100000000").Replace(values)
			test.Series = append(test.Series, promSeries{of, values + "x300"})
		}
	}
	expr := promExpr{Expr: `group by (alertname) (ALERTS{alertstate="firing"})`, At: "5h"}
	for _, name := range strings.Fields(names) {
		expr.Samples = append(expr.Samples, promSample{`{alertname="` + name + `"}`, 1})
	}
	test.Exprs = []promExpr{expr}
	return test
}

// Each alert fires when something is as it is about, and no other one does. At rest, none fires.
func TestAlertsFire(t *testing.T) {
	text, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var series struct {
		AtRest map[string]string
		Alerts map[string]map[string]string
	}
	if err := yaml.Unmarshal(text, &series); err != nil {
		t.Fatal(err)
	}
	tests, firing := []promTest{newPromTest("", series.AtRest)}, map[string]bool{}
	for names, instead := range series.Alerts {
		of := maps.Clone(series.AtRest)
		maps.Copy(of, instead)
		tests = append(tests, newPromTest(names, of))
		for _, name := range strings.Fields(names) {
			firing[name] = true
		}
	}
	for _, a := range alertsOf(t, "metrics: {prometheusRule: {enabled: true}}") {
		if !firing[a.Alert] {
			t.Errorf("testdata/alerts.yaml has no series for which %s fires", a.Alert)
		}
	}
	rules, err := filepath.Abs("sallyport/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "5m", "tests": tests}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "alerts_test.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// alertsOf returns the alerts that the chart renders.
func alertsOf(t *testing.T, values string) (all []alert) {
	t.Helper()
	for _, o := range render(t, values) {
		if !isOfPrometheus(o) {
			continue
		}
		text, err := yaml.Marshal(o.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		var spec struct{ Groups []struct{ Rules []alert } }
		if err := yaml.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		for _, group := range spec.Groups {
			all = append(all, group.Rules...)
		}
	}
	return all
}

// A value replaces the threshold of an alert. One for an alert that has none is an error.
func TestThresholds(t *testing.T) {
	expr := func(values string) (expr string) {
		for _, a := range alertsOf(t, "metrics: {prometheusRule: {enabled: true, thresholds: {"+values+"}}}") {
			if a.Alert == "SallyportOperationUnfinished" {
				expr = a.Expr
			}
		}
		return expr
	}
	before, of, found := strings.Cut(expr(""), " > ")
	if got := expr("SallyportOperationUnfinished: 7200, SallyportAuditStale: 1.5e4"); !found || of == "7200" || got != before+" > 7200" {
		t.Errorf("got %s in place of %s > %s", got, before, of)
	}
	for _, name := range []string{"SallyportGateOpen", "SallyportGateOpn"} {
		_, err := template(t, release, chart(t), "metrics: {prometheusRule: {enabled: true, thresholds: {"+name+": 1}}}")
		if err == nil || !strings.Contains(err.Error(), "thresholds."+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var aggregated = regexp.MustCompile(`\b(max|min|sum|count|absent)( by \([a-z_, ]+\) )?\(`)

// Each alert has a section in docs/alerts.md, which its annotation leads to. TestAlertsOfARun and TestImages compare the metrics
// and labels that alerts name with those that a manager exports.
func TestAlerts(t *testing.T) {
	page, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		if name, text, _ := strings.Cut(section, "\n"); strings.HasPrefix(name, "Sallyport") {
			sections[name] = text
		}
	}
	all := alertsOf(t, "metrics: {prometheusRule: {enabled: true}}")
	for i, a := range alertsOf(t, "metrics: {prometheusRule: {enabled: true, runbooks: 'https://example.org/alerts'}}") {
		for _, part := range []string{"Meaning", "Impact", "Diagnosis", "Mitigation"} {
			if !strings.Contains(sections[a.Alert], "\n**"+part+".**") {
				t.Errorf("the section of %s in docs/alerts.md has no %s", a.Alert, part)
			}
		}
		anchor := "#" + strings.ToLower(a.Alert)
		if got := all[i].Annotations["runbook_url"]; got != "https://sallyport.dev/docs/alerts.md"+anchor {
			t.Errorf("%s leads to %s", a.Alert, got)
		}
		if got := a.Annotations["runbook_url"]; got != "https://example.org/alerts"+anchor {
			t.Errorf("%s leads to %s, with another page", a.Alert, got)
		}
		if a.For == "" || !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) || a.Annotations["description"] == "" {
			t.Errorf("%s lacks something: %+v", a.Alert, a)
		}
		// Another leader would otherwise be another alert.
		if !aggregated.MatchString(a.Expr) || strings.Contains(a.Expr, "by (instance") || strings.Contains(a.Expr, "by (pod)") {
			t.Errorf("%s has the labels of a replica: %s", a.Alert, a.Expr)
		}
		if summary := a.Annotations["summary"]; summary == "" || strings.Contains(summary, "{{") {
			t.Errorf("%s: the summary %q is empty or has variables", a.Alert, summary)
		}
	}
	if len(all) == 0 || len(all) != len(sections) {
		t.Errorf("there are %d alerts and %d sections", len(all), len(sections))
	}
}
