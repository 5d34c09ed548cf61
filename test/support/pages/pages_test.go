package pages_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/test/support/pages"
)

const text = "# One `page`: [with](a.md) all\n" +
	"See [there](b.md#two) and `[not](c.md)`.\n" +
	"\n" +
	"    make test   # everything\n" +
	"    make lint && make build\n" +
	"\n" +
	"## Two\n" +
	"```console\n" +
	"$ cp -r policies /tmp/mine && kubectl annotate svm web-1 a=$(kubectl get svm web-1 -o name) \"b c\" > x\n" +
	"output\n" +
	"```\n" +
	"## Two\n" +
	"- an item\n" +
	"    of two lines\n" +
	"```yaml\n" +
	"a: b\n" +
	"```\n" +
	"| `reset NAME... \\| --all` | x |\n"

func TestParse(t *testing.T) {
	p := pages.Parse("a.md", text)
	if diff := cmp.Diff([]pages.Span{{"a.md:1", "a.md"}, {"a.md:2", "b.md#two"}}, p.Links); diff != "" {
		t.Errorf("links: %s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"one-page-with-all": true, "two": true, "two-1": true}, p.Anchors); diff != "" {
		t.Errorf("anchors: %s", diff)
	}
	var blocks []string
	for _, b := range p.Blocks {
		blocks = append(blocks, b.Where+" "+b.Language)
	}
	if diff := cmp.Diff([]string{"a.md:4 ", "a.md:9 console", "a.md:16 yaml"}, blocks); diff != "" {
		t.Errorf("blocks: %s", diff)
	}
	if diff := cmp.Diff([]pages.Command{
		{Where: "a.md:4", Words: []string{"make", "test"}},
		{Where: "a.md:5", Words: []string{"make", "lint"}},
		{Where: "a.md:5", Words: []string{"make", "build"}},
		{Where: "a.md:9", Words: []string{"cp", "-r", "policies", "/tmp/mine"}},
		{Where: "a.md:9", Words: []string{"kubectl", "annotate", "svm", "web-1", "a=$(kubectl get svm web-1 -o name)", "b c"}},
		{Where: "a.md:9", Words: []string{"x"}},
		{Where: "a.md:1", Words: []string{"page"}, Mentioned: true},
		{Where: "a.md:2", Words: []string{"[not](c.md)"}, Mentioned: true},
		{Where: "a.md:18", Words: []string{"reset", "NAME..."}, Mentioned: true},
		{Where: "a.md:18", Words: []string{"--all"}, Mentioned: true},
	}, p.Commands()); diff != "" {
		t.Errorf("commands: %s", diff)
	}
}
