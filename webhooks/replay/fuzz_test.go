package replay_test

import (
	"testing"

	"sallyport.dev/sallyport/webhooks/replay"
)

// Logs hold anything. Whatever a line says, it is told of or passed over, and costs no other line.
func FuzzReplayOfALine(f *testing.F) {
	const pods, access, parent = `{"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "labels": {"tier": "x"}}`, `{"access": {"verb": "get", "resource": "pods"}}`, `{"parent": true}`
	set := compiled(f, counts("p", pods), names("q", access), names("r", parent), policy("s", stamp, selecting("gold")))
	w := world{answers: map[string]any{"Pod": []any{pod("a", "n", "Running", "x")}, "get": true, "Namespace": map[string]any{}}}
	good := recorded(f, w, list(counts("p", `{"apiVersion": "v1", "kind": "Pod"}`), names("q", access), policy("s", stamp, selecting("gold"))), request(f, "cm", `{"red": true}`))
	f.Add(good)
	f.Add("I0101 starting\n" + good[:len(good)/2])
	f.Add(`{"decisionRecord":1,"time":"2026-11-20T10:00:00.000000005Z","endpoint":"validate","request":{"resource":{"version":"v1","resource":"configmaps"},"operation":"CREATE","object":[]},"policies":[{"facts":{"pods":{"query":{"kind":"Pod","apiVersion":"v1"},"value":[null,{"metadata":7}]}}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		told := 0
		summary, err := replay.New(set).Replay(t.Context(), []replay.Input{input("f", text)}, func(*replay.Result) error { told++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if told > summary.Decisions+summary.Unreadable+summary.Cut {
			t.Errorf("%d were told of: %+v", told, summary)
		}
	})
}
