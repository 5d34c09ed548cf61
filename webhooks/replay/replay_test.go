package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const stamp = "patch contains {\"op\": \"add\", \"path\": \"/spec/at\", \"value\": input.now} if true\n\n"

// An edit shows in the decisions that it changes, by what makes them others.
func TestEdits(t *testing.T) {
	red, big := deny("Red", "input.request.object.spec.red"), deny("Big", "input.request.object.spec.big")
	onError := func(s *v1alpha1.RegoPolicySpec) { s.OnError = v1alpha1.OnErrorAllow }
	exclude := func(s *v1alpha1.RegoPolicySpec) { s.Match.ExcludeUsers = []string{"ann"} }
	updates := func(s *v1alpha1.RegoPolicySpec) {
		s.Match.Resources[0].Operations = []v1alpha1.MatchOperation{"UPDATE"}
	}
	strict := "valid_input if is_boolean(input.request.object.spec.red)\n\n"
	for name, tc := range map[string]struct {
		was, now []v1alpha1.RegoPolicy
		want     string
		verdicts int
	}{
		"nothing":                    {list(policy("p", red+stamp)), list(policy("p", red+stamp)), "", 0},
		"a rule that goes":           {list(policy("p", red+big)), list(policy("p", big)), "1 denied>admitted p gone Red", 1},
		"a rule that comes":          {list(policy("p", big)), list(policy("p", red+big)), "1 admitted>denied p new Red", 1},
		"another reason":             {list(policy("p", red)), list(policy("p", deny("Reddish", "input.request.object.spec.red"))), "1 denied>denied p gone Red, 1 denied>denied p new Reddish", 0},
		"another message":            {list(policy("p", red)), list(policy("p", strings.ReplaceAll(red, "} is", "} really is"))), "", 0},
		"a policy that goes":         {list(policy("p", red), policy("q", big)), list(policy("q", big)), "1 denied>admitted p gone Red", 1},
		"one that says nothing goes": {list(policy("p", red), policy("q", deny("Never", "false"))), list(policy("p", red)), "", 0},
		"a policy that comes":        {list(policy("q", big)), list(policy("q", big), policy("p", red)), "1 admitted>denied p new Red", 1},
		"one of two denials goes":    {list(policy("p", red), policy("q", red)), list(policy("p", red)), "1 denied>denied q gone Red", 0},
		"Enforce to Warn":            {list(policy("p", red)), list(policy("p", red, mode("Warn"))), "1 denied>admitted p verdict denied -> warned", 1},
		"Audit to Enforce":           {list(policy("p", red, mode("Audit"))), list(policy("p", red)), "1 admitted>denied p verdict audited -> denied", 1},
		"Audit to Warn":              {list(policy("p", red, mode("Audit"))), list(policy("p", red, mode("Warn"))), "1 admitted>admitted p verdict audited -> warned", 0},
		"an exclusion":               {list(policy("p", red)), list(policy("p", red, exclude)), "1 denied>admitted p gone Red", 1},
		"a match":                    {list(policy("p", red)), list(policy("p", red, updates)), "1 denied>admitted p gone Red", 1},
		"an input not understood":    {list(policy("p", red)), list(policy("p", strict+red)), "1 admitted>denied p new InputNotUnderstood", 1},
		"the same, onError Allow":    {list(policy("p", red)), list(policy("p", strict+red, onError)), "1 admitted>admitted p new InputNotUnderstood", 0},
		"an error mended":            {list(policy("p", strict+red)), list(policy("p", red)), "1 denied>admitted p gone InputNotUnderstood", 1},
		"an error as before":         {list(policy("p", strict+red)), list(policy("p", strict+red)), "", 0},
		"another patch":              {list(policy("p", stamp)), list(policy("p", strings.ReplaceAll(stamp, "input.now", `"x"`))), "2 admitted>admitted p patches", 0},
		"a patch that comes":         {list(policy("p", red)), list(policy("p", red+stamp)), "2 admitted>admitted p patches", 0},
		"a patch that does not apply": {
			list(policy("p", stamp)), list(policy("p", strings.ReplaceAll(stamp, "/spec/at", "/no/at"))),
			"2 admitted>denied p new ContractViolated", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := recorded(t, world{}, tc.was, request(t, "red", `{"red": true}`), request(t, "plain", `{}`))
			_, s := replayed(t, text, tc.now...)
			if got := told(s); got != tc.want || s.Verdicts != tc.verdicts || s.Unreadable+s.Cut+s.Others > 0 {
				t.Errorf("got %q, %d verdicts of %d decisions, want %q, %d", got, s.Verdicts, s.Decisions, tc.want, tc.verdicts)
			}
			if want := strings.Count(text, "\n"); s.Decisions != want {
				t.Errorf("%d decisions of %d", s.Decisions, want)
			}
		})
	}
}

