package inventory

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

const instance = "5029e7a2-1111-2222-3333-444455556666"

// Whatever anybody writes there is a mark only if it is exactly one.
func TestTemplateMarks(t *testing.T) {
	good := TemplateMark{
		Owner: "0f7c1d9e-8d3c-4b6e-9a51-0b0c0d0e0f10", Domain: "zone-a",
		Mark: templates.Mark{Release: "24.04-20261101", Digest: "0123456789abcdef", Made: time.Date(2026, 11, 1, 0, 0, 0, 7e6, time.UTC)},
		Uuid: instance, Stage: MarkImported,
	}
	read, is := ParseTemplateMark(good.String())
	if diff := cmp.Diff(good, read, cmp.AllowUnexported(TemplateMark{})); diff != "" || !is {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text := good.String()
	for name, bad := range map[string]string{
		"nothing":         "",
		"a field less":    strings.TrimPrefix(text, string(good.Owner)+" "),
		"a field more":    text + " more",
		"a line more":     text + "\n",
		"two blanks":      strings.Replace(text, " ", "  ", 1),
		"a blank first":   " " + text,
		"another stage":   strings.Replace(text, MarkImported, "whole", 1),
		"no UUID":         strings.Replace(text, instance, "instance", 1),
		"a long release":  strings.Replace(text, "24.04", strings.Repeat("2", 64), 1),
		"an odd release":  strings.Replace(text, "24.04", "24/04", 1),
		"a long owner":    strings.Repeat("0", 65) + strings.TrimPrefix(text, string(good.Owner)),
		"a negative time": strings.Replace(text, " 17", " -17", 1),
		"a huge time":     strings.Replace(text, " 17", " 1777777777777", 1),
	} {
		if m, is := ParseTemplateMark(bad); is {
			t.Errorf("%s: %q is the mark %+v", name, bad, m)
		}
	}
}
