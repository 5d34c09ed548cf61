package pages

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden reports the difference between a file and the text that it has to have. With update, it writes the file first.
func Golden(t *testing.T, update bool, file, text string) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(was), text); diff != "" {
		t.Errorf("%s is not current (-was +is); to write it: go test -run '^%s$' -update\n%s", file, t.Name(), diff)
	}
}
