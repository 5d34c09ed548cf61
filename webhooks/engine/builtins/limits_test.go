package builtins

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// harmless are the builtins of which no call is charged before it runs: what they take and make is in proportion to their operands.
var harmless = []string{
	"abs", "and", "array.concat", "array.flatten", "array.reverse", "array.slice", "assign", "base64.decode", "base64.encode",
	"base64.is_valid", "base64url.decode", "base64url.encode", "ceil", "contains", "count", "crypto.sha256", "div", "endswith", "eq", "equal",
	"floor", "format_int", "glob.quote_meta", "gt", "gte", "indexof", "internal.member_2", "internal.member_3", "internal.print",
	"internal.test_case", "intersection", "is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string",
	"json.is_valid", "lower", "lt", "lte", "max", "min", "minus", "mul", "net.cidr_contains",
	"net.cidr_is_valid", "neq", "object.filter", "object.get", "object.keys", "or", "plus",
	"print", "regex.is_valid", "rem", "round", "semver.compare", "semver.is_valid", "set_diff", "sort", "startswith",
	"strings.any_prefix_match", "strings.any_suffix_match", "strings.count", "substring", "sum", "time.add_date", "time.format",
	"time.parse_duration_ns", "time.parse_ns", "time.parse_rfc3339_ns", "time.weekday", "trim_prefix", "trim_space", "trim_suffix",
	"type_name", "union", "upper", "urlquery.decode", "urlquery.encode",
}

// A builtin that is new to the list is either one with limits or looked at and found harmless.
func TestEveryBuiltinHasALimitOrNeedsNone(t *testing.T) {
	all := slices.Sorted(slices.Values(slices.Concat(harmless, slices.Collect(maps.Keys(limited)))))
	if want := slices.Sorted(slices.Values(allowed)); !slices.Equal(all, want) {
		t.Errorf("got  %q\nwant %q", all, want)
	}
}

// atTheirLimit has calls for each builtin that makes something, of which each makes as much as it can of what it is given, or as little.
func atTheirLimit() map[string][]string {
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	text := `"` + strings.Repeat("aé", 2000) + `"`
	numbers, object, members := make([]int, 2000), map[string]any{}, make([]string, 2000)
	for i := range numbers {
		numbers[i], members[i] = i, fmt.Sprint("m", i)
		object[members[i]] = map[string]any{"x": i}
	}
	encode := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	set := "{" + strings.Trim(encode(numbers), "[]") + "}"
	texts, o, names := encode(members), encode(object), encode(members)
	paths := encode(slices.Collect(func(yield func(string) bool) {
		for _, name := range members {
			if !yield(name + "/x") {
				return
			}
		}
	}))
	short, small := `"abc"`, `{"a": {"b": 1}}`
	onText := []string{text, short, `""`}
	calls := map[string][]string{
		"and": {set + "," + set, "{1},{1}"}, "or": {set + ",{-1}", "{1},{2}"}, "minus": {set + ",{1}", "{1},{2}"}, "set_diff": {set + ",{1}", "{1},{2}"},
		"union": {"{" + set + ",{-1}}", "{{1},{2}}"}, "intersection": {"{" + set + "}", "{{1},{1,2}}"},
		"array.concat": {texts + ",[1]", "[1],[2]"}, "array.flatten": {"[" + texts + "]", "[[1]]"}, "array.reverse": {texts, "[1]"},
		"array.slice": {texts + ",1,1999", "[1,2],0,1"}, "sort": {texts, set, "[2,1]"},
		"object.keys": {o, small}, "object.remove": {o + `,["m1"]`, o + "," + names, small + `,["b"]`}, "object.filter": {o + "," + names, small + `,["a"]`},
		"object.union": {o + "," + small, o + "," + o[:len(o)-1] + `,"y":1}`, small + `,{"a":{"c":2}}`}, "object.union_n": {"[" + o + "," + o + "]", "[" + small + "," + small + "]"},
		"json.filter": {o + "," + paths, small + `,["a/b"]`, small + `,[["a","b"]]`},
		"json.remove": {o + "," + paths, o + `,["m1/x"]`, small + `,["a/c"]`, `{"a":` + texts + `},["a/1"]`},
		"walk":        {o, list(50, list(50, "[]")), small, strings.Repeat("[", 300) + strings.Repeat("]", 300)},
		"concat":      {`"é",` + texts, `"",["a"]`}, "internal.template_string": {"[" + text + "]", "[1]"}, "sprintf": {`"%s%s",[` + text + "," + text + "]", `"%d",[1]`, `"%9999d",[1]`},
		"json.marshal": {o, texts, "1", `"` + strings.Repeat("<", 1000) + `"`}, "json.unmarshal": {encode(list(3000, "{}")), encode(list(3000, "[]")), encode(list(3000, "1")), encode(o), `"1"`},
		"format_int": {"1e1000,2", "12345678901234567890,2", "1,10"}, "substring": {text + ",1,3000", text + ",0,5", short + ",0,-1", text + ",1,-1"},
		"replace": {text + `,"a","éé"`, short + `,"x","y"`}, "strings.replace_n": {`{"a":"éé"},` + text, `{"x":"y"},` + short},
		"split": {text + `,""`, text + `,"a"`, `"a",","`}, "regex.split": {`"a",` + text, `"",` + text, `"x",` + short}, "regex.replace": {text + `,"a","éé"`, short + `,"x","y"`},
		"trim": {text + `,"a"`, short + `,"a"`}, "trim_left": {text + `,"a"`}, "trim_right": {text + `,"é"`}, "trim_prefix": {text + `,"a"`}, "trim_suffix": {text + `,"é"`},
		"time.format": {`[1e18,"UTC","` + strings.Repeat("January", 1000) + `"]`, "1"}, "time.clock": {"1"}, "time.date": {"1"}, "time.diff": {"1,2"}, "time.weekday": {"1"},
		"base64.decode": {`"` + strings.Repeat("YWJj", 1000) + `"`, `""`}, "base64url.decode": {`"` + strings.Repeat("YWJj", 1000) + `"`},
	}
	for _, name := range []string{
		"base64.encode", "base64url.encode", "lower", "upper", "strings.reverse", "urlquery.encode", "urlquery.decode", "crypto.sha256", "type_name", "glob.quote_meta", "trim_space",
	} {
		calls[name] = onText
	}
	calls["upper"] = append(calls["upper"], `"`+strings.Repeat("ɐ", 2000)+`"`) // which is longer as a capital
	return calls
}

