package decoding

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// copied returns the copy of an object.
func copied(t *testing.T, text string, drop bool) (string, object) {
	t.Helper()
	c := copier{scanner: newScanner(strings.NewReader(text)), drop: drop}
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

// shortened returns the copy of an object for facts.
func shortened(t *testing.T, text []byte) []byte {
	t.Helper()
	out, _, err := copier{scanner: newScanner(bytes.NewReader(text)), shorten: true}.object(nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// An object keeps 16 KiB of annotations of others, and as much of Sallyport's. What is beyond that is null, and not absent.
func TestLongAnnotations(t *testing.T) {
	long, half := strings.Repeat("x", mostAnnotations), strings.Repeat("x", mostAnnotations/2)
	for name, tc := range map[string]struct{ annotations, want string }{
		"none":                   {`{}`, `{}`},
		"short":                  {`{"a":"b","sallyport.dev/a":"c"}`, `{"a":"b","sallyport.dev/a":"c"}`},
		"no object":              {`[]`, `[]`},
		"a long one":             {`{"a":"` + long + `","b":"c"}`, `{"a":null,"b":"c"}`},
		"together":               {`{"a":"` + half + `","b":"` + half + `","c":"d"}`, `{"a":"` + half + `","b":null,"c":"d"}`},
		"a long one of ours":     {`{"a":"b","sallyport.dev/a":"` + long + `"}`, `{"a":"b","sallyport.dev/a":null}`},
		"ours beside a long one": {`{"a":"` + half + `","sallyport.dev/a":"` + half + `"}`, `{"a":"` + half + `","sallyport.dev/a":"` + half + `"}`},
		"the copy of kubectl":    {`{"a":"` + half + `","kubectl.kubernetes.io/last-applied-configuration":"` + half + `","z":"` + half[:100] + `"}`, `{"a":"` + half + `","z":"` + half[:100] + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			object := `{"metadata":{"name":"a","annotations":%},"spec":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"` + long + `"}}}`
			got := string(shortened(t, []byte(strings.Replace(object, "%", tc.annotations, 1))))
			if want := strings.Replace(object, "%", tc.want, 1); got != want {
				t.Errorf("got  %.200s\nwant %.200s", got, want)
			}
		})
	}
}

// Text that is not a JSON object is an error, without reading on.
func TestBrokenText(t *testing.T) {
	for _, text := range []string{``, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":"\`, `{"a":{`, `{"a":[1,`, `[]`, `{1:2}`, `{"a" 1}`, `{"metadata":{"name":`} {
		c := copier{scanner: newScanner(strings.NewReader(text)), shorten: true}
		if out, _, err := c.object(nil); err == nil {
			t.Errorf("%s: copied as %s", text, out)
		}
	}
}

// FuzzObjects checks that a copy decodes to the same value as the original with encoding/json, except for managedFields.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,-2.5e3,"x\u0041\\",null,true,{"b":{}}]}`, `{"metadata":{"managedFields":[{"a":1}],"name":"n"},"kind":"K"}`,
		`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", mostAnnotations) + `","a":"b","sallyport.dev/a":[{}],"kubectl.kubernetes.io/last-applied-configuration":"x"}}}`,
		`{"metadata":{"annotations":0,"annotations":{"\u0061":"b"}},"spec":{"annotations":{}}}`,
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
		c := copier{scanner: newScanner(bytes.NewReader(text)), drop: true}
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
		checkShortened(t, text)
		if again, _, err := (copier{scanner: newScanner(bytes.NewReader(out)), drop: true}).object(nil); err != nil || !bytes.Equal(again, out) {
			t.Errorf("copied again: %s, %v", again, err)
		}
	})
}

// checkShortened checks that the copy for facts differs from an object only in its annotations, of which it has no more than it may.
func checkShortened(t *testing.T, text []byte) {
	t.Helper()
	out := shortened(t, text)
	annotations := func(text []byte) (object, all map[string]any) {
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if metadata, is := object["metadata"].(map[string]any); is {
			if all, is = metadata["annotations"].(map[string]any); is {
				delete(metadata, "annotations")
			}
		}
		return object, all
	}
	before, were := annotations(text)
	after, are := annotations(out)
	if _, o := copied(t, string(text), false); o.deep {
		return
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s\n%s", out, diff)
	}
	for name, value := range are {
		if value != nil && !cmp.Equal(value, were[name]) {
			t.Errorf("annotation %s is %v, was %v", name, value, were[name])
		}
	}
	for name := range were {
		if _, kept := are[name]; kept == (name == corev1.LastAppliedConfigAnnotation) {
			t.Errorf("annotation %s is kept: %t", name, kept)
		}
	}
}
