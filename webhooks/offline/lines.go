package offline

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// LineOf finds a field, such as spec.match.resources[0].operations, in a document of a YAML file that begins at a line. If the field is
// missing, it is the line of what it should be in; 0 if that is not known.
func LineOf(file string, from int, path string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for _, p := range splitYAML(text) {
		if line := p.lineOf(from, path); line > 0 {
			return line
		}
	}
	return 0
}

// LineOf finds a field of the document; 0 if it is not known where that is.
func (d *Document) LineOf(path string) int { return d.from.lineOf(d.Line, path) }

// lineOf finds a field of the object that begins at a line of the file: the piece itself, or an item of a list.
func (p piece) lineOf(from int, path string) int {
	var document goyaml.Node
	end := p.line + bytes.Count(p.text, []byte("\n"))
	if from < p.line || from > end || goyaml.Unmarshal(p.text, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	object := document.Content[0]
	if _, items := member(object, "items"); items != nil {
		for _, item := range items.Content {
			if item.Line == from-p.line+1 {
				object = item
			}
		}
	}
	if line := lineIn(object, path); line > 0 {
		return p.line - 1 + line
	}
	return 0
}

func member(of *goyaml.Node, name string) (key, value *goyaml.Node) {
	for i := 0; of.Kind == goyaml.MappingNode && i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i], of.Content[i+1]
		}
	}
	return nil, nil
}

// lineIn follows a path from a node. Line 0 is that of nothing at all.
func lineIn(node *goyaml.Node, path string) (line int) {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		at, next := member(node, step)
		if index, err := strconv.Atoi(step); node.Kind == goyaml.SequenceNode && err == nil && index < len(node.Content) {
			at, next = node.Content[index], node.Content[index]
		}
		if next == nil {
			return line
		}
		node, line = next, at.Line
	}
	return line
}

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
