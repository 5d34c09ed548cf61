package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/race"
)

// A large request cannot have one call of a builtin run for seconds, nor make what fills the memory.
func TestNoCallOutrunsItsLimits(t *testing.T) {
	race.Skip(t)
	for condition, want := range map[string]string{
		// as many digits as a request likes, in a text, which no check of the request's own numbers finds
		`to_number(input.request.digits) > 1`:                                                       "more than 100 characters",
		`to_number("1e1000000") > 1`:                                                                "exponent",
		`to_number(input.request.exponent) > 1`:                                                     "exponent",
		`json.unmarshal(input.request.exponent) > 1`:                                                "number",
		`json.unmarshal(input.request.nested)[0].x > 1`:                                             "number",
		`units.parse_bytes(input.request.exponent) > 1`:                                             "exponent",
		`units.parse(concat("", [input.request.exponent, "k"])) > 1`:                                "exponent",
		`product([to_number(x) | some x in split(substring(input.request.list, 0, 999), ",")]) > 1`: "more than 100 factors",
		`product([1 | some x in split(substring(input.request.list, 0, 201), ",")]) == 1`:           "more than 100 factors",
		// the width of what is written
		`sprintf("%999999999d", [1]) != ""`:                                                            "MiB",
		`sprintf(input.request.wide, [1]) != ""`:                                                       "MiB",
		`sprintf("%.999999999f", [1.5]) != ""`:                                                         "MiB",
		`sprintf("%*d", [999999999, 1]) != ""`:                                                         "not supported",
		`sprintf(replace(input.request.text, "a", "%[1]s"), [input.request.text]) != ""`:               "MiB",
		`replace(input.request.text, "a", input.request.text) != ""`:                                   "MiB",
		`strings.replace_n({"a": input.request.text}, input.request.text) != ""`:                       "MiB",
		`regex.replace(input.request.text, "a", input.request.text) != ""`:                             "MiB",
		`concat(input.request.text, split(input.request.text, "")) != ""`:                              "MiB",
		`_doubled(_doubled(_doubled(_doubled(_doubled(_doubled(input.request.text)))))) != ""`:         "MiB",
		`json.marshal(_twins(_twins(_twins(_twins(_twins(_twins(input.request.text))))))) != ""`:       "MiB",
		`$"{_twins(_twins(_twins(_twins(_twins(_twins(_twins(input.request.text)))))))}" != ""`:        "MiB",
		`count(split(input.request.text, "")) > 1`:                                                     "MiB",
		`count(array.concat(split(input.request.list, ","), split(input.request.list, ","))) > 1`:      "MiB",
		`count(json.unmarshal(concat("", ["[", concat(",", [input.request.objects, "1"]), "]"]))) > 1`: "MiB",
		// patterns that a request brings along
		`regex.match(concat("", [input.request.list, "(a{1000})"]), input.request.text)`:                                          "too long",
		`regex.match("(a{1,10}){1,100}b", input.request.text)`:                                                                    "too long",
		`count(regex.split(input.request.list, input.request.text)) > 1`:                                                          "too long",
		`glob.match("*a*a*a*a*[!a]*a", [], substring(input.request.text, 0, 60))`:                                                 "too long",
		`glob.match("{*a,a*}{*a,a*}{*a,a*}{*a,a*}[!a]", [], substring(input.request.text, 0, 60))`:                                "too long",
		`trim(input.request.text, input.request.list) != ""`:                                                                      "too long",
		`object.subset(split(substring(input.request.list, 0, 99999), "1"), split(substring(input.request.list, 0, 99999), ","))`: "too long",
	} {
		t.Run(condition, func(t *testing.T) {
			src := policy("valid_input if true\n\nwarn contains \"w\" if " + condition +
				"\n\n_doubled(x) := concat(\"\", [x, x])\n\n_twins(x) := [x, x, \"\"]\n")
			p := mustCompile(t, src)
			text := strings.Repeat("a", 2<<20)
			in := Input{Now: time.Unix(0, 0), Request: mustValue(t, map[string]any{
				"text": text, "digits": strings.Repeat("9", 1<<20), "exponent": "1e1000000", "nested": `[{"x": 1e1000000}]`, "wide": "%0999999999d",
				"list": strings.Repeat("1,", 1<<19), "objects": strings.Repeat("{},", 1<<20) + "{}",
			})}
			_, err := p.Decide(t.Context(), in, nil)
			wantCause(t, err, EvaluationFailed, want)
		})
	}
}

