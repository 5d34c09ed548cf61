package guards

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into docs/guards.md")

// page has the table, between these marks.
const page = "../../docs/guards.md"

var marked = regexp.MustCompile(`(?s)(<!-- the table of test/guards -->\n).*(<!-- its end -->\n)`)

// table is what is to come of every way, in Markdown: what TestGuards tries.
func table() string {
	var b strings.Builder
	for _, part := range []struct {
		what string
		rows []row
	}{{"Scaling down", append(scalingRows(), poolRows()...)}, {"Deleting", deletionRows()}} {
		fmt.Fprintf(&b, "| %s: way | %s | %s | %s |\n| --- | --- | --- | --- |\n", part.what, guarded.name, unguarded.name, floor.name)
		for i := range part.rows {
			r := &part.rows[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.way, told(r.guarded), told(r.unguarded), told(r.floor))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// told is a verdict as people read it.
func told(verdict string) string {
	if policy, reason, refused := strings.Cut(verdict, "/"); refused && policy != passes {
		return "refused: `" + reason + "`"
	}
	return verdict
}

func TestTableOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !marked.Match(text) {
		t.Fatalf("%s has no place for the table", page)
	}
	want := marked.ReplaceAllString(string(text), "${1}\n"+strings.ReplaceAll(table(), "$", "$$")+"${2}")
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in %s is not what is tried: go test ./test/guards -run TestTableOfThePage -update", page)
	}
}
