package main

import (
	"fmt"
	"regexp"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies/describe"
)

// The forms of the comments in api/v1alpha1/conditions.go.
var (
	conditionOf = regexp.MustCompile(`^Condition\w+ of an? (\w+) is (.+)$`)
	onEveryKind = regexp.MustCompile(`^Condition\w+ is (on every kind .+)$`)
	reasonsOf   = regexp.MustCompile(`^Reasons of an? (\w+)'s (?:conditions|condition Ready)\. ?(.*)$`)
	reasonOf    = regexp.MustCompile(`^Reason\w+ \(([^)]+)\): (.+)$`)
	saysThat    = regexp.MustCompile(`^(\w+) ((?:true|false|unknown)(?: or (?:true|false|unknown))*)$`)
)

// runtimeReasons are told with one kind and shown by every kind that has to do with a runtime.
var runtimeReasons = []v1alpha1.ConditionReason{
	v1alpha1.ReasonInstanceNotFound, v1alpha1.ReasonInstanceLost, v1alpha1.ReasonOwnedByAnother, v1alpha1.ReasonPermissionDenied, v1alpha1.ReasonRuntimeFailed,
	v1alpha1.ReasonRuntimeNotSupported, v1alpha1.ReasonRuntimeUnavailable, v1alpha1.ReasonTakingOver, v1alpha1.ReasonReadOnly,
}

func conditionText() string {
	var shared []string
	for _, reason := range runtimeReasons {
		shared = append(shared, string(reason))
	}
	return fmt.Sprintf(`Types and reasons of conditions are API: they do not change their meaning. Reasons are those of events too.

- %s of an operation says what its %s says, with the same reason, and that of a RegoPolicy has the reason of %s.
- What a runtime says is listed with one kind and shown by all that have to do with a runtime:
  %s.
`, describe.Code(string(v1alpha1.ConditionReady)), describe.Code(string(v1alpha1.ConditionCompleted)), describe.Code(string(v1alpha1.ConditionActive)), describe.Codes(shared))
}

// conditions are the types and reasons of a kind's conditions.
func conditions(kind string, constants []constant) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "### Conditions of a %s\n\n| type | meaning |\n| --- | --- |\n", kind)
	for _, c := range ofType(constants, "ConditionType") {
		if match := onEveryKind.FindStringSubmatch(c.doc); match != nil {
			fmt.Fprintf(&text, "| %s | %s |\n", describe.Code(c.value), describe.Cell(capital(match[1])))
		} else if match := conditionOf.FindStringSubmatch(c.doc); match == nil {
			return "", fmt.Errorf("the comment of %s does not begin with %q", c.name, c.name+" of a KIND is")
		} else if match[1] == kind {
			fmt.Fprintf(&text, "| %s | %s |\n", describe.Code(c.value), describe.Cell(capital(match[2])))
		}
	}
	fmt.Fprintf(&text, "\n| reason | condition | meaning |\n| --- | --- | --- |\n")
	var remark string
	for _, c := range ofType(constants, "ConditionReason") {
		group := reasonsOf.FindStringSubmatch(c.group)
		if group == nil {
			return "", fmt.Errorf("the comment of the block with %s does not begin with %q", c.name, "Reasons of a KIND's conditions.")
		}
		match := reasonOf.FindStringSubmatch(c.doc)
		if match == nil {
			return "", fmt.Errorf("the comment of %s does not begin with %q", c.name, c.name+" (CONDITION STATUS): ")
		}
		if group[1] == kind {
			remark = group[2]
			fmt.Fprintf(&text, "| %s | %s | %s |\n", describe.Code(c.value), says(match[1]), describe.Cell(capital(match[2])))
		}
	}
	if remark != "" {
		fmt.Fprintf(&text, "\n%s\n", remark)
	}
	return text.String(), nil
}

// says writes which conditions have a reason as kubectl wait does: Ready=False for "Ready false".
func says(text string) string {
	parts := strings.Split(text, ", ")
	for i, part := range parts {
		if match := saysThat.FindStringSubmatch(part); match != nil {
			values := strings.Split(match[2], " or ")
			for j, value := range values {
				values[j] = describe.Code(match[1] + "=" + capital(value))
			}
			parts[i] = strings.Join(values, " or ")
		}
	}
	return strings.Join(parts, ", ")
}
