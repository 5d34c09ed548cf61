package grants

import (
	"cmp"
	"encoding/json"

	"sallyport.dev/sallyport/commands"
)

// Release is the Helm release of Sallyport, empty if unknown.
type Release struct {
	Name, Namespace string
	// Within precedes the names of values, such as "sallyport." if the chart is a subchart of that name. Empty if it is not.
	Within string
}

// Upgrade returns the command that adds entries to a chart value that is a map.
func (r Release) Upgrade(value string, add any) string {
	text, err := json.Marshal(add)
	if err != nil {
		panic(err) // maps of strings
	}
	return commands.Line("helm", "upgrade", cmp.Or(r.Name, "RELEASE"), "CHART", "--namespace", cmp.Or(r.Namespace, "NAMESPACE"), "--reuse-values",
		"--set-json", r.Within+value+"="+string(text))
}
