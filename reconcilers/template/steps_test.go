package template

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// at is when a version was made, the later the larger.
func at(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }

// parsed makes a view of words such as P=1, T=2? or K1=1: who has which release. A question mark is what is imported and no template, two
// what is partial, ! what is not ours, * what machines are made from. P is the template's name, T the one while it is imported, O that of
// what is given up, and K and a release the one of what is kept.
func parsed(w *wanted, text string) (v templates.View) {
	v.Others = map[string]bool{}
	for _, word := range strings.Fields(text) {
		who, what, _ := strings.Cut(word, "=")
		release := strings.TrimRight(what, "?!*")
		item := templates.Item{Mark: templates.Mark{Release: release, Digest: "d" + release}, MoRef: word, InstanceUUID: word, Stage: templates.Whole, Busy: strings.Contains(what, "*")}
		if n, err := strconv.Atoi(release); err == nil {
			item.Made = at(n)
		}
		item.Stage -= templates.Stage(strings.Count(what, "?"))
		switch {
		case who == "P":
			item.Name = w.name
		case who == "T":
			item.Name = (&wanted{Mark: item.Mark}).temporaryName()
		case who == "O":
			item.Name = doomedName(&item)
		case strings.HasPrefix(who, "K"):
			item.Name = w.name + "-" + strings.TrimPrefix(who, "K")
		default:
			item.Name = who
		}
		if strings.HasSuffix(what, "!") {
			v.Others[item.Name] = true
			continue
		}
		v.Items = append(v.Items, item)
	}
	return v
}

