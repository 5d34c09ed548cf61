package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport/webhooks/engine"
)

const (
	// longest is how long a value is shown as it is.
	longest = 60
	// mostNames is how many names of a list are shown.
	mostNames = 5
)

// brief is a value in a few words: an object of Kubernetes by its name, what is short as it is.
func brief(v engine.Value) string {
	if name := v.Get("metadata").Get("name").Text(); name != "" {
		return name
	}
	decoded, err := v.Decode()
	if err != nil {
		return "?"
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return "?"
	}
	list, isList := decoded.([]any)
	switch {
	case isList && len(list) > 0 && len(text) > longest:
		return fmt.Sprintf("%d values", len(list))
	case len([]rune(string(text))) > longest:
		return string([]rune(string(text))[:longest-1]) + "…"
	}
	return string(text)
}

// queryText says what a fact asks for.
func queryText(q *engine.Query) string {
	switch {
	case q.Parent:
		return "the object that the subresource belongs to"
	case q.TestRun:
		return "what becomes of the policy in a rehearsal"
	case q.Access != nil:
		resource := q.Access.Resource
		if q.Access.Group != "" {
			resource += "." + q.Access.Group
		}
		text := fmt.Sprintf("may the requester %s %s", q.Access.Verb, resource)
		if q.Access.Name != "" {
			text += " " + q.Access.Name
		}
		return text + inNamespace(q.Access.Namespace)
	case q.Name != "":
		return q.Kind + " " + q.Name + inNamespace(q.Namespace)
	}
	text := "every " + q.Kind + inNamespace(q.Namespace)
	var terms []string
	for _, field := range slices.Sorted(maps.Keys(q.Fields)) {
		terms = append(terms, field+"="+q.Fields[field])
	}
	for _, key := range slices.Sorted(maps.Keys(q.Labels)) {
		terms = append(terms, "label "+key+"="+q.Labels[key])
	}
	for _, field := range slices.Sorted(maps.Keys(q.Except)) {
		terms = append(terms, field+" not "+strings.Join(q.Except[field], " or "))
	}
	if len(terms) > 0 {
		text += " with " + strings.Join(terms, ", ")
	}
	return text
}

func inNamespace(name string) string {
	if name == "" {
		return ""
	}
	return " in namespace " + name
}

// answerText says what came of a query: how many there are and what they are called.
func answerText(q *engine.Query, v engine.Value) string {
	decoded, err := v.Decode()
	if err != nil {
		return "?"
	}
	switch decoded := decoded.(type) {
	case nil:
		return "there is none"
	case bool:
		if decoded {
			return "yes"
		}
		return "no"
	case []any:
		return listText(decoded)
	}
	if q.TestRun {
		return "known"
	}
	name := brief(v)
	if kind := v.Get("kind").Text(); kind != "" && q.Parent {
		return kind + " " + name
	}
	return "found " + name
}

func listText(list []any) string {
	if len(list) == 0 {
		return "none"
	}
	var names []string
	for _, element := range list {
		object, _ := element.(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		name, ok := metadata["name"].(string)
		if !ok {
			name = "(no name)"
		}
		if len(names) == mostNames {
			names = append(names, "…")
			break
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%d: %s", len(list), strings.Join(names, ", "))
}
