package engine

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/test/support/race"
	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// liveHeap is how many bytes the last garbage collection found in use.
func liveHeap() float64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64())
}

// peak is how much memory is in use at most while something runs, beside what is in use before, in bytes.
func peak(run func()) (most float64) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	runtime.GC()
	before, done := liveHeap(), make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case <-done:
			tick.Stop()
			return most
		case <-tick.C:
			most = max(most, liveHeap()-before)
		}
	}
}

// Nested iterations without builtins stay within the memory limit of an evaluation. At a million elements a second, they would otherwise
// make gigabytes until the deadline.
func TestComprehensionsMakeNoMoreThanAnEvaluationMay(t *testing.T) {
	race.Skip(t)
	const l = "input.request.list"
	nested := fmt.Sprintf("some a in %[1]s; some b in %[1]s; some c in %[1]s; some d in %[1]s", l)
	for name, tc := range map[string]struct {
		rules string
		want  Cause
		deep  bool
	}{
		"arrays":                {"warn contains \"w\" if count([[a, b, c, d] | " + nested + "]) == 1\n", EvaluationFailed, true},
		"sets":                  {"warn contains \"w\" if count({[a, b, c, d] | " + nested + "}) == 1\n", EvaluationFailed, false},
		"objects":               {"warn contains \"w\" if count({[a, b, c, d]: {\"a\": a} | " + nested + "}) == 1\n", EvaluationFailed, true},
		"of what is there":      {"warn contains \"w\" if count([a | " + nested + "]) == 1\n", EvaluationFailed, true},
		"lists in a loop":       {"warn contains \"w\" if count([x | " + nested + "; x := [y | some y in " + l + "]]) == 1\n", EvaluationFailed, true},
		"sets in a loop":        {"warn contains \"w\" if count([x | " + nested + "; x := {y | some y in " + l + "}]) == 1\n", EvaluationFailed, true},
		"a set of a rule":       {"warn contains \"w\" if count(_p) == 1\n\n_p contains [a, b, c, d] if { " + nested + " }\n", EvaluationFailed, false},
		"an object of a rule":   {"warn contains \"w\" if count(_p) == 1\n\n_p[[a, b, c, d]] := a if { " + nested + " }\n", DeadlineExceeded, true},
		"values of outcomes":    {"warn contains \"w\" if { " + nested + "; [a, b, c, d] != 1 }\n\nwarn contains $\"{a} {b} {c} {d}\" if { " + nested + " }\n", EvaluationFailed, true},
		"results of a function": {"warn contains \"w\" if { " + nested + "; _f(a, b, c, d)[0] == 1 }\n\n_f(a, b, c, d) := [a, b, [c, d]]\n", DeadlineExceeded, false},
		"arguments":             {"warn contains \"w\" if { " + nested + "; _f([a, [b, [c, [d]]]])[0] == 1 }\n\n_f(x) := x\n", DeadlineExceeded, true},
		"rules by key":          {"warn contains \"w\" if { " + nested + "; _p[[a, b, c, d]] == 1 }\n\n_p[x] := 2 if some x in " + l + "\n", DeadlineExceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.deep {
				if testing.Short() {
					t.Skip("left to make test-all")
				}
			}
			source := policy("valid_input if true\n\n" + tc.rules)
			source.Timeout = 30 * time.Second
			if tc.want == DeadlineExceeded {
				source.Timeout = time.Second
			}
			p := mustCompile(t, source)
			list := make([]any, 300)
			for i := range list {
				list[i] = fmt.Sprint("name-", i)
			}
			in := Input{Request: mustValue(t, map[string]any{"list": list})}
			most := peak(func() {
				_, err := p.Decide(t.Context(), in, nil)
				var e *Error
				if !errors.As(err, &e) || e.Cause != tc.want || tc.want == EvaluationFailed && !strings.Contains(e.Error(), "MiB of values") {
					t.Errorf("got %v, want %s", err, tc.want)
				}
			})
			await(t, func() bool { return p.leftBehind.Load() == 0 })
			t.Logf("%.0f MiB", most/(1<<20))
			if most > 1.5*(64<<20) {
				t.Errorf("%.0f MiB were in use", most/(1<<20))
			}
		})
	}
}

// Comprehensions over the longest lists that a policy can read are far from the limit.
func TestComprehensionsOfLargeListsHaveRoom(t *testing.T) {
	race.Skip(t)
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if {\n\t"+
		"count([x | some x in input.request.list; x > 5]) + count({x | some x in input.request.list}) + count({i: x | some i, x in input.request.list}) > 1\n}\n"))
	list := make([]any, 100_000)
	for i := range list {
		list[i] = i
	}
	p.timeout = time.Minute
	if d, err := p.Decide(t.Context(), Input{Request: mustValue(t, map[string]any{"list": list})}, nil); err != nil || len(d.Warnings) != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
}

// OPA caches the result of a function for each list of arguments until the evaluation ends. The cache is bounded.
func TestResultsThatAreKeptAreBounded(t *testing.T) {
	key := func(i int) ast.Ref {
		return ast.Ref{ast.VarTerm("f"), ast.IntNumberTerm(1000 + i), ast.IntNumberTerm(1000)}
	}
	r := newResults()
	n := 0
	used := peak(func() {
		for ; r.left >= perResult+3*perKey; n++ {
			r.Put(key(n), ast.InternedTerm(true))
		}
		runtime.GC()
		r.Put(key(n), ast.InternedTerm(true))
	})
	if value, _ := r.Get(key(n)); value != nil {
		t.Error("a result is kept for which there is no room")
	}
	if value, _ := r.Get(key(0)); value == nil {
		t.Error("the first result is not kept")
	}
	if used > 1.25*mostKept {
		t.Errorf("%d results take %.1f MiB", n, used/(1<<20))
	}
	r.Push()
	r.left = perResult + 3*perKey
	r.Put(key(n), ast.InternedTerm(true))
	r.Pop()
	if r.left >= perResult+3*perKey {
		t.Error("a frame leaves room behind that it did not have")
	}
	runtime.KeepAlive(r)
}

// If other evaluations leave no memory, the error says nothing about the policy or its input.
func TestMemoryOfOtherEvaluationsIsStillRunning(t *testing.T) {
	err := evaluationError(fmt.Errorf("evaluating: %w", &topdown.Error{Code: builtins.Together}))
	wantCause(t, err, StillRunning, "")
	if !unfinished(err) {
		t.Error("the error counts as an answer of the policy")
	}
}
