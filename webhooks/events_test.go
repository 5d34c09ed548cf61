package webhooks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/events"
)

// versioned has the object that is stored, as the review has it, in a version.
func versioned(r *admissionv1.AdmissionRequest) {
	r.OldObject.Raw = []byte(strings.Replace(string(r.OldObject.Raw), `"uid"`, `"resourceVersion": "7", "uid"`, 1))
}

// storedAs is the object as its metadata is read.
func storedAs(uid, version, override string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": %q, "resourceVersion": %q,
		"annotations": {"sallyport.dev/override": %q}}}`, uid, version, override)
}

// A review that nobody vouches for makes an event only of what is so, and names nobody: who posted it can have written any user, any
// object and any override.
func TestEventsOfReviewsThatAnybodyCanHaveMadeUp(t *testing.T) {
	mine := strings.Replace(good, "uid=", "uid=u-1", 1)
	scale := func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }
	refused := list(versioned, by("bob"))
	onObject := []string{"Warning TooRed ConfigMap/cm(u-1) Update RegoPolicy: [colour/TooRed] x has red (UPDATE)"}
	passed := func(what string) []string {
		note := fmt.Sprintf("the override of alice let a request pass [colour/TooRed] (%s of ConfigMap ns/cm, until 2026-11-20T10:30:00Z): drill 7; see the wiki", what)
		return []string{"Warning Overridden ConfigMap/cm(u-1) Override RegoPolicy: " + note, "Warning Overridden RegoPolicy/colour() Override ConfigMap: " + note}
	}
	for name, tc := range map[string]struct {
		operation      admissionv1.Operation
		change         []func(*admissionv1.AdmissionRequest)
		parent, object string
		want           []string
		looked         int
	}{
		"refused, of an object that is so":        {operation: "UPDATE", change: refused, object: storedAs("u-1", "7", ""), want: onObject, looked: 1},
		"refused, of one that has moved on":       {operation: "UPDATE", change: refused, object: storedAs("u-1", "8", ""), looked: 1},
		"refused, of another one":                 {operation: "UPDATE", change: refused, object: storedAs("u-2", "7", ""), looked: 1},
		"refused, of one that is not there":       {operation: "UPDATE", change: refused, object: "null", looked: 1},
		"refused, of one that may not be read":    {operation: "UPDATE", change: refused},
		"refused, a deletion":                     {operation: "DELETE", change: refused, object: storedAs("u-1", "8", ""), looked: 1},
		"refused, of its parent":                  {operation: "UPDATE", change: append(list(scale), refused...), parent: storedAs("u-1", "7", ""), want: []string{strings.Replace(onObject[0], "UPDATE", "UPDATE of scale", 1)}},
		"refused, of a parent that has moved on":  {operation: "UPDATE", change: append(list(scale), refused...), parent: storedAs("u-1", "8", "")},
		"passed, and stored":                      {operation: "CREATE", change: list(by("alice"), annotatedWith(good)), object: storedAs("u-1", "1", good), want: passed("CREATE"), looked: 1},
		"passed, and stored as another":           {operation: "CREATE", change: list(by("alice"), annotatedWith(good)), object: storedAs("u-2", "1", good), looked: 1},
		"passed, and stored without the override": {operation: "UPDATE", change: list(by("alice"), annotatedWith(mine)), object: storedAs("u-1", "1", ""), looked: 1},
		"passed, and never stored":                {operation: "CREATE", change: list(by("alice"), annotatedWith(good)), object: "null", looked: 1},
		"passed, and deleted":                     {operation: "DELETE", change: list(versioned, by("alice"), annotatedWith(mine)), object: storedAs("u-1", "7", mine), want: passed("DELETE"), looked: 1},
		"deleted, and it may not be read":         {operation: "DELETE", change: list(versioned, by("alice"), annotatedWith(mine))},
		"passed, by what its parent has":          {operation: "UPDATE", change: list(scale, versioned, by("alice")), parent: storedAs("u-1", "7", mine), want: passed("UPDATE of scale")},
		"passed, by what a parent has that moved": {operation: "UPDATE", change: list(scale, versioned, by("alice")), parent: storedAs("u-1", "9", mine)},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, e := overridable(t, onScale)
			r.parent, r.object = tc.parent, tc.object
			review := reviewOf(t, tc.operation, red, tc.change...)
			got := f.Validate(t.Context(), review)
			f.events.Wait()
			if got.Allowed == strings.HasPrefix(name, "refused") {
				t.Errorf("allowed is %t: %+v, %q", got.Allowed, got.Result, got.Warnings)
			}
			if diff := cmp.Diff(tc.want, e.events); diff != "" || r.looked != tc.looked {
				t.Errorf("looked %d times, events (-want +got):\n%s", r.looked, diff)
			}
			if n := f.count(t, "sallyport_events_dropped_total", "unproven"); (n == 1) != (tc.want == nil) {
				t.Errorf("counted %v times", n)
			}
			if f.only(t).Verified {
				t.Error("the record has it as verified")
			}
		})
	}
}

// A deletion is judged by the override that is stored; one that the review has made up, or one of another object, is none.
func TestOverrideOfADeletionIsReadLive(t *testing.T) {
	mine := strings.Replace(good, "uid=", "uid=u-1", 1)
	for name, tc := range map[string]struct {
		object string
		passes bool
	}{
		"that is stored":          {storedAs("u-1", "8", mine), true},
		"that is not stored":      {storedAs("u-1", "8", ""), false},
		"of what is not there":    {"null", false},
		"of another object":       {storedAs("u-2", "7", mine), false},
		"that may not be read":    {"", true},
		"that cannot be read now": {"broken", false},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, _ := overridable(t)
			r.object = tc.object
			got := f.Validate(t.Context(), reviewOf(t, admissionv1.Delete, red, by("alice"), annotatedWith(mine)))
			if got.Allowed != tc.passes {
				t.Errorf("got %+v, %q", got.Result, got.Warnings)
			}
		})
	}
	f, r, _ := overridable(t)
	r.object = storedAs("u-1", "7", "")
	allowed := f.Validate(t.Context(), reviewOf(t, admissionv1.Delete, red, by("alice"))).Allowed
	f.events.Wait() // it looks once
	if allowed || r.looked > 1 {
		t.Errorf("without an override the object is looked at %d times", r.looked)
	}
}

// await returns when as many objects were read, and what waits then is dropped.
func (f *fixture) await(t *testing.T, r *rights, reads int) {
	t.Helper()
	for r.reads() < reads {
		if t.Context().Err() != nil {
			t.Fatalf("only %d objects are read", r.reads())
		}
		time.Sleep(time.Millisecond)
	}
	f.recorder.Close(time.Minute)
	f.events.Wait()
}

// What is made up faster than it can be looked at is dropped, and counted.
func TestEventsThatAreTooMany(t *testing.T) {
	f, r, e := overridable(t)
	r.object = storedAs("u-1", "7", "")
	const most, asked = 10, 60
	f.writeEvents(e, events.Limits{Rate: 1e-9, Burst: most, Pending: 30})
	for range asked {
		f.Validate(t.Context(), reviewOf(t, admissionv1.Update, red, by("bob"), versioned))
	}
	f.await(t, r, most)
	dropped := int(f.count(t, "sallyport_events_dropped_total", "busy"))
	if len(e.events) != most || dropped != asked-most {
		t.Errorf("%d are told and %d dropped, of %d", len(e.events), dropped, asked)
	}
}

// A warning says what is wrong with an override, and nothing that somebody who made the review up could not know.
func TestWarningsTellNothingOfOverrides(t *testing.T) {
	for _, text := range []string{
		"s3cret", "s3cret; uid=u-1", "colour; s3cret", "colour; uid=s3cret; by=alice; until=2026-11-20T10:30:00Z; s3cret", "colour; uid=u-1; by=s3cret; until=2026-11-20T10:30:00Z; s3cret",
		"colour; uid=u-1; s3cret; until=2026-11-20T10:30:00Z; s3cret", "colour; uid=u-1; by=alice; s3cret; s3cret", "colour; uid=u-1; by=alice; until=s3cret; s3cret",
		"s3cret; uid=u-1; by=bob; until=2026-11-20T10:30:00Z; s3cret", "colour; uid=u-0; by=alice; until=2026-11-20T10:30:00Z; s3cret",
	} {
		f, r, _ := overridable(t, onScale)
		r.parent = storedAs("u-s3cret", "7", text)
		got := f.Validate(t.Context(), reviewOf(t, admissionv1.Update, red, by("alice"), func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }))
		said := got.Result.String() + strings.Join(got.Warnings, "\n")
		if got.Allowed || len(got.Warnings) != 1 || strings.Contains(said, "s3cret") {
			t.Errorf("%q: %s", text, said)
		}
	}
}

// A denial against which no override helps stands, whatever else the policy has against the request.
func TestDenialsThatNoOverridePasses(t *testing.T) {
	final := strings.Replace(denies("gone", "Gone", 422), "remedyInMessage: do it}", "remedy: do it, override: false}", 1)
	for spec, passes := range map[string]bool{
		`{"name": "x", "red": true}`: true, `{"name": "x", "gone": true}`: false, `{"name": "x", "red": true, "gone": true}`: false,
	} {
		f, r, _ := overridable(t)
		f.Swap(newFixture(t, world{}, policyOf("colour", denies("red", "TooRed", 403)+final)).set)
		got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, spec, by("alice"), annotatedWith(good)))
		if got.Allowed != passes {
			t.Errorf("%s: got %+v", spec, got.Result)
		}
		if !passes && (len(r.asked) > 0 || len(got.Warnings) != 1 || !strings.HasSuffix(got.Warnings[0], "is ignored: [colour/Gone] cannot be overridden")) {
			t.Errorf("%s: asked %q, warned %q", spec, r.asked, got.Warnings)
		}
	}
}
