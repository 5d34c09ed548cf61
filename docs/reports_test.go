package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that a page on public issues names exist.
func TestNamedTestsExist(t *testing.T) {
	page, err := os.ReadFile("images-reports.md")
	if err != nil {
		t.Fatal(err)
	}
	code := ""
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_test.rego")) {
			var text []byte
			text, err = os.ReadFile(path)
			code += string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|test_|/)\\w[^`]*)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Errorf("the page names %d tests", len(named))
	}
	for _, name := range named {
		test, part, _ := strings.Cut(name[1], "/")
		part = part[strings.LastIndex(part, "/")+1:]
		if test != "" && !regexp.MustCompile(`(?m)^(func )?`+regexp.QuoteMeta(test)+`\b`).MatchString(code) {
			t.Errorf("there is no %s", test)
		}
		if part != "" && !strings.Contains(code, `name: "`+part+`"`) && !strings.Contains(code, `t.Run("`+part+`"`) {
			t.Errorf("%s has no part %s", name[1], part)
		}
	}
}
