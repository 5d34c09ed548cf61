package offline_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	. "sallyport.dev/sallyport/webhooks/offline"
)

// Every object is told where it begins, also one of a list.
func TestPlacesOfObjects(t *testing.T) {
	const list = `# what there is
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a}

- kind: PodList
  apiVersion: v1
  items:
  - metadata: {name: b}
---

apiVersion: v1
kind: ConfigMap
items: none
---
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Pod"}
]}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
- 7
`
	documents, err := (&Files{Stdin: strings.NewReader(list)}).Read(Stdin)
	var got []string
	for _, d := range documents {
		got = append(got, fmt.Sprintf("%s %v", d.Place(), d.Object["kind"]))
	}
	const want = "<stdin>:5 Pod, <stdin>:9 Pod, <stdin>:15 ConfigMap, <stdin>:19 Pod, <stdin>:26 Secret"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, ", "), want)
	}
	if err == nil || err.Error() != "<stdin>:28: items[1] is not an object" {
		t.Errorf("got %v", err)
	}
}

// What the schema has against an object is told without any policy.
func TestCheckNew(t *testing.T) {
	known, err := bundled.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		strings.Replace(machine("web-1", ""), "name: web-1", "name: web-1, namespace: a", 1):                                                     "",
		strings.Replace(machine("web-1", ""), "name: web-1", "name: Web_1", 1):                                                                   "metadata.name: Invalid value",
		"apiVersion: sallyport.dev/v1alpha1\nkind: VirtualMachineOperation\nmetadata: {name: a}\nspec: {type: Explode, virtualMachineName: a}\n": "spec.type: Unsupported value",
		"apiVersion: sallyport.dev/v1alpha1\nkind: Nothing\n":                                                                                    "unknown kind Nothing",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n":                                                                                       "no schema of Pod is available",
	} {
		documents, err := (&Files{Stdin: strings.NewReader(text)}).Read(Stdin)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := known.CheckNew(t.Context(), &documents[0]); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s\ngot %q, want %q", text, got, want)
		}
	}
}
