package review

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
		end := p.line + bytes.Count(p.text, []byte("\n"))
		var document goyaml.Node
		if from < p.line || from > end || goyaml.Unmarshal(p.text, &document) != nil || len(document.Content) == 0 {
			continue
		}
		if line := lineIn(document.Content[0], path); line > 0 {
			return p.line - 1 + line
		}
	}
	return 0
}

// lineIn follows a path from a node. Line 0 is that of nothing at all.
func lineIn(node *goyaml.Node, path string) (line int) {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		var next *goyaml.Node
		index, err := strconv.Atoi(step)
		switch {
		case node.Kind == goyaml.SequenceNode && err == nil && index < len(node.Content):
			next = node.Content[index]
			line = next.Line
		case node.Kind == goyaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == step {
					next, line = node.Content[i+1], node.Content[i].Line
				}
			}
		}
		if next == nil {
			return line
		}
		node = next
	}
	return line
}