// said is a step in words.
func said(w *wanted, s step) string {
	text := string(s.do)
	if s.old != nil {
		text += " " + s.old.MoRef + " by"
	}
	if s.item != nil {
		text += " " + s.item.MoRef
	}
	if s.why != nil {
		text += " " + s.why.reason
	}
	if s.name != "" && s.name != w.name {
		text += " as " + strings.ReplaceAll(s.name, w.name, "P")
		if s.old != nil && s.name == doomedName(s.old) {
			text = strings.TrimSuffix(text, s.name) + "O"
		}
	}
	return text
}

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		seen, want string
		change     func(*wanted)
	}{
		{seen: "", want: "import"},
		{seen: "P=1", want: "import"},
		{seen: "P=2", want: "none"},
		// What an import left behind.
		{seen: "T=2??", want: "remove T=2??"},
		{seen: "P=1 T=2??", want: "remove T=2??"},
		{seen: "P=1 T=3??", want: "remove T=3??"},
		{seen: "P=1 T=3?", want: "remove T=3?"},
		{seen: "P=1 T=2?", want: "finish T=2?"},
		{seen: "T=2?", want: "finish T=2?"},
		{seen: "P=2 T=2?", want: "remove T=2?"},
		{seen: "P=2 T=2??", want: "remove T=2??"},
		{seen: "P=1 T=2??", want: "none", change: func(w *wanted) { w.importing = w.temporaryName() }},
		{seen: "P=2 T=3", want: "remove T=3"},
		// The swap, and what a crash leaves of it.
		{seen: "P=1 T=2", want: "replace P=1 by T=2 as O"},
		{seen: "P=1 T=2", want: "replace P=1 by T=2 as P-1", change: func(w *wanted) { w.keep = 1 }},
		{seen: "O=1 T=2", want: "promote T=2"},
		{seen: "K1=1 T=2", want: "promote T=2", change: func(w *wanted) { w.keep = 1 }},
		{seen: "T=2", want: "promote T=2"},
		{seen: "O=1", want: "promote O=1"},
		{seen: "O=1 T=2??", want: "promote O=1"},
		{seen: "O=1 T=2?", want: "promote O=1"},
		{seen: "O=1 T=2", want: "promote O=1", change: func(w *wanted) { w.failed = map[string]bool{"T=2": true} }},
		{seen: "P=2 O=1", want: "remove O=1"},
		{seen: "P=2 O=1*", want: "hold O=1* TemplateInUse"},
		{seen: "P=2 O=1* T=3??", want: "remove T=3??"},
		{seen: "P=1* T=2", want: "hold P=1* TemplateInUse"},
		{seen: "P=1* T=2", want: "replace P=1* by T=2 as O", change: func(w *wanted) { w.overdue = true }},
		{seen: "P=2?", want: "finish P=2?"},
		{seen: "P=1? T=2", want: "remove P=1?"},
		{seen: "P=1?", want: "remove P=1?"},
		// What is kept.
		{seen: "P=2 K1=1", want: "remove K1=1"},
		{seen: "P=2 K1=1", want: "none", change: func(w *wanted) { w.keep = 1 }},
		{seen: "P=2 K1=1 K0=0", want: "remove K0=0", change: func(w *wanted) { w.keep = 1 }},
		{seen: "P=2 K1=1 K0=0", want: "none", change: func(w *wanted) { w.keep = 2 }},
		{seen: "P=2 moved=1", want: "put moved=1 as P-1", change: func(w *wanted) { w.keep = 1 }},
		{seen: "P=2 moved=1 K1=x!", want: "none", change: func(w *wanted) { w.keep = 1 }},
		{seen: "P=3 K2=2", want: "replace P=3 by K2=2 as P-3", change: func(w *wanted) { w.keep = 1 }},
		{seen: "P=3 K2=2", want: "replace P=3 by K2=2 as O"},
		{seen: "K3=3 K2=2", want: "promote K2=2", change: func(w *wanted) { w.keep = 1 }},
		{seen: "P=1 T=2 K1=1", want: "remove K1=1", change: func(w *wanted) { w.keep = 1 }},
		{seen: "K1=1 K0=0", want: "promote K1=1", change: func(w *wanted) { w.keep = 2 }},
		{seen: "K1=1 K0=0", want: "promote K0=0", change: func(w *wanted) { w.keep, w.was = 2, "K0=0" }},
		// What is not ours.
		{seen: "P=x!", want: "hold ForeignTemplate"},
		{seen: "P=x! T=2 O=1", want: "hold ForeignTemplate"},
		{seen: "P=1 T=2x!", want: "import"},
		{seen: "P=1 T=2!", want: "hold ForeignTemplate"},
		{seen: "P=1 T=2 K1=x!", want: "replace P=1 by T=2 as O"},
		{seen: "P=1 T=2 K1=x!", want: "hold ForeignTemplate", change: func(w *wanted) { w.keep = 1 }},
		// A pause holds back what nothing needs to be whole.
		{seen: "", want: "hold Paused", change: func(w *wanted) { w.paused = true }},
		{seen: "P=1", want: "hold Paused", change: func(w *wanted) { w.paused = true }},
		{seen: "P=1 T=2", want: "hold Paused", change: func(w *wanted) { w.paused = true }},
		{seen: "P=2 O=1", want: "hold Paused", change: func(w *wanted) { w.paused = true }},
		{seen: "P=2", want: "none", change: func(w *wanted) { w.paused = true }},
		{seen: "O=1 T=2", want: "promote T=2", change: func(w *wanted) { w.paused = true }},
		{seen: "O=1", want: "promote O=1", change: func(w *wanted) { w.paused = true }},
		// The end.
		{seen: "P=1 T=2??", want: "remove P=1", change: func(w *wanted) { w.gone = true }},
		{seen: "P=1* K0=0", want: "remove K0=0", change: func(w *wanted) { w.gone = true }},
		{seen: "P=1*", want: "hold P=1* TemplateInUse", change: func(w *wanted) { w.gone = true }},
		{seen: "P=x! T=3!", want: "vanished", change: func(w *wanted) { w.gone = true }},
		{seen: "P=1", want: "none", change: func(w *wanted) { w.gone, w.importing = true, "T" }},
	} {
		w := &wanted{Mark: templates.Mark{Release: "2", Digest: "d2"}, name: name}
		if tc.change != nil {
			tc.change(w)
		}
		if got := said(w, w.next(parsed(w, tc.seen))); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.seen, got, tc.want)
		}
	}
}
