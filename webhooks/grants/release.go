package grants

import (
	"cmp"
	"encoding/json"

	"sallyport.dev/sallyport/commands"
)

// Release is the Helm release that Sallyport is installed by. Whoever does not know it leaves it empty.
type Release struct{ Name, Namespace string }

// Upgrade is the command that adds to a value of the chart, which is a map.
func (r Release) Upgrade(value string, add any) string {
	text, err := json.Marshal(add)
	if err != nil {
		panic(err) // maps of texts
	}
	return commands.Line("helm", "upgrade", cmp.Or(r.Name, "RELEASE"), "CHART", "--namespace", cmp.Or(r.Namespace, "NAMESPACE"), "--reuse-values",
		"--set-json", value+"="+string(text))
}
