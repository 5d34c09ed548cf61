package engine

import "testing"

func outlineOf(t *testing.T, text string) *Outline {
	t.Helper()
	o, err := ParseOutline(Module{Name: "m.rego", Source: text})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOutlines(t *testing.T) {
	base := outlineOf(t, "package lib.base\n\nf(x) := x\n\ng := data.lib.base.f(1)\n")
	user := outlineOf(t, "package toy.user\n\nimport data.lib.base\n\nwarn contains base.f(1)\n\nx := data.lib.other.y\n")
	below := outlineOf(t, "package lib.base.more\n\nz := 1\n")
	for name, got := range map[string]bool{
		"an import reaches":                  user.Reaches(base),
		"a package below is not reached":     !user.Reaches(below),
		"nor the other way":                  !base.Reaches(user),
		"what is there is resolved":          len(user.Unresolved("lib.base", []*Outline{base, user})) == 0,
		"what is not there is not":           len(user.Unresolved("lib", []*Outline{base, user})) > 0,
		"a module is below its package":      below.Below("lib.base") && base.Below("lib.base"),
		"a longer word is no package below":  !outlineOf(t, "package lib.basement\n").Below("lib.base"),
		"packages of one name clash":         base.Clash(outlineOf(t, "package lib.base\n")) == "package lib.base",
		"a package below does not":           base.Clash(below) == "" && below.Clash(base) == "",
		"a package where a rule is does":     base.Clash(outlineOf(t, "package lib.base.f\n")) == "rule lib.base.f",
		"a rule where a package is does too": outlineOf(t, "package lib.base.f.h\n").Clash(base) == "rule lib.base.f",
	} {
		if !got {
			t.Errorf("not so: %s", name)
		}
	}
	if _, err := ParseOutline(Module{Name: "m.rego", Source: "package a\n\nx := \n"}); err == nil {
		t.Error("it parsed")
	}
}