func list(p ...v1alpha1.RegoPolicy) []v1alpha1.RegoPolicy { return p }

// What is told of a flip is enough to find the request, and to see what a person would have read.
func TestFlipsTellWhoAndWhat(t *testing.T) {
	text := recorded(t, world{}, list(policy("p", deny("Red", "input.request.object.spec.red"))),
		request(t, "cm", `{"red": true}`, func(r *admissionv1.AdmissionRequest) { yes := true; r.DryRun = &yes }))
	results, _ := replayed(t, "starting\n"+text, policy("p", deny("Reddish", "input.request.object.spec.red")))
	if len(results) != 1 {
		t.Fatalf("got %d results", len(results))
	}
	r := results[0]
	got := fmt.Sprint(r.File, r.Line, " ", r.Time, " ", r.Endpoint, r.DryRun, " ", r.User, " ", r.Operation, " ", r.Kind, " ", r.Resource, " ", r.Namespace, "/", r.Name)
	if want := "day.log3 2026-11-20T10:00:00.000000005Z validatetrue ann CREATE ConfigMap configmaps ns/cm"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c := r.Changes[0]
	if c.Was.Denials[0].Message != "cm is Red" || c.Would.Denials[0].Message != "cm is Reddish" {
		t.Errorf("got %+v", c)
	}
}

func pod(name, node, phase, tier string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": node}, "status": map[string]any{"phase": phase},
		"metadata": map[string]any{"name": name, "namespace": "ns", "labels": map[string]any{"tier": tier}},
	}
}

// counts is a policy that refuses, and says how many pods a question brings up.
func counts(name, query string) v1alpha1.RegoPolicy {
	return policy(name, "facts.pods := "+query+"\n\n"+strings.ReplaceAll(deny("Pods", "true"), "{input.request.name}", "{count(input.facts.pods)} pods of {input.request.name}"))
}

// names is a policy that refuses, and says what a question for one object brings up.
func names(name, query string) v1alpha1.RegoPolicy {
	return policy(name, "facts.thing := "+query+"\n\n"+strings.ReplaceAll(deny("Thing", "true"), "{input.request.name}", "{json.marshal(input.facts.thing)} of {input.request.name}"))
}

