package review

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLinesOfFields(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.yaml")
	text := "# first\nkind: A\nspec: {mode: x}\n---\nkind: B\nspec:\n  match:\n    resources:\n    - apiGroups: [apps]\n      operations: [CREAT]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from int
		path string
		want int
	}{
		{2, "spec.mode", 3}, {5, "spec.match.resources[0].operations[0]", 10}, {5, "spec.match.resources[0]", 9},
		{5, "spec.match.resources[3].operations", 8}, {5, "spec.onError", 6}, {5, "status", 0}, {99, "spec", 0},
	} {
		if got := LineOf(file, tc.from, tc.path); got != tc.want {
			t.Errorf("%s of the document at line %d is in line %d, want %d", tc.path, tc.from, got, tc.want)
		}
	}
	if got := LineOf(file+".not", 1, "spec"); got != 0 {
		t.Errorf("of a file that is not there it is line %d", got)
	}
}
