package decoding

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// copied returns the copy of an object.
func copied(t *testing.T, text string, drop bool) (string, object) {
	t.Helper()
	c := copier{newScanner(strings.NewReader(text)), drop}
	out, o, err := c.object(nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(out), o
}

func nested(levels int) string {
	return strings.Repeat(`{"f:a":`, levels) + `1` + strings.Repeat("}", levels)
}

func TestObjectsAreCopiedWithoutWhatNobodyDecodes(t *testing.T) {
	deep, limit := nested(9995), maxDepth-1
	managed := func(fields string) string { return `"managedFields":[{"fieldsV1":` + fields + `}]` }
	for name, c := range map[string]struct {
		text, want string
		drop       bool
	}{
		"spaces":                     {" {\n \"a\" : [ 1 , true ] }", `{"a":[1,true]}`, false},
		"strings with quotes":        {`{"a\"b":"\\","c":"\\\""}`, `{"a\"b":"\\","c":"\\\""}`, false},
		"managed fields":             {`{"metadata":{"name":"a",` + managed("{}") + `}}`, `{"metadata":{"name":"a",` + managed("{}") + `}}`, false},
		"managed fields, dropped":    {`{"metadata":{` + managed("{}") + `,"name":"a"}}`, `{"metadata":{"name":"a"}}`, true},
		"an escaped name":            {`{"metadata":{"managed\u0046ields":[],"name":"a"}}`, `{"metadata":{"name":"a"}}`, true},
		"elsewhere it is a name":     {`{"managedFields":1,"spec":{"managedFields":[]}}`, `{"managedFields":1,"spec":{"managedFields":[]}}`, true},
		"deep managed fields":        {`{"metadata":{"name":"a",` + managed(deep) + `}}`, `{"metadata":{"name":"a"}}`, false},
		"deep managed fields, first": {`{"metadata":{` + managed(deep) + `,"name":"a"},"x":1}`, `{"metadata":{"name":"a"},"x":1}`, false},
		"as deep as may be":          {`{"spec":` + nested(limit) + `}`, `{"spec":` + nested(limit) + `}`, false},
		"deeper":                     {`{"spec":` + nested(limit+5) + `,"z":0}`, `{"spec":` + strings.Replace(nested(limit), "1", "null", 1) + `,"z":0}`, false},
		"deep lists":                 {`{"spec":` + strings.Repeat("[", 9990) + `"]"` + strings.Repeat("]", 9990) + `}`, `{"spec":` + strings.Repeat("[", limit) + "null" + strings.Repeat("]", limit) + `}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, o := copied(t, c.text, c.drop)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if deeper := strings.Contains(c.want, "null"); o.deep != deeper {
				t.Errorf("deep: %v", o.deep)
			}
		})
	}
}

func TestObjectsAreKnown(t *testing.T) {
	text, o := copied(t, `{"apiVersion":"g/v1","metadata":{"uid":"u","namespace":"n","labels":{"name":"x"},"name":"a"},"kind":"K"}`, true)
	if got, want := o.gvk().String()+" "+o.String()+" "+string(o.uid), "g/v1, Kind=K n/a u"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := `{"apiVersion":"g/v1","kind":"K","metadata":{"uid":"u","namespace":"n","labels":{"name":"x"},"name":"a"}}`
	if got := string(o.bare([]byte(text))); got != want {
		t.Errorf("got %s", got)
	}
}

// Text that is not a JSON object is an error, without reading on.
func TestBrokenText(t *testing.T) {
	for _, text := range []string{``, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":"\`, `{"a":{`, `{"a":[1,`, `[]`, `{1:2}`, `{"a" 1}`, `{"metadata":{"name":`} {
		c := copier{newScanner(strings.NewReader(text)), false}
		if out, _, err := c.object(nil); err == nil {
			t.Errorf("%s: copied as %s", text, out)
		}
	}
}

// FuzzObjects checks that a copy decodes to the same value as the original with encoding/json, except for managedFields.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,-2.5e3,"x\u0041\\",null,true,{"b":{}}]}`, `{"metadata":{"managedFields":[{"a":1}],"name":"n"},"kind":"K"}`,
		`{"metadata":{"managedFields":0,"managedFields":{}},"metadata":[]}`, `{"metadata":{"name":7,"uid":{}},"items":[{"metadata":{}}]}`,
		"{\"\\\"\":\"\\\\\\\"\",\t\"\":\"\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]any
		if json.Unmarshal(text, &want) != nil || want == nil {
			return
		}
		c := copier{newScanner(bytes.NewReader(text)), true}
		out, o, err := c.object(nil)
		if err != nil {
			t.Fatal(err)
		}
		if metadata, is := want["metadata"].(map[string]any); is {
			delete(metadata, "managedFields")
		}
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if diff := cmp.Diff(want, got); diff != "" && !o.deep {
			t.Errorf("%s\n%s", out, diff)
		}
		if again, _, err := (copier{newScanner(bytes.NewReader(out)), true}).object(nil); err != nil || !bytes.Equal(again, out) {
			t.Errorf("copied again: %s, %v", again, err)
		}
	})
}