// What an edited policy asks is answered from what was asked then, as far as that is certain.
func TestFactsAreAnsweredFromTheRecord(t *testing.T) {
	pods := []any{pod("a", "n1", "Running", "x"), pod("b", "n1", "Failed", "y"), pod("c", "n2", "Running", "x")}
	const inNamespace, everywhere = `{"apiVersion": "v1", "kind": "Pod", "namespace": "ns"`, `{"apiVersion": "v1", "kind": "Pod"`
	w := world{answers: map[string]any{
		"Pod": pods, "get": true, "parent": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d", "namespace": "ns"}},
		"Service": map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "s", "namespace": "ns"}},
	}}
	silent := policy("p", deny("Never", "false"))
	const access = `{"access": {"verb": "%s", "resource": "pods"}}`
	for name, tc := range map[string]struct {
		was  v1alpha1.RegoPolicy
		now  v1alpha1.RegoPolicy
		want string // the beginning of the message, or what there is no answer to
	}{
		"the same":                 {counts("p", inNamespace+`}`), counts("p", inNamespace+`}`), "3 pods"},
		"the same in another name": {counts("q", inNamespace+`}`), counts("p", inNamespace+`}`), "3 pods"},
		"the same, live":           {counts("p", inNamespace+`}`), counts("p", inNamespace+`, "freshness": "live"}`), "3 pods"},
		"fewer by a field":         {counts("p", inNamespace+`}`), counts("p", inNamespace+`, "fields": {"spec.nodeName": "n1"}}`), "2 pods"},
		"fewer by a label":         {counts("p", inNamespace+`}`), counts("p", inNamespace+`, "labels": {"tier": "x"}}`), "2 pods"},
		"fewer by an exception":    {counts("p", inNamespace+`}`), counts("p", inNamespace+`, "except": {"status.phase": ["Failed", "Gone"]}}`), "2 pods"},
		"fewer by more exceptions": {
			counts("p", inNamespace+`, "except": {"status.phase": ["Gone"]}}`), counts("p", inNamespace+`, "except": {"status.phase": ["Failed", "Gone"]}}`), "2 pods",
		},
		"exceptions in another order": {
			counts("p", inNamespace+`, "except": {"status.phase": ["A", "B"]}}`), counts("p", inNamespace+`, "except": {"status.phase": ["B", "A"]}}`), "3 pods",
		},
		"one namespace of all":     {counts("p", everywhere+`}`), counts("p", inNamespace+`}`), "3 pods"},
		"another namespace of all": {counts("p", everywhere+`}`), counts("p", everywhere+`, "namespace": "other"}`), "0 pods"},
		"one of a list":            {counts("p", inNamespace+`}`), names("p", inNamespace+`, "name": "b"}`), `{"apiVersion":"v1","kind":"Pod"`},
		"none of a list":           {counts("p", inNamespace+`}`), names("p", inNamespace+`, "name": "z"}`), "null of"},
		"one of a part":            {counts("p", inNamespace+`, "labels": {"tier": "x"}}`), names("p", inNamespace+`, "name": "a"}`), `{"apiVersion":"v1","kind":"Pod"`},
		"by name":                  {names("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "s"}`), names("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "s"}`), `{"apiVersion":"v1","kind":"Service"`},
		"itself":                   {silent, names("p", `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "cm"}`), "null of"},
		"a right":                  {names("p", fmt.Sprintf(access, "get")), names("p", fmt.Sprintf(access, "get")), "true of"},
		"the parent by its name":   {names("p", `{"parent": true}`), names("p", `{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "d"}`), `{"apiVersion":"apps/v1"`},
		"the parent":               {names("p", `{"parent": true}`), names("p", `{"parent": true}`), `{"apiVersion":"apps/v1"`},

		"a wider namespace":            {counts("p", inNamespace+`}`), counts("p", everywhere+`}`), "? every Pod"},
		"another namespace":            {counts("p", inNamespace+`}`), counts("p", everywhere+`, "namespace": "other"}`), "? every Pod in namespace other"},
		"more by a field less":         {counts("p", inNamespace+`, "fields": {"spec.nodeName": "n1"}}`), counts("p", inNamespace+`}`), "? every Pod in namespace ns"},
		"another value of a field":     {counts("p", inNamespace+`, "fields": {"spec.nodeName": "n1"}}`), counts("p", inNamespace+`, "fields": {"spec.nodeName": "n2"}}`), "? every Pod in namespace ns with spec.nodeName=n2"},
		"more by a label less":         {counts("p", inNamespace+`, "labels": {"tier": "x"}}`), counts("p", inNamespace+`}`), "? every Pod in namespace ns"},
		"another label":                {counts("p", inNamespace+`, "labels": {"tier": "x"}}`), counts("p", inNamespace+`, "labels": {"tier": "y"}}`), "? every Pod in namespace ns with label tier=y"},
		"fewer and more exceptions":    {counts("p", inNamespace+`, "except": {"status.phase": ["Gone"]}}`), counts("p", inNamespace+`, "except": {"status.phase": ["Failed"]}}`), "? every Pod in namespace ns with status.phase not Failed"},
		"more by an exception less":    {counts("p", inNamespace+`, "except": {"status.phase": ["Gone"]}}`), counts("p", inNamespace+`}`), "? every Pod in namespace ns"},
		"one that is not in a part":    {counts("p", inNamespace+`, "labels": {"tier": "x"}}`), names("p", inNamespace+`, "name": "z"}`), "? Pod z in namespace ns"},
		"all, where one was asked":     {names("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "s"}`), counts("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns"}`), "? every Service in namespace ns"},
		"another, where one was asked": {names("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "s"}`), names("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "t"}`), "? Service t in namespace ns"},
		"another kind":                 {counts("p", inNamespace+`}`), counts("p", `{"apiVersion": "v1", "kind": "Service", "namespace": "ns"}`), "? every Service in namespace ns"},
		"another right":                {names("p", fmt.Sprintf(access, "get")), names("p", fmt.Sprintf(access, "list")), "? may the requester list pods"},
		"another kind than the parent": {names("p", `{"parent": true}`), names("p", `{"apiVersion": "apps/v1", "kind": "ReplicaSet", "namespace": "ns", "name": "d"}`), "? ReplicaSet d in namespace ns"},
		"the parent, not asked for":    {silent, names("p", `{"parent": true}`), "? the object that the subresource belongs to"},
	} {
		t.Run(name, func(t *testing.T) {
			text := recorded(t, w, list(tc.was), request(t, "cm", `{}`))
			other := tc.now
			other.Spec.Modules[0].Source = strings.NewReplacer(`"Pods"`, `"Other"`, `"Thing"`, `"Other"`, "reason: Pods", "reason: Other", "reason: Thing", "reason: Other").Replace(other.Spec.Modules[0].Source)
			results, s := replayed(t, text, other)
			if len(results) == 0 {
				t.Fatal("nothing was told")
			}
			d := results[0].Decision
			if problem, unknown := strings.CutPrefix(tc.want, "? "); unknown {
				if s.Undecided != 1 || len(d.Unknown) != 1 || !strings.HasSuffix(d.Unknown[0].Why, "the record has no answer to: "+problem) {
					t.Errorf("got %+v", d)
				}
				return
			}
			if s.Undecided != 0 {
				t.Fatalf("undecided: %+v", d.Unknown)
			}
			said := d.Changes[len(d.Changes)-1].Would
			if d.Changes[0].Policy == "p" {
				said = d.Changes[0].Would
			}
			if !strings.HasPrefix(said.Denials[0].Message, tc.want) {
				t.Errorf("got %q, want %q", said.Denials[0].Message, tc.want)
			}
		})
	}
}

