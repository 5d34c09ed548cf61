package cluster

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/pages"
	"sallyport.dev/sallyport/test/support/site"
)

// page has the table, between these marks.
const page = "../../../docs/guards.md"

var marked = regexp.MustCompile(`(?s)(<!-- the table of TestGuards -->\n).*(<!-- its end -->\n)`)

// table is what is to come of every way, in Markdown: what TestGuards tries.
func table() string {
	var b strings.Builder
	for _, part := range []struct {
		what string
		rows []row
	}{{"Scaling down", append(scalingRows(), poolRows()...)}, {"Deleting", deletionRows()}, {"Of KubeVirt", kubevirtRows()}} {
		fmt.Fprintf(&b, "| %s: way | %s | %s | %s |\n| --- | --- | --- | --- |\n", part.what, guarded.name, unguarded.name, floor.name)
		for i := range part.rows {
			r := &part.rows[i]
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.way, told(r.guarded), told(r.unguarded), told(r.floor))
		}
		b.WriteString("\n")
	}
	return b.String() + ownTable()
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
	pages.Golden(t, site.Update(), page, want)
}
