package denial

import (
	"os"
	"strings"
	"testing"
)

// The page about review has the files of the demo.
func TestDocsShowTheFiles(t *testing.T) {
	page, err := os.ReadFile("../../../docs/review.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"state.yaml": state, "start.yaml": start} {
		if !strings.Contains(string(page), "# "+name+"\n"+text) {
			t.Errorf("docs/review.md does not contain %s of the demo:\n%s", name, text)
		}
	}
}