// A denial that rests on a cache was asked again; what came of that is what is replayed.
func TestConfirmedDenialsAreReplayed(t *testing.T) {
	p := counts("p", `{"apiVersion": "v1", "kind": "Pod", "namespace": "ns"}`)
	text := recorded(t, world{cached: true, answers: map[string]any{"Pod": []any{pod("a", "n", "Running", "x")}}}, list(p), request(t, "cm", `{}`))
	if !strings.Contains(text, `"confirmation":"confirmed"`) {
		t.Fatalf("nothing was confirmed: %s", text)
	}
	if results, s := replayed(t, text, p); len(results) != 0 || s.Decisions != 2 {
		t.Errorf("got %s", told(s))
	}
}

// A request that one policy certainly denies is denied, whatever cannot be asked.
func TestWhatCannotBeAskedLeavesOpenOnlyWhatItCouldChange(t *testing.T) {
	asks := func(change ...func(*v1alpha1.RegoPolicySpec)) v1alpha1.RegoPolicy {
		p := counts("q", `{"apiVersion": "v1", "kind": "Pod", "namespace": "ns"}`)
		for _, c := range change {
			c(&p.Spec)
		}
		return p
	}
	text := recorded(t, world{}, list(policy("p", deny("Red", "input.request.object.spec.red"))), request(t, "cm", `{}`))
	onErrorAllow := func(s *v1alpha1.RegoPolicySpec) { s.OnError = v1alpha1.OnErrorAllow }
	for name, tc := range map[string]struct {
		now                 []v1alpha1.RegoPolicy
		would               string
		flips, verdictFlips bool
	}{
		"it could deny":               {list(asks()), "undecided", false, false},
		"it could deny, onError":      {list(asks(onErrorAllow)), "undecided", false, false},
		"it cannot deny in mode Warn": {list(asks(mode("Warn"))), "admitted", false, false},
		"another denies":              {list(asks(), policy("p", deny("Plain", "not input.request.object.spec.red"))), "denied", true, true},
		"another warns":               {list(asks(), policy("p", deny("Plain", "not input.request.object.spec.red"), mode("Warn"))), "undecided", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			results, s := replayed(t, text, tc.now...)
			if len(results) != 1 || s.Undecided != 1 {
				t.Fatalf("got %d results, %s", len(results), told(s))
			}
			if d := results[0]; string(d.Would) != tc.would || d.Flips() != tc.flips || d.FlipsVerdict() != tc.verdictFlips {
				t.Errorf("would be %s, flips %v, verdict %v", d.Would, d.Flips(), d.FlipsVerdict())
			}
		})
	}
}

// That an API server could not be read then says nothing of an edit.
func TestFailuresOfTheMomentAreNoFlips(t *testing.T) {
	p := counts("p", `{"apiVersion": "v1", "kind": "Pod", "namespace": "ns"}`)
	text := recorded(t, world{err: errors.New("connection refused")}, list(p), request(t, "cm", `{}`))
	if _, s := replayed(t, text, p); told(s) != "1? p FailedThen" {
		t.Errorf("the same policy: %s", told(s))
	}
	_, s := replayed(t, text, policy("p", deny("Red", "input.request.object.spec.red")))
	if told(s) != "1? p FailedThen" || s.Flips != 0 {
		t.Errorf("one that asks nothing: %s", told(s))
	}
}

