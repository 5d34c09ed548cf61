//go:build !race

package pods

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/alerts"
	"sallyport.dev/sallyport/test/support/pages"
	"sallyport.dev/sallyport/test/support/step"
)

const ruleTestsFile = "../../../charts/testdata/alerts_test.yaml"

// sample is the last value of a series that the manager exported, and when that was.
type sample struct {
	value float64
	at    time.Time
}

// exports waits until the manager exports a series, and notes everything that it exports of Sallyport.
func (s *imageSite) exports(series string) {
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

// alerts compares the alerts and their tests with what the manager has exported, and tries the commands of their page.
func (s *imageSite) alerts(step.T) {
	late := booting("late", v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: "old"}})
	s.Must(s.Create(s.Context(), late))
	s.showsMachine(late, v1alpha1.VirtualMachineWaitingForImage, v1alpha1.ReasonImageFailed)
	s.exports(`sallyport_machines_waiting_for_image_since_timestamp_seconds{reason="ImageFailed"}`)

	names, values := alerts.Exported{}, map[string]bool{}
	for series := range s.samples {
		names.Add(series)
		for _, of := range alerts.In(series) {
			for _, value := range of.Labels {
				values[value] = true
			}
		}
	}
	page, err := os.ReadFile("../../../docs/alerts.md")
	s.Must(err)
	for _, r := range alerts.Rules(s.T.T) {
		if r.Group == "sallyport-disk-images" || r.Group == "sallyport-gate" {
			names.Check(s.T.T, r, func(string) bool { return false })
		}
	}
	var tests struct {
		Tests []struct {
			Series []struct{ Series string } `json:"input_series"`
		}
	}
	alerts.Decode(s.T.T, ruleTestsFile, &tests)
	for _, test := range tests.Tests {
		for _, of := range test.Series {
			names.CheckSeries(s.T.T, of.Series)
			for _, one := range alerts.In(of.Series) {
				for label, value := range one.Labels {
					if label != "pod" && !values[value] && !strings.Contains(string(page), value) {
						s.Errorf("%s: the manager exports no %s, and docs/alerts.md does not have it", of.Series, value)
					}
				}
			}
		}
	}
	for _, p := range pages.All(s.T.T, "../../..") {
		if p.Path != "docs/alerts.md" {
			continue
		}
		for _, c := range p.Commands() {
			if args, is := c.Below("kubectl", "get"); is {
				s.kubectl(append([]string{"get"}, replaced(args, map[string]string{"NAME": "old", "NAMESPACE": namespace})...)...)
			}
		}
	}
	if !testing.Short() {
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

// fire has promtool evaluate the alerts on the series that the manager has exported, as if they stayed as they are for 91 days.
func (s *imageSite) fire() {
	s.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		s.Log("promtool is not in PATH: the alerts are not evaluated")
		return
	}
	rules, err := filepath.Abs(alerts.RulesFile)
	s.Must(err)
	var input strings.Builder
	fmt.Fprintf(&input, "rule_files: [%s]\nevaluation_interval: 6h\ntests:\n- interval: 6h\n  input_series:\n", rules)
	for _, series := range slices.Sorted(maps.Keys(s.samples)) {
		name, of := alerts.In(series)[0].Metric, s.samples[series]
		if strings.HasSuffix(name, "_since_timestamp_seconds") {
			of.value -= float64(of.at.Unix()) // the clock of the test begins at 0
		}
		if name == "sallyport_disk_images_terminating_since_timestamp_seconds" && !strings.Contains(series, `"ImageReferenced"`) {
			continue // of a deletion that a scrape happened to see
		}
		if strings.HasPrefix(name, "sallyport_disk_images") || strings.HasPrefix(name, "sallyport_machines") || strings.HasPrefix(name, "sallyport_gate") || name == "sallyport_build_info" {
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
