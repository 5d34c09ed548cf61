//go:build !race

package images

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/pages"
	"sallyport.dev/sallyport/test/step"
)

const rulesFile, ruleTestsFile = "../../charts/sallyport/files/alerts.yaml", "../../charts/testdata/alerts_test.yaml"

// sample is the last value of a series that the manager exported, and when that was.
type sample struct {
	value float64
	at    time.Time
}

// exports waits until the manager exports a series, and notes everything that it exports of Sallyport.
func (s *site) exports(series string) {
	s.Helper()
	s.Until("the manager exports "+series, func() (string, bool) {
		text, err := s.Sallyport.Metrics(s.Context())
		s.Must(err)
		for line := range strings.Lines(text) {
			at := strings.LastIndex(line, " ")
			if value, err := strconv.ParseFloat(strings.TrimSpace(line[max(at, 0):]), 64); err == nil && strings.HasPrefix(line, "sallyport_") {
				s.samples[line[:at]] = sample{value, time.Now()}
			}
		}
		return text, strings.Contains(text, "\n"+series+" ")
	})
}

var (
	seriesPattern   = regexp.MustCompile(`(sallyport_\w+)(?:\{(.*?)\})?`)
	labelPattern    = regexp.MustCompile(`(\w+)[!=~]+"([^"]*)"`)
	templatePattern = regexp.MustCompile(`\$labels\.(\w+)`)
)

// labelsOf returns the labels of a series or of a selector.
func labelsOf(text string) map[string]string {
	labels := map[string]string{}
	for _, m := range labelPattern.FindAllStringSubmatch(text, -1) {
		labels[m[1]] = m[2]
	}
	return labels
}

// labels returns the names of the labels of each metric that was exported, and their values.
func (s *site) labels() (names map[string][]string, values map[string]bool) {
	names, values = map[string][]string{}, map[string]bool{}
	for series := range s.samples {
		m := seriesPattern.FindStringSubmatch(series)
		labels := labelsOf(m[2])
		names[m[1]] = slices.Sorted(maps.Keys(labels))
		for _, value := range labels {
			values[value] = true
		}
	}
	return names, values
}

type rule struct {
	Alert, Expr string
	Annotations map[string]string
}

// alerts compares the alerts and their tests with what the manager has exported, and tries the commands of their page.
func (s *site) alerts(step.T) {
	late := booting("late", v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: "old"}})
	s.Must(s.Create(s.Context(), late))
	s.showsMachine(late, v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageFailed)
	s.exports(`sallyport_machines_waiting_for_image_since_timestamp_seconds{reason="ImageFailed"}`)

	names, values := s.labels()
	page, err := os.ReadFile("../../docs/alerts.md")
	s.Must(err)
	var rules struct{ Groups []struct{ Rules []rule } }
	s.decode(rulesFile, &rules)
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			s.known(r, names)
		}
	}
	var tests struct {
		Tests []struct {
			Series []struct{ Series string } `json:"input_series"`
		}
	}
	s.decode(ruleTestsFile, &tests)
	for _, test := range tests.Tests {
		for _, of := range test.Series {
			m := seriesPattern.FindStringSubmatch(of.Series)
			labels := labelsOf(m[2])
			delete(labels, "pod") // of the target
			if got, exported := names[m[1]]; !exported || !slices.Equal(got, slices.Sorted(maps.Keys(labels))) {
				s.Errorf("%s: the manager exports %s with the labels %v", of.Series, m[1], got)
			}
			for _, value := range labels {
				if !values[value] && !strings.Contains(string(page), value) {
					s.Errorf("%s: the manager exports no %s, and docs/alerts.md does not have it", of.Series, value)
				}
			}
		}
	}
	for _, p := range pages.All(s.T.T, "../..") {
		if p.Path != "docs/alerts.md" {
			continue
		}
		for _, c := range p.Commands() {
			if args, is := c.Below("kubectl", "get"); is {
				s.kubectl(append([]string{"get"}, replaced(args, map[string]string{"NAME": "old", "NAMESPACE": namespace})...)...)
			}
		}
	}
	if depth.Deep() {
		s.fire()
	}
}

// replaced returns words with others in place of some.
func replaced(words []string, by map[string]string) (all []string) {
	for _, word := range words {
		if other, is := by[word]; is {
			word = other
		}
		all = append(all, word)
	}
	return all
}

func (s *site) decode(file string, into any) {
	s.Helper()
	text, err := os.ReadFile(file)
	s.Must(err)
	s.Must(yaml.Unmarshal(text, into))
}

// known checks that the metrics and labels of an alert are exported.
func (s *site) known(r rule, names map[string][]string) {
	s.Helper()
	used := seriesPattern.FindAllStringSubmatch(r.Expr, -1)
	if len(used) == 0 {
		s.Errorf("%s is about no metric: %s", r.Alert, r.Expr)
		return
	}
	for _, m := range used {
		labels, exported := names[m[1]]
		if !exported {
			s.Errorf("%s: the manager exports no %s", r.Alert, m[1])
		}
		for label := range labelsOf(m[2]) {
			if !slices.Contains(labels, label) {
				s.Errorf("%s: %s has no label %s", r.Alert, m[1], label)
			}
		}
	}
	for _, m := range templatePattern.FindAllStringSubmatch(r.Annotations["description"], -1) {
		if !slices.Contains(names[used[0][1]], m[1]) {
			s.Errorf("%s: %s has no label %s", r.Alert, used[0][1], m[1])
		}
	}
}

// fire has promtool evaluate the alerts on the series that the manager has exported, as if they stayed as they are for 91 days.
func (s *site) fire() {
	s.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		s.Log("promtool is not in PATH: the alerts are not evaluated")
		return
	}
	rules, err := filepath.Abs(rulesFile)
	s.Must(err)
	var input strings.Builder
	fmt.Fprintf(&input, "rule_files: [%s]\nevaluation_interval: 6h\ntests:\n- interval: 6h\n  input_series:\n", rules)
	for _, series := range slices.Sorted(maps.Keys(s.samples)) {
		name, of := seriesPattern.FindStringSubmatch(series)[1], s.samples[series]
		if strings.HasSuffix(name, "_since_timestamp_seconds") {
			of.value -= float64(of.at.Unix()) // the clock of the test begins at 0
		}
		if name == "sallyport_disk_images_terminating_since_timestamp_seconds" && !strings.Contains(series, `"ImageReferenced"`) {
			continue // of a deletion that a scrape happened to see
		}
		if strings.HasPrefix(name, "sallyport_disk_images") || strings.HasPrefix(name, "sallyport_machines") || strings.HasPrefix(name, "sallyport_gate") {
			fmt.Fprintf(&input, "  - {series: '%s', values: '%d+0x400'}\n", series, int64(of.value))
		}
	}
	input.WriteString("  promql_expr_test:\n  - expr: group by (alertname) (ALERTS{alertstate=\"firing\"})\n    eval_time: 91d\n    exp_samples:\n")
	for _, alert := range []string{"DiskImageDeletionWaitsForUsers", "DiskImageImportFailed", "DiskImageLost", "DiskImageNotReady", "DiskImageUnused", "MachineWaitsForImage"} {
		fmt.Fprintf(&input, "    - {labels: '{alertname=\"Sallyport%s\"}', value: 1}\n", alert)
	}
	file := filepath.Join(s.TempDir(), "alerts_test.yaml")
	s.Must(os.WriteFile(file, []byte(input.String()), 0o600))
	// #nosec G204 -- a tool that the test looks for
	if out, err := exec.CommandContext(s.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		s.Errorf("promtool: %v\n%s\n%s", err, out, input.String())
	}
}