// Records leave out the data of Secrets. What a policy makes of it cannot be told.
func TestWhatRecordsLeaveOut(t *testing.T) {
	const secrets = `facts.secrets := {"apiVersion": "v1", "kind": "Service", "namespace": "ns"}` + "\n\n"
	reads := policy("p", secrets+deny("Weak", `input.facts.secrets[_].data.password == "eA=="`))
	listed := policy("p", secrets+deny("Many", `count(input.facts.secrets) > 0`))
	w := world{answers: map[string]any{"Service": []any{map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"password": "eA=="}}}}}
	if _, s := replayed(t, recorded(t, w, list(reads), request(t, "cm", `{}`)), reads); told(s) != "1? p LeftOut" {
		t.Errorf("a policy that reads the data: %s", told(s))
	}
	if _, s := replayed(t, recorded(t, w, list(listed), request(t, "cm", `{}`)), listed); told(s) != "" {
		t.Errorf("a policy that counts Secrets: %s", told(s))
	}
	if _, s := replayed(t, recorded(t, world{answers: map[string]any{"Service": []any{}}}, list(reads), request(t, "cm", `{}`)), reads); told(s) != "" {
		t.Errorf("a policy that reads the data, where there is no Secret: %s", told(s))
	}
	remembers := policy("p", deny("Applied", `input.request.object.metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`))
	if _, s := replayed(t, recorded(t, w, list(remembers), request(t, "cm", `{}`)), remembers); told(s) != "1? p LeftOut" {
		t.Errorf("a policy that reads what was applied last: %s", told(s))
	}
}

// A request that was too large for its record is undecided, by policies that were asked and by all others.
func TestWhatIsTooLargeForARecord(t *testing.T) {
	reads := policy("p", deny("Long", `count(input.request.object.spec.a) > 9`))
	long := fmt.Sprintf(`{"a": %q}`, strings.Repeat("x", 300_000))
	lines := recorded(t, world{}, list(reads), request(t, "cm", long))
	results, s := replayed(t, lines, reads)
	if told(s) != "1? every policy TooLarge, 1? p TooLarge" { // the first is of the mutating webhook, which p says nothing at
		t.Error(told(s))
	}
	if r := results[1]; r.Was != "denied" || r.Would != "undecided" || r.Name != "cm" || r.User != "ann" {
		t.Errorf("got %+v", r.Decision)
	}
	other := func(s *v1alpha1.RegoPolicySpec) { s.Match.Resources[0].Resources = []string{"pods"} }
	if _, s := replayed(t, recorded(t, world{}, list(policy("p", deny("Long", "true"), other)), request(t, "cm", long)), reads); s.Undecided != s.Decisions || s.Flips > 0 {
		t.Errorf("without a policy: %+v", s)
	}
	// A fact that is too large is none that the record has.
	many := make([]any, 5000)
	for i := range many {
		many[i] = map[string]any{"metadata": map[string]any{"name": strings.Repeat("p", 60)}}
	}
	counts := policy("p", `facts.pods := {"apiVersion": "v1", "kind": "Pod", "namespace": "ns"}`+"\n\n"+deny("Many", `count(input.facts.pods) > 9`))
	w := world{answers: map[string]any{"Pod": many}}
	if _, s := replayed(t, recorded(t, w, list(counts), request(t, "cm", `{}`)), counts); told(s) != "1? p FactNotRecorded pods" {
		t.Errorf("a large fact: %s", told(s))
	}
}

// What a test run brought up is known for the document that was tested, as records keep it.
func TestTestRuns(t *testing.T) {
	applied := func(r *admissionv1.AdmissionRequest) {
		r.Object.Raw = []byte(`{"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "a": "b"}}, "data": {}}`)
	}
	w := world{answers: map[string]any{"testRun": map[string]any{"problems": []any{}}}}
	text := recorded(t, w, list(names("p", `{"testRun": input.request.object}`)), request(t, "cm", `{}`, applied))
	for query, want := range map[string]string{
		`{"testRun": input.request.object}`:      "",
		`{"testRun": input.request.object.data}`: "1? p FactNotRecorded thing",
	} {
		if _, s := replayed(t, text, names("p", query)); told(s) != want {
			t.Errorf("%s: got %q", query, told(s))
		}
	}
}
