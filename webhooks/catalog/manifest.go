package catalog

import (
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// indent replaces a tab at the beginning of a line of Rego.
const indent = "  "

// Manifest returns a policy as YAML for kubectl apply. Its Rego is indented by spaces: YAML block scalars cannot have tabs, and
// with tabs kubectl edit would show a policy as one long line with escapes.
func Manifest(policy *v1alpha1.RegoPolicy) ([]byte, error) {
	policy = policy.DeepCopy()
	for i := range policy.Spec.Modules {
		policy.Spec.Modules[i].Source = untabbed(policy.Spec.Modules[i].Source)
	}
	for i := range policy.Spec.Tests {
		policy.Spec.Tests[i].Source = untabbed(policy.Spec.Tests[i].Source)
	}
	text, err := yaml.Marshal(policy)
	if err != nil {
		return nil, fmt.Errorf("encoding policy %s: %w", policy.Name, err)
	}
	return text, nil
}

// Spaced replaces tabs at the beginning of lines by spaces. This changes the value of a raw string of several lines with such tabs;
// no shipped policy has one.
func Spaced(source string) string {
	lines := strings.Split(source, "\n")
	for i, line := range lines {
		text := strings.TrimLeft(line, "\t")
		lines[i] = strings.Repeat(indent, len(line)-len(text)) + text
	}
	return strings.Join(lines, "\n")
}

// untabbed is Spaced if this does not change the parsed Rego; otherwise, and if the Rego does not parse, it returns source.
func untabbed(source string) string {
	spaced := Spaced(source)
	before, errBefore := parsed(source)
	after, errAfter := parsed(spaced)
	if errBefore != nil || errAfter != nil || !after.Equal(before) {
		return source
	}
	return spaced
}

func parsed(source string) (*ast.Module, error) {
	return ast.ParseModuleWithOpts("", source, ast.ParserOptions{ProcessAnnotation: true})
}
