package webhooks

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// "Exceptions abused or combined" (GHSA-gg4x-fgg2-h9w9: two exceptions add up): an override passes the policy that it names and
// no other, however many are written into it.
func TestExceptionsCombined(t *testing.T) {
	for name, tc := range map[string]struct {
		text, message, warning string
	}{
		"one for each of two":       {good, "[size/TooBig] x has big", "[colour/TooRed] is overridden"},
		"another one in the reason": {good + "; size; uid=; by=alice; until=2026-11-20T10:30:00Z; drill", "[size/TooBig] x has big", "[colour/TooRed] is overridden"},
		"two lines": {good + "\nsize; uid=; by=alice; until=2026-11-20T10:30:00Z; drill", "[colour/TooRed] x has red\n[size/TooBig] x has big",
			"it has line breaks or other control characters, and there can be one override only"},
		"a list of names": {strings.Replace(good, "colour", "colour,size", 1), "[colour/TooRed] x has red\n[size/TooBig] x has big", `policy "colour,size" does not exist`},
		"all of them":     {strings.Replace(good, "colour", "*", 1), "[colour/TooRed] x has red\n[size/TooBig] x has big", `policy "*" does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, e := overridable(t)
			got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, redAndBig, by("alice"), annotatedWith(tc.text)))
			if got.Allowed || got.Result.Message != tc.message || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], tc.warning) {
				t.Errorf("got %+v", got)
			}
			if len(e.events) > 0 || f.count(t, "sallyport_policy_overrides_total") > 0 {
				t.Errorf("a request that was refused is told of: %q", e.events)
			}
		})
	}
}

// GHSA-qjvc-p88j-j9rm, an exception made where the requester may write, for what is elsewhere: an override is good for the object
// that it stands on, and not because somebody could write it there.
func TestExceptionMadeElsewhere(t *testing.T) {
	elsewhere := func(r *admissionv1.AdmissionRequest) { r.Namespace, r.Name = "other", "other" }
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		text      string
		change    func(*admissionv1.AdmissionRequest)
		warning   string
	}{
		"copied from another object":        {"UPDATE", strings.Replace(good, "uid=", "uid=u-2", 1), by("alice"), "uid= must be the UID of this object"},
		"of the object that was there once": {"CREATE", strings.Replace(good, "uid=", "uid=u-0", 1), by("alice"), "uid= must be empty"},
		"written by who may not override":   {"UPDATE", strings.Replace(good, "uid=; by=alice", "uid=u-1; by=mallory", 1), by("mallory"), "mallory may not override policy colour"},
		"written for somebody who may":      {"UPDATE", strings.Replace(good, "uid=", "uid=u-1", 1), by("mallory"), "by= is not the user who sent this request"},
		"by nobody":                         {"CREATE", strings.Replace(good, "alice", "nobody", 1), func(r *admissionv1.AdmissionRequest) { elsewhere(r); by("nobody")(r) }, "may not override policy colour"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, _ := overridable(t)
			got := f.Validate(t.Context(), reviewOf(t, tc.operation, red, annotatedWith(tc.text), tc.change))
			if got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], tc.warning) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// "Exemption scope wider than intended": what a person wrote, and left there, helps neither the autoscaler nor anybody else, and
// not the same person at something else.
func TestExemptionScopeWiderThanIntended(t *testing.T) {
	left := annotatedWith(strings.Replace(good, "uid=", "uid=u-1", 1))
	scale := func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }
	for name, tc := range map[string]struct {
		text    string
		change  []func(*admissionv1.AdmissionRequest)
		warning string
	}{
		"the autoscaler": {change: list(left, scale, by("system:serviceaccount:kube-system:horizontal-pod-autoscaler")),
			warning: "by= is not the user who sent this request"},
		"another user":                    {change: list(left, by("bob")), warning: "by= is not the user who sent this request"},
		"good for the creation only":      {change: list(annotatedWith(good), by("alice")), warning: "uid= must be the UID of this object"},
		"a user called like a policy's":   {change: list(left, by("Alice")), warning: "by= is not the user"},
		"a policy called alike, by case":  {change: list(annotatedWith(strings.Replace(good, "colour", "Colour", 1)), by("alice")), warning: `policy "Colour" does not exist`},
		"a policy called alike, by start": {change: list(annotatedWith(strings.Replace(good, "colour", "col", 1)), by("alice")), warning: `policy "col" does not exist`},
		"a word in another case":          {change: list(annotatedWith(strings.Replace(good, "uid=", "UID=u-1", 1)), by("alice")), warning: "the second field must be uid="},
		"a space that is none":            {change: list(annotatedWith(strings.Replace(good, "colour", "colour\u200b", 1)), by("alice")), warning: " does not exist"},
		"a tab":                           {change: list(annotatedWith(strings.Replace(good, " uid", "\tuid", 1)), by("alice")), warning: "control characters"},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, _ := overridable(t, onScale)
			r.parent = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": "u-1",
				"annotations": {"sallyport.dev/override": "colour; uid=u-1; by=alice; until=2026-11-20T10:30:00Z; drill"}}}`
			got := f.Validate(t.Context(), reviewOf(t, admissionv1.Update, red, tc.change...))
			if got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], tc.warning) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A manifest with generateName makes as many objects as somebody sends it, and each is a creation that somebody answers for: both
// are told. What was written for the creation is good for neither from then on.
func TestOverrideWithGenerateName(t *testing.T) {
	f, _, e := overridable(t)
	object := func(uid string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) {
			for _, raw := range []*[]byte{&r.Object.Raw, &r.OldObject.Raw} {
				if len(*raw) == 0 {
					continue
				}
				*raw = []byte(strings.NewReplacer(`"name": "cm"`, `"generateName": "cm-", "name": "cm-`+uid+`"`, `"u-1"`, `"`+uid+`"`).Replace(string(*raw)))
			}
			r.Name = ""
		}
	}
	for _, uid := range []string{"one", "two"} {
		if got := f.Validate(t.Context(), verified(reviewOf(t, admissionv1.Create, red, object(uid), annotatedWith(good), by("alice")))); !got.Allowed {
			t.Errorf("%s: got %+v", uid, got.Result)
		}
		if last := e.events[len(e.events)-1]; !strings.Contains(last, "CREATE of ConfigMap ns/cm-"+uid) {
			t.Errorf("told %q", last)
		}
		update := reviewOf(t, admissionv1.Update, red, object(uid), annotatedWith(good), by("alice"))
		if got := f.Validate(t.Context(), update); got.Allowed || !strings.Contains(got.Warnings[0], "must be the UID of this object") {
			t.Errorf("%s: an update got %+v", uid, got)
		}
	}
	if got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, red, object("three"), annotatedWith(good), by("bob"))); got.Allowed {
		t.Error("the manifest helps who must not override")
	}
}

