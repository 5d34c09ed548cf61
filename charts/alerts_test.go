package charts_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/test/depth"
)

// isOfPrometheus reports whether an object is of a kind of the Prometheus operator.
func isOfPrometheus(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "monitoring.coreos.com"
}

type alerts struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

// Prometheus' own tool finds no fault with the rules, and each alert fires when it should. Debian has it in the package prometheus.
func TestAlertsFire(t *testing.T) {
	depth.Only(t)
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not in PATH")
	}
	for _, args := range [][]string{{"check", "rules", "sallyport/files/alerts.yaml"}, {"test", "rules", "testdata/alerts_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert is about metrics that exist with the labels that it names, and has a section in docs/alerts.md, which its annotation leads to.
func TestAlerts(t *testing.T) {
	page, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../reconcilers/diskimage/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{} // labels by metric
	for _, m := range regexp.MustCompile(`NewDesc\("(\w+)",\s+".*", (nil|\[\]string\{.*?\}), nil\)`).FindAllStringSubmatch(string(source), -1) {
		described[m[1]] = m[2]
	}
	var rule alerts
	for _, o := range render(t, "metrics: {prometheusRule: {enabled: true, runbooks: 'https://example.org/alerts'}}") {
		if isOfPrometheus(o) {
			text, err := yaml.Marshal(o.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(text, &rule); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(rule.Groups) != 1 || len(rule.Groups[0].Rules) != 6 {
		t.Fatalf("the alerts are %+v", rule)
	}
	for _, a := range rule.Groups[0].Rules {
		if !strings.Contains(string(page), "\n## "+a.Alert+"\n") {
			t.Errorf("%s has no section in docs/alerts.md", a.Alert)
		}
		if want := "https://example.org/alerts#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %s, not to %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.For == "" || a.Labels["severity"] == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s lacks something: %+v", a.Alert, a)
		}
		used := regexp.MustCompile(`(sallyport_\w+)(?:\{(\w+)[!=~]+"[^"]*"\})?`).FindAllStringSubmatch(a.Expr, -1)
		if len(used) == 0 {
			t.Errorf("%s is about no metric: %s", a.Alert, a.Expr)
		}
		for _, m := range used {
			if labels, is := described[m[1]]; !is || m[2] != "" && !strings.Contains(labels, `"`+m[2]+`"`) {
				t.Errorf("%s: there is no metric %s with label %s", a.Alert, m[1], m[2])
			}
		}
		for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(a.Annotations["description"], -1) {
			if !strings.Contains(described[used[0][1]], `"`+m[1]+`"`) {
				t.Errorf("%s: %s has no label %s", a.Alert, used[0][1], m[1])
			}
		}
	}
}
