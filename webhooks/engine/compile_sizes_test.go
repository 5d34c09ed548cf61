package engine

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/race"
)

// doublings gives forty rules, each of which has the one before it twice, and their twins.
func doublings(value string, steps int) string {
	var text strings.Builder
	for _, name := range []string{"_v", "_w"} {
		fmt.Fprintf(&text, "%s0 := [1]\n\n", name)
		for i := range steps {
			fmt.Fprintf(&text, "%s%d := %s\n\n", name, i+1, strings.ReplaceAll(value, "X", fmt.Sprint(name, i)))
		}
	}
	return text.String()
}

// "Policy-driven denial of service", by values that are in each other: OPA compares each with its twin part by part, a trillion times, when
// it checks types or when it decides, and neither a signal nor the policy's deletion ends that.
func TestValuesThatRepeatOthers(t *testing.T) {
	const steps = 40
	locals := func(join, value string) string {
		var lines []string
		for _, name := range []string{"v", "w"} {
			lines = append(lines, name+"0 := [1]")
			for i := range steps {
				lines = append(lines, fmt.Sprintf("%s%d %s %s", name, i+1, join, strings.ReplaceAll(value, "X", fmt.Sprint(name, i))))
			}
		}
		return "x if {\n\t" + strings.Join(append(lines, fmt.Sprintf("v%d == w%[1]d", steps)), "\n\t") + "\n}\n"
	}
	const same = "x if _v40 == _w40\n"
	for name, rules := range map[string]string{
		"rules, in lists":       doublings("[X, X]", steps) + same,
		"rules, in objects":     doublings(`{"a": X, "b": X}`, steps) + same,
		"rules, in sets":        doublings(`{[X, 1], [X, 2]}`, steps) + same,
		"rules, in dynamic":     doublings(`[y | y := [X, X]]`, steps) + same,
		"rules, through a part": doublings(`[X[0], X[0], X]`, steps) + same,
		"rules, with bodies":    doublings("[y, y] if y := X", steps) + same,
		"rules, in partial":     doublings("[X, X]", steps) + "y contains _v40\n\ny contains _w40\n",
		"rules, else":           doublings("1 if input.x else := [X, X]", steps) + same,
		"locals":                locals(":=", "[X, X]"),
		"locals, by =":          locals("=", "[X, X]"),
		"locals, in each other": locals(":=", "[y | some y in [X, X]]"),
	} {
		_, err := compile(policy(harmlessRules + rules))
		if err == nil || !strings.Contains(err.Error(), "repeats other values so often") {
			t.Errorf("%s: got %.300v", name, err)
			continue
		}
		wantPlaces(t, name, err)
	}
	if _, err := compile(policy(harmlessRules + doublings("[X, X]", 8) + "x if _v8 == _w8\n")); err != nil {
		t.Errorf("a few are refused: %v", err)
	}
}

// The same by what has no size before it is there: what functions are given, lists that are as long as a request says, what builtins put
// together. Each ends with an error, soon.
func TestValuesThatGrow(t *testing.T) {
	race.Skip(t)
	chain := func(first, step string, n int) string {
		var lines []string
		for _, name := range []string{"v", "w"} {
			lines = append(lines, name+"0 := "+first)
			for i := range n {
				lines = append(lines, fmt.Sprintf("%s%d := %s", name, i+1, strings.ReplaceAll(step, "X", fmt.Sprint(name, i))))
			}
		}
		return "valid_input if true\n\nwarn contains \"w\" if {\n\t" + strings.Join(append(lines, fmt.Sprintf("v%d == w%[1]d", n)), "\n\t") + "\n}\n\n"
	}
	rules := func(rule string) string {
		var text strings.Builder
		for _, name := range []string{"_v", "_w"} {
			fmt.Fprintf(&text, "%s0 contains input.request.list if input.request.list\n\n", name)
			for i := range 5 {
				text.WriteString(strings.NewReplacer("NEW", fmt.Sprint(name, i+1), "OLD", fmt.Sprint(name, i)).Replace(rule) + "\n\n")
			}
		}
		return "valid_input if true\n\nwarn contains \"w\" if _v5 == _w5\n\n" + text.String()
	}
	for name, text := range map[string]string{
		"functions":               chain("[input.request.text]", "_twice(X)", 40) + "_twice(x) := [x, x]\n",
		"functions, by a local":   chain("[input.request.text]", "_twice(X)", 40) + "_twice(x) := y if y := {\"a\": x, \"b\": x}\n",
		"functions, else":         chain("[input.request.text]", "_twice(X)", 40) + "_twice(x) := 1 if x == 1\n\nelse := [x, x]\n",
		"functions of each other": chain("[input.request.text]", "_f4(X)", 10) + "_f0(x) := [x, x]\n\n_f1(x) := _f0(_f0(x))\n\n_f2(x) := _f1(_f1(x))\n\n_f3(x) := _f2(_f2(x))\n\n_f4(x) := _f3(_f3(x))\n",
		"lists":                   chain("input.request.list", "[X | some _ in input.request.list]", 5),
		"sets":                    chain("input.request.list", "{[X, y] | some y in input.request.list}", 5),
		"objects":                 chain("input.request.list", "{k: X | some k, _ in input.request.list}", 5),
		"lists in lists":          chain("input.request.list", "[[[X | some _ in input.request.list] | some _ in input.request.list] | some _ in input.request.list]", 2),
		"lists in a function":     chain("input.request.list", "_many(X)", 5) + "_many(x) := [x | some _ in input.request.list]\n",
		"lists, in every":         chain("input.request.list", "X", 1) + "x if every y in input.request.list { v := [y | some _ in input.request.list]; w := [v | some _ in input.request.list]; z := [w | some _ in input.request.list]; a := [z | some _ in input.request.list]; b := [a | some _ in input.request.list]; count(b) > 1 }\n\nwarn contains \"x\" if x\n",
		"lists, negated":          "valid_input if true\n\nwarn contains \"w\" if not 1 == count([z | z := [w | w := [v | v := [input.request.list | some _ in input.request.list]; some _ in input.request.list]; some _ in input.request.list]; some _ in input.request.list])\n",
		"array.concat":            chain("[input.request.list]", "array.concat(X, X)", 40),
		"object.union":            chain(`{"a": {"a": input.request.list}}`, `object.union({"a": X}, {"b": X})`, 40),
		"object.union_n":          chain(`{"a": {"a": input.request.list}}`, `object.union_n([{"a": X}, {"b": X}])`, 40),
		"sets, joined":            chain("{input.request.list}", "{[X, 1]} | {[X, 2]}", 40),
		"sets, joined, of sets":   chain("{input.request.list}", "union({{[X, 1]}, {[X, 2]}})", 40),
		"rules of many values":    rules("NEW contains [x, OLD] if some x in input.request.list"),
		"rules by key":            rules("NEW[x] := OLD if some x in input.request.list"),
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && strings.HasPrefix(name, "functions ") {
				t.Skip("left to make test-all")
			}
			p, err := compile(policy(text))
			if err != nil && strings.Contains(err.Error(), "repeats other values so often") { // what shows without the request
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			list := make([]any, 20)
			for i := range list {
				list[i] = fmt.Sprint("name", i)
			}
			_, err = p.Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"text": "text", "list": list})}, nil)
			wantCause(t, err, EvaluationFailed, "eval_builtin_error")
		})
	}
}
