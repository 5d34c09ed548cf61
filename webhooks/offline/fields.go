package offline

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FieldLine is the place of an invalid field.
type FieldLine struct {
	Field string `json:"field"`
	Line  int    `json:"line"`
}

// recordLines records the lines of fields, if known.
func (p *pending) recordLines(fields ...string) {
	for _, name := range fields {
		one := FieldLine{name, p.request.LineOf(name)}
		if one.Line > 0 && !slices.Contains(p.result.Fields, one) {
			p.result.Fields = append(p.result.Fields, one)
		}
	}
}

func (p *pending) locateErrors(errs field.ErrorList) {
	for _, e := range errs {
		p.recordLines(e.Field)
	}
}

// Misshapen returns the fields of an object of Sallyport's kinds that are unknown or have the wrong type: one line each, which
// begins with the place.
func (k *Kinds) Misshapen(d *Document) (lines []string) {
	is, err := k.of(d)
	if err != nil || is.schema == nil {
		return nil
	}
	say := func(name, what string) {
		place := d.Place()
		if line := d.LineOf(name); line > 0 {
			place = fmt.Sprintf("%s:%d", d.File, line)
		}
		lines = append(lines, place+": "+what)
	}
	u := (&unstructured.Unstructured{Object: d.Object}).DeepCopy()
	unknown, err := is.schema.prune(u)
	if err != nil {
		return nil
	}
	for _, name := range unknown {
		say(name, fmt.Sprintf("unknown field %q", name))
	}
	for _, e := range sorted(validation.ValidateCustomResource(nil, u.Object, is.schema.Values)) {
		if e.Type == field.ErrorTypeTypeInvalid {
			say(e.Field, e.Error())
		}
	}
	return lines
}
