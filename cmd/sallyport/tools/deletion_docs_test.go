package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The refusals that docs/deletion-guards.md shows are those that its reader gets. -update writes them anew.
func TestDocsShowRefusedDeletions(t *testing.T) {
	const fence = "```console\n$ sallyport review "
	name := filepath.Join(repository, "docs", "deletion-guards.md")
	text := page(t, "deletion-guards.md")
	_, manifest, _ := strings.Cut(text, "```yaml\n# shop.yaml\n")
	manifest, _, _ = strings.Cut("# shop.yaml\n"+manifest, "```")
	before, rest, found := strings.Cut(text, fence)
	block, after, closed := strings.Cut(rest, "```\n")
	if !found || !closed || strings.Contains(after, fence) {
		t.Fatal("docs/deletion-guards.md does not show one review")
	}
	folder(t, map[string]string{"shop.yaml": manifest})
	arguments, want, _ := strings.Cut(block, "\n")
	out, errs, code := execute(t, append([]string{"review"}, strings.Fields(arguments)...)...)
	if code != 1 {
		t.Errorf("exit %d: %s", code, errs)
	}
	var is strings.Builder // without what is said of every kind that is not Sallyport's
	for line := range strings.Lines(out + errs) {
		if !strings.HasPrefix(strings.TrimSpace(line), "Note: no schema of ") {
			is.WriteString(line)
		}
	}
	if *update {
		if err := os.WriteFile(name, []byte(before+fence+arguments+"\n"+is.String()+"```\n"+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if is.String() != want {
		t.Errorf("%s shows\n%s\nand not\n%s", arguments, is.String(), want)
	}
	for _, reason := range []string{
		"DeletionProtected", "ProtectionRemoved", "OwnerAdded", "UnknownProtection", "NamespaceHoldsProtected", "DefinitionHasObjects",
	} {
		if !strings.Contains(text, "| `"+reason+"` | 403 |") {
			t.Errorf("docs/deletion-guards.md does not tell of the reason %s", reason)
		}
	}
}
