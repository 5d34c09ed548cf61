package offline

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
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
