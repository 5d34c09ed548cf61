// Package alerts compares the chart's alerts with the metrics that a run exported.
package alerts

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// RulesFile has the alerts. Paths are those of a package two folders below the root.
const RulesFile = "../../../charts/sallyport/files/alerts.yaml"

// Rule is an alert, and the name of its group. Only queries of the dashboard have a legend.
type Rule struct {
	Group, Alert, Expr string
	Legend             string
	Annotations        map[string]string
}

// Rules returns the alerts.
func Rules(t *testing.T) (all []Rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []Rule
		}
	}
	Decode(t, RulesFile, &file)
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			r.Group = group.Name
			all = append(all, r)
		}
	}
	return all
}

// Queries returns the queries of the dashboard, each under the title of its panel.
func Queries(t *testing.T) (all []Rule) {
	t.Helper()
	var file struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	Decode(t, "../../../charts/sallyport/files/dashboard.json", &file)
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			all = append(all, Rule{Group: "dashboard", Alert: p.Title, Expr: target.Expr, Legend: target.LegendFormat})
		}
	}
	return all
}

// Decode reads a file of YAML or JSON.
func Decode(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var (
	seriesPattern   = regexp.MustCompile(`\b(ALERTS|(?:sallyport|apiserver|leader_election|controller_runtime|workqueue)_\w+)(?:\{(.*?)\})?`)
	labelPattern    = regexp.MustCompile(`(\w+)[!=~]+"([^"]*)"`)
	templatePattern = regexp.MustCompile(`\$labels\.(\w+)`)
)

// Series is a series or a selector: a metric, and the values of labels.
type Series struct {
	Metric string
	Labels map[string]string
}

// In returns the series in a text.
func In(text string) (all []Series) {
	for _, m := range seriesPattern.FindAllStringSubmatch(text, -1) {
		labels := map[string]string{}
		for _, l := range labelPattern.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		all = append(all, Series{m[1], labels})
	}
	return all
}

// Exported are the names of the labels of each metric that was exported.
type Exported map[string][]string

// Add adds the metrics of a scrape, or one line of it.
func (e Exported) Add(scrape string) {
	for line := range strings.Lines(scrape) {
		if found := In(line); !strings.HasPrefix(line, "#") && len(found) > 0 {
			e[found[0].Metric] = slices.Sorted(maps.Keys(found[0].Labels))
		}
	}
}

// ofTarget are the labels that Prometheus gives to what it scrapes for a ServiceMonitor. It renames a label of a metric that has one of these
// names, to exported_namespace for example, so that rules would select and aggregate by the wrong one.
var ofTarget = []string{"container", "endpoint", "instance", "job", "namespace", "node", "pod", "service"}

// CheckLabels checks that no metric of Sallyport has a label that Prometheus would rename.
func (e Exported) CheckLabels(t *testing.T) {
	t.Helper()
	for metric, labels := range e {
		for _, label := range labels {
			if strings.HasPrefix(metric, "sallyport_") && slices.Contains(ofTarget, label) {
				t.Errorf("Prometheus renames the label %s of %s", label, metric)
			}
		}
	}
}

// Check checks that a rule is about metrics, which have the labels that it selects and describes. It leaves out metrics that unseen excuses.
func (e Exported) Check(t *testing.T, r Rule, unseen func(metric string) bool) {
	t.Helper()
	used := In(r.Expr)
	if len(used) == 0 {
		t.Errorf("%s is about no metric: %s", r.Alert, r.Expr)
		return
	}
	for _, s := range used {
		labels, exported := e[s.Metric]
		if !exported {
			if !unseen(s.Metric) {
				t.Errorf("%s: %s is not exported", r.Alert, s.Metric)
			}
			continue
		}
		for label := range s.Labels {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: %s has no label %s", r.Alert, s.Metric, label)
			}
		}
	}
	for _, m := range templatePattern.FindAllStringSubmatch(r.Annotations["description"], -1) {
		if labels, exported := e[used[0].Metric]; exported && !slices.Contains(labels, m[1]) {
			t.Errorf("%s: %s has no label %s", r.Alert, used[0].Metric, m[1])
		}
	}
}

// CheckSeries checks that a series of a test has the labels of its metric, if that was exported.
func (e Exported) CheckSeries(t *testing.T, text string) {
	t.Helper()
	for _, s := range In(text) {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Labels)), func(name string) bool { return slices.Contains(ofTarget, name) })
		if got, exported := e[s.Metric]; exported && !slices.Equal(got, names) {
			t.Errorf("%s: the labels of %s are %v", text, s.Metric, got)
		}
	}
}