// A policy that a large request sets off has builtins make no more than an evaluation may, whichever it calls: what each says that it makes is at
// least what stays in memory of it.
func TestBuiltinsMakeNoMoreThanTheySay(t *testing.T) {
	calls := atTheirLimit()
	for _, b := range usable() {
		if !makes(b.Decl.Result()) || slices.Contains(givesOperands, b.Name) {
			continue
		}
		if len(calls[b.Name]) == 0 {
			t.Errorf("%s makes %v, which is not tried here", b.Name, b.Decl.Result())
		}
		for _, text := range calls[b.Name] {
			var operands []*ast.Term
			ast.MustParseTerm("[" + text + "]").Value.(*ast.Array).Foreach(func(o *ast.Term) { operands = append(operands, o) })
			made, calls := fill(t, b.Name, operands)
			t.Logf("%s(%.40s): %.2f of what it says, %d calls", b.Name, text, made/tried, calls)
			if made > 1.25*tried {
				t.Errorf("%s(%.40s) made %.1f MiB when it said %d", b.Name, text, made/(1<<20), tried>>20)
			}
		}
	}
}

const tried = 4 << 20

// fill calls a builtin until it has made what an evaluation may, and gives what stays of that, in bytes.
func fill(t *testing.T, name string, operands []*ast.Term) (made float64, calls int) {
	t.Helper()
	ctx := topdown.BuiltinContext{Context: context.WithValue(context.Background(), meterKey{}, &meter{made: mostMade - tried}), Cancel: topdown.NewCancel()}
	kept := make([]*ast.Term, 0, tried/16)
	before := inUse()
	for {
		err := topdown.GetBuiltin(name)(ctx, operands, func(result *ast.Term) error {
			kept = append(kept, result)
			return nil
		})
		if err != nil {
			if !strings.Contains(err.Error(), "MiB of values") {
				t.Fatalf("%s: %v", name, err)
			}
			break
		}
		if calls++; calls > tried {
			t.Errorf("%s makes nothing of %v", name, operands)
			break
		}
	}
	made = inUse() - before
	runtime.KeepAlive(kept)
	runtime.KeepAlive(operands)
	return made, calls
}

// All running evaluations together make no more than their limit. Those that have ended do not count, and small ones are not affected.
func TestEvaluationsShareALimit(t *testing.T) {
	charged := func(ctx context.Context, mib float64) bool { return charge(ctx, cost{made: mib * (1 << 20)}) == nil }
	var releases []func()
	var last context.Context
	for range maxOfAll / (64 - maxUncounted) {
		ctx, release := Metered(t.Context())
		if !charged(ctx, 30) || !charged(ctx, 34) {
			t.Fatal("there is no room for what an evaluation may make")
		}
		last, releases = ctx, append(releases, release)
	}
	small, release := Metered(t.Context())
	if !charged(small, maxUncounted) || charged(small, 30) {
		t.Error("a small evaluation cannot go on, or a large one can")
	}
	release()
	if charged(last, 1) {
		t.Error("an evaluation makes more than it may")
	}
	for _, release := range releases {
		release()
	}
	if left := takenOfAll.Load(); left != 0 {
		t.Errorf("%d MiB are taken after all have ended", left)
	}
}

func inUse() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// Whoever calls a builtin of OPA that is withheld is told what to use.
func TestEveryWithheldBuiltinHasSomethingInItsPlace(t *testing.T) {
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if use := Withheld(b.Name); (use == "") != (isUsable(b) || strings.HasPrefix(b.Name, "internal.")) {
			t.Errorf("%s: got %q", b.Name, use)
		}
	}
	for _, name := range []string{"data.x.f", "input.now", "no.such"} {
		if use := Withheld(name); use != "" {
			t.Errorf("%s: got %q", name, use)
		}
	}
}

// Values that are in each other many times are not gone through to the end to find out how large they are.
func TestAValueOfManyPartsIsMeasuredOnlyUpToALimit(t *testing.T) {
	v := ast.StringTerm("x")
	for range 200 {
		v = ast.ArrayTerm(v, v)
	}
	if size := wholeSize(v); size < mostMade {
		t.Errorf("got %g", size)
	}
	for name, operands := range map[string][]*ast.Term{"walk": {v}, "object.subset": {v, v}, "json.remove": {v}, "object.union_n": {v}} {
		if c, err := limited[name](operands); err != nil || c.made < mostMade && c.work < mostWork {
			t.Errorf("%s: got %+v, %v", name, c, err)
		}
	}
}
