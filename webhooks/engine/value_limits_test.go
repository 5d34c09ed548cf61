package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/race"
)

func TestLimitsOfDocuments(t *testing.T) {
	race.Skip(t)
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for text, wrong := range map[string]string{
		"0": "", "-0": "", "9223372036854775807": "", "-9223372036854775808": "", "18446744073709551615": "", "1.50": "", "1e0": "", "10E-1": "",
		"-2.2250738585072014e-308": "", "1.7976931348623157e308": "", "5e-324": "", "0e400": "", "0.0e-400": "",
		"1e309": "beyond float64", "-1E1000000": "beyond float64", "1e-400": "beyond float64", "1e1000000": "beyond float64",
		strings.Repeat("9", 32): "", strings.Repeat("9", 33): "33 characters", "0." + strings.Repeat("0", 6_500_000) + "1": "6500003 characters",
		`"` + strings.Repeat("9", 33) + `"`: "", `"1e1000000"`: "",
		nested(maxNesting - 8): "", nested(maxNesting + 1): "nested deeper", strings.Repeat(`{"a":`, maxNesting+1) + "1" + strings.Repeat("}", maxNesting+1): "nested deeper",
		"[" + strings.Repeat("0,", maxValues-20) + "0]": "", "[" + strings.Repeat("{},", maxValues) + "0]": "more than 450000 values",
	} {
		// Wherever it stands: below what is taken apart at once, in it, and alone.
		for _, in := range []string{"%s", `{"a": %s, "b": {}}`, `{"a": {"b": {"c": {"d": {"e": [1, {"f": %s}]}}}}}`} {
			for how, parse := range map[string]func([]byte) (Value, error){"as text": ParseText, "as terms": ParseValue} {
				_, err := parse([]byte(fmt.Sprintf(in, text)))
				if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
					t.Errorf("%.40s in %s %s: got %v, want %q", text, in, how, err, wrong)
				}
			}
		}
	}
}

// Objects of etcd's largest size pass, old and new, however small their fields are.
func TestLimitsLetRealObjectsPass(t *testing.T) {
	race.Skip(t)
	const largest = 3 << 19
	object := func(items, managed func(i int) string) string {
		var all, owned strings.Builder
		for i := 0; all.Len()+owned.Len() < largest-300; i++ {
			fmt.Fprintf(&all, ",%s", items(i))
			if managed != nil {
				fmt.Fprintf(&owned, ",%s", managed(i))
			}
		}
		owned.WriteString(" ")
		return fmt.Sprintf(`{"metadata": {"name": "x", "managedFields": [{"fieldsV1": {"f:spec": {%s}}}]}, "spec": {"items": [%s]}}`, owned.String()[1:], all.String()[1:])
	}
	for name, text := range map[string]string{
		"a ConfigMap of one text": `{"data": {"a": "` + strings.Repeat("x", largest) + `"}}`,
		"a ConfigMap of many keys": `{"data": {` + strings.Join(slices.Collect(func(yield func(string) bool) {
			for i := 0; i < largest/16 && yield(fmt.Sprintf(`"key-%05d":"v"`, i)); i++ { // 16 bytes each
			}
		}), ",") + `}}`,
		"a list of small objects": object(func(i int) string {
			return fmt.Sprintf(`{"name":"item-%05d","state":"Running","node":"node-%03d","cpu":%d}`, i, i%500, i%64)
		}, nil),
		"managed fields of a list": object(func(i int) string {
			return fmt.Sprintf(`{"name":"item-%05d","state":"Running","node":"node-%03d","cpu":%d}`, i, i%500, i%64)
		}, func(i int) string {
			return fmt.Sprintf(`"k:{\"name\":\"item-%05d\"}":{".":{},"f:name":{},"f:state":{},"f:node":{},"f:cpu":{}}`, i)
		}),
	} {
		v, err := ParseText([]byte(`{"request": {"object": ` + text + `, "oldObject": ` + text + `}}`))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{"object", "oldObject"} {
			if got := v.Get("request").Get(part).Get("metadata").Get("name").Text(); name != "a ConfigMap of one text" && name != "a ConfigMap of many keys" && got != "x" {
				t.Errorf("%s: %s is named %q", name, part, got)
			}
		}
	}
}

// A policy that reads more of a request than may be put into terms cannot decide, and says so; one that reads little decides.
func TestPoliciesReadOnlySoMuch(t *testing.T) {
	large := `{"object": {"name": "x", "spec": {"items": [` + strings.Repeat("{},", maxRead) + `0]}}}`
	for rule, wrong := range map[string]string{
		`input.request.object.name == "y"`:           "",
		`count(input.request.object.spec.items) < 9`: "",
		`walk(input.request, [_, "y"])`:              "read more than 150000 values",
	} {
		source := policy("valid_input if true\n\nwarn contains \"w\" if " + rule + "\n")
		source.Timeout = time.Minute
		p := mustCompile(t, source)
		request, err := ParseText([]byte(large))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // of which the first would be checked if the request were not large
			var inside atomic.Int64
			enter := func(context.Context) (func(), error) {
				inside.Add(1)
				return func() { inside.Add(-1) }, nil
			}
			_, err = p.Decide(t.Context(), Input{Request: request, Now: time.Now(), Enter: enter}, nil)
			if inside.Load() != 0 {
				t.Errorf("%s: a place is not left", rule)
			}
			var mine *Error
			if wrong == "" && err != nil || wrong != "" && (!errors.As(err, &mine) || mine.Cause != EvaluationFailed || !strings.Contains(err.Error(), wrong)) {
				t.Fatalf("%s: got %v, want %q", rule, err, wrong)
			}
		}
	}
}
