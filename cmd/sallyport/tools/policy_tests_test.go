package tools

import (
	"encoding/xml"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/pages"
)

// A suite for each policy, a case for each test and for what is not tested, each with its place.
func TestPolicyTestJUnit(t *testing.T) {
	golden, err := filepath.Abs("testdata/policy/golden.xml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"owner", "broken"} {
		if out, errs, code := execute(t, "policy", "new", name); code != 0 {
			t.Fatal(out, errs)
		}
	}
	edit(t, "policies/broken/broken.rego", "} if {", "} if {{")
	edit(t, "policies/owner/owner.rego", "not _metadata.deletionTimestamp", "not _never")
	edit(t, "policies/owner/owner.rego", "_owned if", "_never if {\n\t_metadata.never\n}\n\n_owned if")
	edit(t, "policies/owner/owner_test.rego", "\t_reasons == set()", "\tprint(note)\n\t_reasons == set()")
	out, errs, code := execute(t, "policy", "test", "policies", "--coverage", "100", "-o", "junit")
	if code != 1 || errs != "policy tests failed: broken, owner\n" {
		t.Errorf("exit %d: %s", code, errs)
	}
	out = regexp.MustCompile(`time="[0-9.]+"`).ReplaceAllString(out, `time="T"`)
	pages.Golden(t, *update, golden, out)
}

// What is told to people and to machines is the same.
func TestPolicyTestOfTheShippedPolicies(t *testing.T) {
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
	}
	out, errs, code := execute(t, "policy", "test", "--run", "test_facts", "-o", "junit")
	if err := xml.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Failures != 0 {
		t.Fatalf("exit %d, %v, %+v\n%s", code, err, report, errs)
	}
	text, errs, code := execute(t, "policy", "test", "--run", "test_facts", "-v")
	if code != 0 || strings.Count(text, "\n      passed  ") != report.Tests || report.Tests == 0 {
		t.Errorf("exit %d, %+v\n%s%s", code, report, text, errs)
	}
}

func TestPolicyTestOfSome(t *testing.T) {
	dir := shippedCopy(t)
	edit(t, filepath.Join(dir, "operations/supersede/supersede.rego"), `"code": 409`, `"code": 403`)
	for name, tc := range map[string]struct {
		args string
		code int
		out  string
		errs string
	}{
		"one":          {"--run test_facts_are_undefined -v", 0, "ok    operations-supersede  1 test\n      passed  sallyport.operations.supersede_test.test_facts_are_undefined_without_a_name\n1 passed, 0 failed\n", ""},
		"of a package": {`--run ^sallyport\.lib\.`, 0, "ok    lib-operations  10 tests\n10 passed, 0 failed\n", ""},
		"none":         {"--run test_bogus", 2, "0 passed, 0 failed\n", `Error: --run: no test name matches "test_bogus"` + "\n"},
		"no pattern":   {"--run (", 2, "", "Error: --run: error parsing regexp: "},
		"and coverage": {"--run test --coverage 100", 2, "", "Error: cannot set --coverage and --run at the same time"},
		"a format":     {"-o xml", 2, "", `Error: invalid argument "xml" for "-o, --output" flag: must be text or junit`},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := execute(t, append([]string{"policy", "test", dir}, strings.Fields(tc.args)...)...)
			if code != tc.code || out != tc.out || !strings.HasPrefix(errs, tc.errs) {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		})
	}
}
