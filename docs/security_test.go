package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"sallyport.dev/sallyport/test/support/pages"
)

// Tests that a page names are there, in the file that it says.
func TestNamedTests(t *testing.T) {
	link := regexp.MustCompile("\\[`((?:Test|Fuzz|test_)\\w+)`\\]\\(([^)]+)\\)")
	name := regexp.MustCompile(`^(?:(?:Test|Fuzz)[A-Z]|test_)\w+$`)
	found := 0
	for _, p := range pages.All(t, root) {
		text, err := os.ReadFile(filepath.Join(root, p.Path))
		if err != nil {
			t.Fatal(err)
		}
		linked := map[string]bool{}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			test, file := match[1], filepath.Join(root, filepath.Dir(p.Path), match[2])
			linked[test] = true
			found++
			source, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Path, test, err)
				continue
			}
			if !regexp.MustCompile(`(?m)^(func )?` + test + `\b`).Match(source) {
				t.Errorf("%s: %s is not in %s", p.Path, test, match[2])
			}
		}
		for _, s := range p.Spans {
			if name.MatchString(s.Text) && p.Path == "docs/security.md" && !linked[s.Text] {
				t.Errorf("%s: it is not said where %s is", s.Where, s.Text)
			}
		}
	}
	if found == 0 {
		t.Error("no page names a test")
	}
}
