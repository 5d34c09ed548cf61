package tools

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/manager"
	"sallyport.dev/sallyport/test/support/pages"
)

// What somebody copies out of the docs is understood.
func TestDocsShowCommandsThatThereAre(t *testing.T) {
	all := pages.All(t, "../../..")
	pages.Understood(t, all, newCommand, []string{"sallyport"}, []string{"go", "run", "./cmd/sallyport"}, []string{"bin/sallyport"})
	pages.HasFlags(t, all, newCommand(),
		[]string{"docs/architecture.md", "docs/certificates.md", "docs/ci.md", "docs/claim.md", "docs/operating-policies.md", "docs/policies.md", "docs/review.md"},
		"force") // kubectl replace
}

// The flags of the manager have the defaults that the docs tell.
func TestDocsTellDefaults(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ([^|]*) \\|")
	text, err := os.ReadFile("../../../docs/certificates.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := row.FindAllStringSubmatch(string(text), -1)
	if len(rows) == 0 {
		t.Fatal("docs/certificates.md has no table of flags")
	}
	for _, match := range rows {
		flag := pages.Flag(manager.NewCommand(nil), match[1])
		if flag == nil {
			t.Errorf("the manager has no flag --%s", match[1])
		} else if told := strings.Trim(match[2], "` "); told != flag.DefValue {
			t.Errorf("--%s is %q by default; docs/certificates.md tells %q", match[1], flag.DefValue, told)
		}
	}
}
