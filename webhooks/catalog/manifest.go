package catalog

import (
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// indent stands for a tab at the beginning of a line of Rego.
const indent = "  "

// Manifest is a policy in YAML, as kubectl apply takes it. Its Rego is indented by spaces: YAML has no tabs in blocks of text,
// and with them kubectl edit would show a policy as one long line with escapes.
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

// Spaced returns Rego with spaces in place of the tabs at the beginning of lines. That is other Rego if a text of several lines has such tabs;
// none of the shipped policies has.
func Spaced(source string) string {
	lines := strings.Split(source, "\n")
	for i, line := range lines {
		text := strings.TrimLeft(line, "\t")
		lines[i] = strings.Repeat(indent, len(line)-len(text)) + text
	}
	return strings.Join(lines, "\n")
}

// untabbed returns the same Rego without tabs at the beginning of lines. Rego that would not be the same, because the tabs are in
// a text of several lines, and Rego that does not parse stay as they are.
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
