package offline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	. "sallyport.dev/sallyport/webhooks/offline"
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

// The fields of what was read have their lines wherever it was read, also in a list, and on standard input.
func TestLinesOfWhatWasRead(t *testing.T) {
	const list = "\napiVersion: v1\nkind: List\nitems:\n- apiVersion: sallyport.dev/v1alpha1\n  kind: VirtualMachine\n  metadata: {name: a}\n" +
		"- apiVersion: sallyport.dev/v1alpha1\n  kind: VirtualMachine\n  metadata: {name: b}\n  spec:\n    runPolcy: Manual\n    runtime:\n      pod: []\n"
	documents, err := (&Files{Stdin: strings.NewReader(list)}).Read(Stdin)
	if err != nil || len(documents) != 2 {
		t.Fatal(documents, err)
	}
	if line := documents[0].LineOf("metadata.name"); line != 7 {
		t.Errorf("the first name is in line %d", line)
	}
	known, err := bundled.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(known.Misshapen(&documents[1]), "\n")
	want := "<stdin>:12: unknown field \"spec.runPolcy\"\n<stdin>:14: spec.runtime.pod: Invalid value: \"array\": spec.runtime.pod in body must be of type object: \"array\""
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if line := (&Document{Object: documents[0].Object, File: "the cluster", Line: 1}).LineOf("metadata"); line != 0 {
		t.Errorf("what was not read is in line %d", line)
	}
}
