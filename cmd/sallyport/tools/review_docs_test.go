package tools

import (
	"strings"
	"testing"
)

// The review that docs/review.md shows is what its reader sees.
func TestDocsShowAReview(t *testing.T) {
	text := page(t, "review.md")
	files := map[string]string{}
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		content, _, _ := strings.Cut(block, "```")
		name, _, _ := strings.Cut(content, "\n")
		files[strings.TrimPrefix(name, "# ")] = content
	}
	folder(t, files)
	shown := 0
	for _, block := range strings.Split(text, "```console\n")[1:] {
		content, _, _ := strings.Cut(block, "```")
		command, want, _ := strings.Cut(content, "\n")
		if !strings.HasPrefix(command, "$ sallyport review ") || strings.Contains(command, " --explain") {
			continue
		}
		out, errs, _ := execute(t, strings.Fields(strings.TrimPrefix(command, "$ sallyport "))...)
		if out+errs != want {
			t.Errorf("%s shows\n%s\nand not\n%s", command, out+errs, want)
		}
		shown++
	}
	if shown == 0 {
		t.Error("docs/review.md shows nothing")
	}
	for _, flag := range []string{"state", "as", "old", "subresource", "operation", "validate", "policies"} {
		if !strings.Contains(text, "--"+flag) || newReviewCommand().Flags().Lookup(flag) == nil {
			t.Errorf("docs/review.md or the command is without --%s", flag)
		}
	}
}
