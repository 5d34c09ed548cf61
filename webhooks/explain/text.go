package explain

import (
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.dev/sallyport/webhooks/engine"
)

const (
	// maxShown is the length up to which a value is shown whole.
	maxShown = 60
	// maxNames is the number of names that are shown of a list.
	maxNames = 5
)

// brief returns a short text of a value: the name of a Kubernetes object, or the value, truncated.
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
	case isList && len(list) > 0 && len(text) > maxShown:
		return fmt.Sprintf("%d values", len(list))
	case len([]rune(string(text))) > maxShown:
		return string([]rune(string(text))[:maxShown-1]) + "…"
	}
	return string(text)
}

// answerText returns a short text of an answer: the number and names of objects, or the value.
func answerText(q *engine.Query, v engine.Value) string {
	decoded, err := v.Decode()
	if err != nil {
		return "?"
	}
	switch decoded := decoded.(type) {
	case nil:
		return "not found"
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
		if len(names) == maxNames {
			names = append(names, "…")
			break
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%d: %s", len(list), strings.Join(names, ", "))
}
