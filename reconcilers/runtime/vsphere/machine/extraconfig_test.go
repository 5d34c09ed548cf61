package machine

import (
	"testing"
	"time"
)

func TestIncarnation(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 600_000_000, time.UTC)
	boot := func(d time.Duration) *time.Time { return new(at.Add(d)) }
	for name, c := range map[string]struct {
		count powerOns
		boot  *time.Time
		want  string
	}{
		"never on":                              {powerOns{}, nil, ""},
		"off":                                   {powerOns{3, at}, nil, "3"},
		"on by others, never by us":             {powerOns{}, boot(0), "0@1893553445"},
		"on by us":                              {powerOns{3, at}, boot(time.Millisecond), "3@1893553445"},
		"on by others before it was counted":    {powerOns{3, at}, boot(-time.Millisecond), "2@1893553445"},
		"on by us, as vCenter says in seconds":  {powerOns{3, at}, boot(-600 * time.Millisecond), "3@1893553445"},
		"on by others, later":                   {powerOns{3, at}, boot(time.Hour), "3@1893557045"},
		"on with something else in the counter": {parsePowerOns("three"), boot(0), "0@1893553445"},
	} {
		if got := c.count.incarnation(c.boot); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	if got := parsePowerOns(powerOns{3, at}.String()); got != (powerOns{3, at}) {
		t.Errorf("a counter is read as %v", got)
	}
}

func TestMove(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	want := move{at: at, incarnation: "3@17", host: "host 1.example.org"}
	if got := parseMove(want.String()); got != want {
		t.Errorf("a note of a move is read as %+v", got)
	}
	if got := parseMove("elsewhere"); got != (move{}) {
		t.Errorf("something else is read as %+v", got)
	}
}