// What policies do with requests as they are is far from any limit.
func TestLimitsLeaveRoom(t *testing.T) {
	conditions := []string{
		`regex.match("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "a-name")`, `glob.match("registry.example.org/*/*:*", [], "registry.example.org/a/b:1")`,
		`sprintf("%5d of %-10s, %.2f %%: 5 * %v", [1, "x", 2.5, {"a": 1}]) != ""`, `to_number("12.5e3") > 1`, `units.parse_bytes("16Gi") > 1`, `units.parse("5E") > 1`,
		`json.unmarshal("{\"a\": [1, 2.5e10]}").a[0] == 1`, `replace("a.b", ".", "-") == "a-b"`, `sum([1, 2.5]) > 1`, `product([2, 3]) == 6`,
		`product([1 | some x in split(substring(input.request.text, 0, 499), ",")]) == 1`,
		`upper("a") == "A"`, `trim("  a ", " ") == "a"`, `count(split(input.request.text, ",")) == 10001`, `9007199254740993 * 3 > 1`, `1e308 * 10 > 1`,
		`object.subset({"a": 1, "b": 2}, {"a": 1})`, `json.marshal(input.request) != ""`,
	}
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if { "+strings.Join(conditions, "; ")+" }\n"))
	d, err := p.Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"text": strings.Repeat("name,", 10000)})}, nil)
	if err != nil || len(d.Warnings) != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
}

// A limit is for one evaluation: those before it, and those beside it, take nothing of it.
func TestLimitsAreThoseOfOneEvaluation(t *testing.T) {
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if lower(input.request.text) != \"\"\n"))
	in := Input{Request: mustValue(t, map[string]any{"text": strings.Repeat("a", 8<<20)})}
	for range 5 {
		if d, err := p.Decide(t.Context(), in, nil); err != nil || len(d.Warnings) != 1 {
			t.Fatalf("got %+v, %v", d, err)
		}
	}
}

// A text of a user, such as an annotation, that policies make a number of is no way around the limits.
func TestNumbersInTextsAreLimited(t *testing.T) {
	digits, zeros := strings.Repeat("7", 256<<10), "0."+strings.Repeat("0", 256<<10)+"1"
	for rule, text := range map[string]string{
		`to_number(input.request.text) * 3 > 5`: zeros, `units.parse(input.request.text) > 5`: digits, `units.parse_bytes(input.request.text) > 5`: digits,
		`json.unmarshal(input.request.text).a > 5`: `{"a": ` + digits + `}`, `json.unmarshal(input.request.text) > 6`: "1e1000000",
	} {
		source := policy("valid_input if true\n\nwarn contains \"w\" if " + rule + "\n")
		source.Timeout = time.Minute
		_, err := mustCompile(t, source).Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"text": text})}, nil)
		var mine *Error
		if !errors.As(err, &mine) || mine.Cause != EvaluationFailed {
			t.Errorf("%s: got %v", rule, err)
		}
	}
	for _, rule := range []string{
		`to_number(input.request.text) > 5`, `units.parse(input.request.text) > 5`, `units.parse_bytes(input.request.text) > 5`,
		`json.unmarshal(input.request.text) > 5`, `json.unmarshal($"\{\"a\": {input.request.text}, \"b\": [\"x\"]}").a > 5`,
	} {
		d, err := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if "+rule+"\n")).Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"text": "12345"})}, nil)
		if err != nil || len(d.Warnings) != 1 {
			t.Errorf("%s: got %+v, %v", rule, d, err)
		}
	}
}
