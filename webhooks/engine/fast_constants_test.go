package engine

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

const digits = "_d := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n\n"

// doubling is a policy that puts a text together with itself.
func doubling(times int) string {
	body := "_x0 := \"0123456789abcdef\"\n\n"
	for i := range times {
		body += fmt.Sprintf("_x%d := concat(\"\", [_x%d, _x%d])\n\n", i+1, i, i)
	}
	return body
}

// A small text must not become a large policy, nor one whose compilation does not end.
func TestConstantsAreSmallAndSoonKnown(t *testing.T) {
	pairs := "_x0 := [1, 2]\n\n"
	for i := range 40 {
		pairs += fmt.Sprintf("_x%d := _pair(_x%d)\n\n", i+1, i)
	}
	for name, rules := range map[string]string{
		"a text that is doubled":    doubling(22),
		"a value in itself":         pairs + "_pair(x) := [x, x]\n\n",
		"what does not end":         digits + "_x40 := count([1 | some a in _d; some b in _d; some c in _d; some d in _d; some e in _d; some f in _d; some g in _d; some h in _d; some i in _d])\n\n",
		"a list of many elements":   digits + "_x40 := [[a, b, c, d, e] | some a in _d; some b in _d; some c in _d; some d in _d; some e in _d]\n\n",
		"many tables of some bytes": strings.ReplaceAll(digits, "_d", "_x40") + tables(40),
	} {
		t.Run(name, func(t *testing.T) {
			src := policy("valid_input if true\n\nwarn contains \"w\" if input.request.never == " + map[bool]string{true: "_x22", false: "_x40"}[strings.Contains(rules, "_x22 ") && !strings.Contains(rules, "_x40")] + "\n\n" + rules)
			before := heap()
			p := mustCompile(t, src)
			acceleratorOf(t, p)
			kept := heap() - before
			for tries := 0; kept > 8<<20 && tries < 100; tries++ { // what another case has left behind may go on for a moment
				time.Sleep(time.Millisecond)
				kept = heap() - before
			}
			if kept > 8<<20 {
				t.Errorf("%d MiB are kept of a text of %d bytes", kept>>20, len(rules))
			}
			// It decides as before, or says that it cannot.
			p.timeout = 100 * time.Millisecond
			if _, err := p.Decide(t.Context(), input(t, `{}`), nil); err != nil {
				t.Error(err)
			}
			runtime.KeepAlive(p)
		})
	}
}

// What takes too many steps is no constant, even if this machine takes them in time.
func TestConstantsTakeFewSteps(t *testing.T) {
	p := mustCompile(t, policy("valid_input if true\n\nwarn contains \"w\" if input.request.never in {_few, _many}\n\n"+digits+
		"_few := count([1 | some a in _d; some b in _d])\n\n"+
		"_many := count([1 | some a in _d; some b in _d; some c in _d; some d in _d; some e in _d])\n"))
	acceleratorOf(t, p)
	for name, want := range map[string]bool{"_few": true, "_many": false} {
		r := p.compiler.GetRulesExact(p.pkg.Append(ast.StringTerm(name)))[0]
		if got := ast.IsConstant(r.Head.Value.Value); got != want {
			t.Errorf("%s is a constant: %v", name, got)
		}
	}
}

// tables are large constants, of which each is small.
func tables(count int) (text string) {
	for i := range count {
		text += fmt.Sprintf("_t%d := [%s]\n\n", i, strings.TrimSuffix(strings.Repeat("\"0123456789\",", 500), ","))
	}
	return text
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
