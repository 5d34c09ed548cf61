package junit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const written = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="all" tests="4" failures="1" errors="1" time="1.750">
  <testsuite name="a" tests="3" failures="1" errors="1" time="1.500">
    <properties>
      <property name="coverage" value="99.5"></property>
    </properties>
    <testcase name="good" classname="p" file="dir/a.rego" line="7" time="1.500">
      <system-out>said</system-out>
    </testcase>
    <testcase name="bad" classname="p" file="a.yaml" line="12" time="0.000">
      <failure type="T" message="x &lt; &#34;y&#34;">a.yaml:12: x &lt; �</failure>
    </testcase>
    <testcase name="unknown" classname="" file="a.yaml" time="0.000">
      <error message="m"></error>
    </testcase>
  </testsuite>
  <testsuite name="b" tests="1" failures="0" errors="0" time="0.250">
    <testcase name="good" classname="" time="0.250"></testcase>
    <system-err>a note</system-err>
  </testsuite>
</testsuites>
`

func TestWrite(t *testing.T) {
	var out strings.Builder
	err := Write(&out, "all",
		Suite{Name: "a", Properties: &[]Property{{"coverage", "99.5"}}, Cases: []Case{
			{Name: "good", Class: "p", Place: "dir/a.rego:7:3", Took: 1500 * time.Millisecond, Output: "said"},
			{Name: "bad", Class: "p", Place: "a.yaml:12: p/a.rego:3:1: x", Failure: &Problem{Type: "T", Message: `x < "y"`, Text: "a.yaml:12: x < \x00"}},
			{Name: "unknown", Place: "a.yaml", Error: &Problem{Message: "m"}},
		}},
		Suite{Name: "b", Cases: []Case{{Name: "good", Took: 250 * time.Millisecond}}, Notes: "a note"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