// Two who try at once are judged each for themselves.
func TestOverridesAtOnce(t *testing.T) {
	f, _, _ := overridable(t)
	f.recorder.WriteEvents(nil)
	users := []string{"alice", "bob", "alice", "bob", "alice", "bob"}
	answers := make(chan string, len(users))
	for _, user := range users {
		review := reviewOf(t, admissionv1.Create, red, by(user), annotatedWith(good))
		go func() {
			if f.Validate(t.Context(), review).Allowed {
				answers <- "alice"
			} else {
				answers <- "bob"
			}
		}()
	}
	count := map[string]int{}
	for range users {
		count[<-answers]++
	}
	if count["alice"] != 3 {
		t.Errorf("%d requests passed, of three by alice", count["alice"])
	}
}

// An override ends what a policy that is broken keeps out as well; but not of the one that says who asked: without it anybody
// could write that somebody else did.
func TestOverrideOfABrokenPolicy(t *testing.T) {
	f, _, _ := overridable(t)
	var c catalogOf
	for name, tc := range map[string]struct {
		who    v1alpha1.PolicyOverride
		passes bool
	}{"users": {"", true}, "nobody": {v1alpha1.OverrideNobody, false}} {
		f.Swap(c.build(t, policyOf("colour", "x := \n", whoMay(tc.who))))
		got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, harmless, by("alice"), annotatedWith(good)))
		if got.Allowed != tc.passes {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// An operation on a machine that is not there is refused to who may override the policy, too: there is nothing to act on. Nor does
// an override count that says nobody's name.
func TestOverrideForAMachineThatIsNotThere(t *testing.T) {
	const applicability = "operations-applicability"
	for _, by := range []string{"by=alice; ", ""} {
		f := newShippedFixture(t, world{})
		f.facts = &nowhere{rights: rights{holders: map[string]string{"alice": applicability}}}
		o := svmop("a", v1alpha1.OperationStop, false)
		o.Annotations = map[string]string{v1alpha1.AnnotationOverride: applicability + "; uid=; " + by + "until=2026-11-20T10:30:00Z; drill"}
		o.Spec.RequestedBy.Username = "alice"
		got := f.Validate(t.Context(), creationOf(t, &o))
		if got.Allowed || !strings.Contains(got.Result.Message, "[operations-applicability/VirtualMachineNotFound]") || len(got.Warnings) != 1 {
			t.Errorf("%q: got %+v, %q", by, got.Result, got.Warnings)
		}
	}
}

// nowhere is a world without any machine or operation.
type nowhere struct{ rights }

func (n *nowhere) For(request *admissionv1.AdmissionRequest, _ facts.Subject) engine.Reader {
	return nothingBut{asking{&n.rights, request.UserInfo.Username}}
}

type nothingBut struct{ asking }

func (n nothingBut) Read(ctx context.Context, q engine.Query) (engine.Answer, error) {
	if q.Kind == "" {
		return n.asking.Read(ctx, q)
	}
	v, err := engine.ParseValue([]byte("null"))
	if q.Name == "" {
		v, err = engine.ParseValue([]byte("[]"))
	}
	return engine.Answer{Value: v, Live: true}, err
}
