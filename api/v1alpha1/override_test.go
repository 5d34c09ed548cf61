package v1alpha1

import (
	"testing"
	"time"
)

// What is written is read, and what could not count is not.
func TestOverridesAreRead(t *testing.T) {
	o := &Override{"guard", "u-1", "alice", time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), "ticket 42; urgent"}
	if got, err := ParseOverride(o.String()); err != nil || *got != *o {
		t.Errorf("%s is read as %+v, %v", o, got, err)
	}
	if got, err := o.Text(); err != nil || got != o.String() {
		t.Errorf("%s is written as %q, %v", o, got, err)
	}
	for name, by := range map[string]string{"a semicolon": "CN=alice;OU=fleet", "a line break": "alice\nbob", "nothing": ""} {
		if got, err := (&Override{"guard", "u-1", by, o.Until, "why"}).Text(); err == nil {
			t.Errorf("with %s in the user name it is written as %q", name, got)
		}
	}
	for _, text := range []string{"", "guard; uid=; by=a;b; until=2026-01-02T15:04:05Z; why", "guard", "guard; u-1; by=a; until=2026-01-02T15:04:05Z; why", "guard; uid=; by=a; 2026-01-02T15:04:05Z; why", "guard; uid=; by=a; until=soon; why",
		"guard; uid=; until=2026-01-02T15:04:05Z; why", "guard; uid=; by=; until=2026-01-02T15:04:05Z; why", "guard; uid=; a; until=2026-01-02T15:04:05Z; why",
	} {
		if got, err := ParseOverride(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
