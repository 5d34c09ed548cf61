package charts_test

import (
	"os"
	"os/exec"
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

// Each alert has a section in docs/alerts.md, which its annotation leads to. TestImages compares the metrics and labels that alerts name with
// those that a manager exports.
func TestAlerts(t *testing.T) {
	page, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
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
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	number := 0
	for _, group := range rule.Groups {
		for _, a := range group.Rules {
			number++
			for _, part := range []string{"Meaning", "Impact", "Diagnosis", "Mitigation"} {
				if !strings.Contains(sections[a.Alert], "\n**"+part+".**") {
					t.Errorf("the section of %s in docs/alerts.md has no %s", a.Alert, part)
				}
			}
			if want := "https://example.org/alerts#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
				t.Errorf("%s leads to %s, not to %s", a.Alert, a.Annotations["runbook_url"], want)
			}
			if a.For == "" || a.Labels["severity"] == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
				t.Errorf("%s lacks something: %+v", a.Alert, a)
			}
		}
	}
	if number == 0 || number != len(sections) {
		t.Errorf("there are %d alerts and %d sections", number, len(sections))
	}
}
